/** Running: what is sent, how far it is, and what came back. */
import { signal } from "@preact/signals";
import { ask, command, Problem } from "../api/http";
import { bytesOf } from "../api/text";
import type { EvalReply, Told } from "../api/types";
import { runtimeMark } from "../editor/marks";
import { remember } from "./history";
import { type Trouble, troubleOf } from "./problem";
import { type Reply, readReply } from "./reply";
import { type Draft, draft, requestOf } from "./state";
import { tabFor } from "./tab";

/** What is wanted of a run: that it is kept; that it is rolled back; and that it can be looked at call by call, too. */
export type Kind = "run" | "dry" | "step";

export interface Result {
  dry: boolean;
  /** It is to be looked at call by call. */
  stepped: boolean;
  draft: Draft;
  told: Told;
  reply: { tree: Reply; raw: Uint8Array } | null;
  trouble: Trouble | null;
  /** Milliseconds until all of it was here. */
  waited: number;
}

export interface Progress {
  dry: boolean;
  began: number;
  /** What the server says of it: it has been running for so many milliseconds. */
  seen: number | null;
  abort: AbortController;
}

export const result = signal<Result | null>(null);
export const progress = signal<Progress | null>(null);
/** A wish that could not be sent. */
export const complaint = signal<string | null>(null);

/** How often a run that goes on is asked about. */
const ASK_MS = 500;

export async function run(kind: Kind): Promise<void> {
  if (progress.value) return;
  const dry = kind !== "run";
  const of = draft.value;
  const made = requestOf(of);
  complaint.value = "wrong" in made ? made.wrong : null;
  if ("wrong" in made) return;
  const abort = new AbortController();
  const began = performance.now();
  progress.value = { dry, began, seen: null, abort };
  const watch = setInterval(() => void look(of.script), ASK_MS);
  try {
    const body = {
      ...made.request,
      trace: true,
      raw: true,
      ...(dry
        ? { dry_run: true, variables: kind === "step" }
        : { writes: of.mode === "atomic" && of.changes }),
    };
    const told = await ask<EvalReply>("/v1/eval", { body, signal: abort.signal });
    const raw = bytesOf(told.raw ?? "_\r\n");
    const reply = { tree: readReply(raw), raw };
    const waited = performance.now() - began;
    result.value = { dry, stepped: kind === "step", draft: of, told, reply, trouble: null, waited };
  } catch (error) {
    const told = error instanceof Problem ? (error.body as Told) : {};
    const cancelled = {
      code: "CANCELLED",
      message: "You cancelled the run.",
      line: null,
      hint: cancelHint(of),
    };
    const trouble = abort.signal.aborted ? cancelled : troubleOf(error);
    const stepped = kind === "step" && told.trace !== undefined;
    const waited = performance.now() - began;
    result.value = { dry, stepped, draft: of, told, reply: null, trouble, waited };
  } finally {
    clearInterval(watch);
    progress.value = null;
  }
  const { trouble } = result.value;
  runtimeMark.value = trouble?.line ? { line: trouble.line, message: trouble.message } : null;
  tabFor(dry, trouble !== null);
  remember({ at: Date.now(), outcome: trouble?.code ?? "ok", ok: !trouble, dry, draft: of });
}

function cancelHint(of: Draft): string {
  return of.mode === "async"
    ? "The script is not atomic: its writes before the cancellation stay."
    : "The server stops the script and rolls back its writes (unless script-client-gone is finish).";
}

/** Shows the result as that of any other run. */
export function leaveSteps(): void {
  if (result.value) result.value = { ...result.value, stepped: false };
}

/** Ends the run by hanging up. */
export function cancel(): void {
  progress.value?.abort.abort();
}

async function look(script: string): Promise<void> {
  const sha = await sha1(script);
  const runs = await command(["SCRIPT", "RUNNING"]).catch(() => null);
  const now = progress.value;
  if (!now || !Array.isArray(runs)) return;
  const own = runs.flatMap((run) => (run && typeof run === "object" && !Array.isArray(run) ? [run] : []));
  const seen = own.filter((run) => run.sha1 === sha || sha === null).map((run) => Number(run.duration_ms));
  progress.value = { ...now, seen: seen.length > 0 ? Math.max(...seen) : null };
}

/** Null where the browser has no means for it: pages that did not come over a safe connection. */
async function sha1(text: string): Promise<string | null> {
  if (!globalThis.crypto?.subtle) return null;
  const digest = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
