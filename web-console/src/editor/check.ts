/** Asks the server whether a script compiles, when its author pauses. */
import { ask, Problem } from "../api/http";
import { lineOf } from "../run/problem";
import { marks, runtimeMark } from "./marks";

/** Long enough not to ask for every letter, short enough to seem at once. */
const PAUSE_MS = 300;

let waiting: ReturnType<typeof setTimeout> | undefined;
let present: AbortController | undefined;
let last = "";

export function check(script: string): void {
  if (script === last) return;
  last = script;
  runtimeMark.value = null;
  clearTimeout(waiting);
  present?.abort();
  waiting = setTimeout(() => void compare(script), PAUSE_MS);
}

async function compare(script: string): Promise<void> {
  const abort = new AbortController();
  present = abort;
  try {
    await ask("/v1/check", { body: { script }, signal: abort.signal });
    marks.value = [];
  } catch (error) {
    if (abort.signal.aborted) return;
    marks.value =
      error instanceof Problem ? [{ line: lineOf(error.message) ?? 1, message: error.message }] : [];
  }
}
