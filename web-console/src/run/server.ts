/** What the server's configuration says about budgets. */
import { signal } from "@preact/signals";
import { command } from "../api/http";
import { bytes } from "./numbers";

interface Budgets {
  fuel: number | null;
  timeout: number | null;
  /** As it is spelled. */
  memory: string | null;
  memoryBytes: number | null;
}

export const server = signal<Budgets>({ fuel: null, timeout: null, memory: null, memoryBytes: null });

const UNITS: Record<string, number> = {
  "": 1,
  b: 1,
  k: 1e3,
  kb: 2 ** 10,
  m: 1e6,
  mb: 2 ** 20,
  g: 1e9,
  gb: 2 ** 30,
};

/** Bytes of a size such as 8mb. */
export function sizeOf(text: string): number | null {
  const found = /^\s*(\d+)\s*([a-z]*)\s*$/i.exec(text);
  const unit = UNITS[(found?.[2] ?? "").toLowerCase()];
  return found && unit ? Number(found[1]) * unit : null;
}

export async function loadBudgets(): Promise<void> {
  const reply = await command(["CONFIG", "GET", "script-fuel", "script-timeout-ms", "script-memory"]).catch(
    () => null,
  );
  if (reply === null || typeof reply !== "object" || Array.isArray(reply)) return;
  const memory = String(reply["script-memory"] ?? "");
  const memoryBytes = sizeOf(memory);
  server.value = {
    fuel: Number(reply["script-fuel"]) || null,
    timeout: Number(reply["script-timeout-ms"]) || null,
    memory: memoryBytes === null ? null : bytes(memoryBytes),
    memoryBytes,
  };
}
