/** Errors: where they are, and what can be done. */
import { Lost, Problem } from "../api/http";

export interface Trouble {
  code: string;
  message: string;
  /** Line of the script, counted from one. */
  line: number | null;
  hint: string | null;
}

/** The line of the script that an error's text names. */
export function lineOf(message: string): number | null {
  const found = /(?:user_script|@user_function|\[string "[^"]*"\]):(\d+)/.exec(message);
  return found ? Number(found[1]) : null;
}

const HINTS: [RegExp, string][] = [
  [
    /^SCRIPTLIMIT fuel/,
    "It used up its fuel and was undone. Is there a loop that does not end? Else raise Fuel.",
  ],
  [/^SCRIPTLIMIT (time|timeout)/, "It took too long and was undone. Raise Time, or do less in one run."],
  [
    /^SCRIPTLIMIT memory/,
    "It needed more memory than it may use, and was undone. Raise Memory, or keep less at a time.",
  ],
  [/^SCRIPTLIMIT/, "A limit of the server ended it; an atomic script is undone."],
  [/^KILLED/, "Somebody ended it with SCRIPT KILL."],
  [
    /without atomicity others see/,
    "A run without atomicity cannot be taken back. Choose the mode Atomic for a dry run.",
  ],
  [
    /cannot be run dry: the data is in other/,
    "Dry runs need the data in the server's own process, which has store nodes here.",
  ],
  [/^WRONGTYPE/, "The key has another type than the command wants: look at it on the page Keys."],
  [/nonexistent global variable/, "Variables must be local: write local before the name."],
  [/Error compiling script/, "This is Lua 5.1. The line is marked in the editor."],
  [/^OOM/, "Memory is full. The flag allow-oom lets a script write all the same; or raise maxmemory."],
  [
    /^(CLUSTERDOWN|TRYAGAIN)/,
    "A store node cannot be reached; nothing was done. The page Topology shows which.",
  ],
  [/undeclared|not declared/i, "The script came to a key that is not among its keys."],
  [/^TIMEOUT/, "The parameter http-timeout-ms ended the request; its script was undone."],
];

export function hintFor(message: string): string | null {
  return HINTS.find(([pattern]) => pattern.test(message))?.[1] ?? null;
}

export function troubleOf(error: unknown): Trouble {
  if (error instanceof Problem) {
    const text = `${error.code} ${error.message}`;
    const hint = hintFor(error.message) ?? hintFor(text);
    // The code has a place of its own.
    const message = error.message.startsWith(`${error.code} `)
      ? error.message.slice(error.code.length + 1)
      : error.message;
    return { code: error.code, message, line: lineOf(error.message), hint };
  }
  if (error instanceof Lost) {
    const hint = "What was running is undone if it was atomic. The page looks again every few seconds.";
    return { code: "LOST", message: error.message, line: null, hint };
  }
  return {
    code: "CONSOLE",
    message: error instanceof Error ? error.message : String(error),
    line: null,
    hint: null,
  };
}
