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
    "The script used all of its fuel and was rolled back. Check for an endless loop, or raise Fuel.",
  ],
  [
    /^SCRIPTLIMIT (time|timeout)/,
    "The script reached its time limit and was rolled back. Raise Time, or do less in one run.",
  ],
  [
    /^SCRIPTLIMIT memory/,
    "The script reached its memory limit and was rolled back. Raise Memory, or use less at a time.",
  ],
  [/^SCRIPTLIMIT/, "A limit of the server stopped the script; an atomic script is rolled back."],
  [/^KILLED/, "The script was stopped by SCRIPT KILL."],
  [
    /without atomicity others see/,
    "A run without atomicity cannot be rolled back. Select the mode Atomic for a dry run.",
  ],
  [
    /cannot be run dry: the data is in other/,
    "Dry runs require a server that holds the data itself; this one uses store nodes.",
  ],
  [/^WRONGTYPE/, "The key has a type that the command does not support: see the page Keys."],
  [/nonexistent global variable/, "Variables must be local: write local before the name."],
  [/Error compiling script/, "This is Lua 5.1. The line is marked in the editor."],
  [/^OOM/, "Memory is full. Set the flag allow-oom to let the script write, or raise maxmemory."],
  [
    /^(CLUSTERDOWN|TRYAGAIN)/,
    "A store node cannot be reached; nothing was done. The page Topology shows which one.",
  ],
  [/undeclared|not declared/i, "The script accessed a key that is not among its keys."],
  [/^TIMEOUT/, "The request was stopped by http-timeout-ms; its script was rolled back."],
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
    const hint = "A running script is rolled back if it is atomic. This page tries again every few seconds.";
    return { code: "LOST", message: error.message, line: null, hint };
  }
  return {
    code: "CONSOLE",
    message: error instanceof Error ? error.message : String(error),
    line: null,
    hint: null,
  };
}
