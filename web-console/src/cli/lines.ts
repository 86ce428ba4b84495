/** The history of the command line, stored by this browser, and how the arrow keys go through it. */
import { shown, type Text } from "../api/text";

const KEPT = "moonshard.lines";
const MOST = 200;
/** Longer lines are not stored: they are data, for which the storage is too small. */
const MOST_LETTERS = 10_000;

/** The newest is the last. */
export function readLines(): string[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return (Array.isArray(list) ? list : []).filter((line): line is string => typeof line === "string");
  } catch {
    return [];
  }
}

export function keepLine(line: string): void {
  if (line.length > MOST_LETTERS) return;
  const lines = [...readLines().filter((other) => other !== line), line].slice(-MOST);
  try {
    localStorage.setItem(KEPT, JSON.stringify(lines));
  } catch {
    // The browser has no more room, or keeps nothing.
  }
}

export function forgetLines(): void {
  localStorage.removeItem(KEPT);
}

/** Whether a command may contain a password. */
export function isSecret(words: Text[]): boolean {
  const [name = "", ...rest] = words.map((word) => shown(word).toLowerCase());
  if (name === "auth" || name === "acl") return true;
  if (name === "config") return rest.some((word) => /pass|auth|secret/.test(word));
  return (name === "hello" || name === "migrate") && rest.some((word) => word === "auth" || word === "auth2");
}

/** A position in the history. After its last line comes what was being typed. */
export class Browsing {
  readonly #lines: string[];
  readonly #typed: string;
  #at: number;

  constructor(lines: string[], typed: string) {
    this.#lines = lines;
    this.#typed = typed;
    this.#at = lines.length;
  }

  /** The line so many steps later; earlier if negative. */
  move(steps: number): string {
    this.#at = Math.min(this.#lines.length, Math.max(0, this.#at + steps));
    return this.#lines[this.#at] ?? this.#typed;
  }
}
