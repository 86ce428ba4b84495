/** Whether a script compiles, when its author pauses: the browser says so at once, and then the server, which decides. */
import { ask, Problem } from "../api/http";
import { lineOf } from "../run/problem";
import { complaintOf } from "./local-check";
import { type Mark, marks, runtimeMark } from "./marks";

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

function markOf(complaint: string): Mark {
  return { line: lineOf(complaint) ?? 1, message: complaint };
}

async function compare(script: string): Promise<void> {
  const abort = new AbortController();
  present = abort;
  let decided = false;
  void complaintOf(script).then((complaint) => {
    if (!decided && !abort.signal.aborted) marks.value = complaint ? [markOf(complaint)] : [];
  });
  try {
    await ask("/v1/check", { body: { script }, signal: abort.signal });
    decided = true;
    marks.value = [];
  } catch (error) {
    // If the server cannot be asked, what the browser says stays.
    if (abort.signal.aborted || !(error instanceof Problem)) return;
    decided = true;
    marks.value = [markOf(error.message)];
  }
}
