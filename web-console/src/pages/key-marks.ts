/** Type and expiry of the listed keys. */
import { signal } from "@preact/signals";
import { ask } from "../api/http";
import { idOf, type Text } from "../api/text";
import type { Json, KeyValue } from "../api/types";

export interface Mark {
  type: string;
  /** When it expires, in milliseconds since 1970; null if it does not. */
  until: number | null;
}

/** By `idOf`. Keys whose type is not known yet have none. */
export const marks = signal<ReadonlyMap<string, Mark>>(new Map());

function markOf(type: string, ttl: unknown): Mark {
  return { type, until: typeof ttl === "number" && ttl >= 0 ? Date.now() + ttl : null };
}

/** Asks for the type and expiry of keys. */
export async function askMarks(keys: Text[]): Promise<Map<string, Mark>> {
  const all = new Map<string, Mark>();
  if (keys.length === 0) return all;
  const commands = keys.flatMap((key) => [
    ["TYPE", key],
    ["PTTL", key],
  ]);
  const { replies } = await ask<{ replies: Json[] }>("/v1/pipeline", { body: { commands } });
  for (const [at, key] of keys.entries()) {
    const type = replies[2 * at];
    // An error instead of a text: the user may list the key, but not read it.
    if (typeof type === "string" && type !== "none") all.set(idOf(key), markOf(type, replies[2 * at + 1]));
  }
  return all;
}

/** Updates a listed key after it was loaded. */
export function correct({ key, type, ttl_ms }: KeyValue): void {
  if (marks.value.has(idOf(key))) marks.value = new Map(marks.value).set(idOf(key), markOf(type, ttl_ms));
}
