/** A line cut into words as redis-cli does it: with quotes, and escapes for any bytes. */
import { type Text, textOf } from "../api/text";

const encoder = new TextEncoder();

const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07" };

export class Unbalanced extends Error {}

/** The words of a line. A quote that is not closed, or not followed by a space, is an error. */
export function wordsOf(line: string): Text[] {
  const words: Text[] = [];
  let at = 0;
  for (;;) {
    while (/\s/.test(line[at] ?? "")) at += 1;
    if (at >= line.length) return words;
    const word: number[] = [];
    while (at < line.length && !/\s/.test(line[at] ?? "")) {
      const mark = line[at];
      if (mark === '"' || mark === "'") at = quoted(line, at, mark, word);
      else at = letter(line, at, word);
    }
    words.push(textOf(Uint8Array.from(word)));
  }
}

/** Adds the character at a position, which may be two UTF-16 units long, to a word. Returns the next position. */
function letter(line: string, at: number, into: number[]): number {
  const one = String.fromCodePoint(line.codePointAt(at) ?? 0);
  into.push(...encoder.encode(one));
  return at + one.length;
}

/** Adds what is between the quote at a position and the closing one to a word. */
function quoted(line: string, from: number, mark: string, into: number[]): number {
  let at = from + 1;
  while (at < line.length) {
    if (line[at] === mark) {
      if (/\S/.test(line[at + 1] ?? "")) {
        throw new Unbalanced(`The quote at character ${at + 1} must be followed by a space.`);
      }
      return at + 1;
    }
    if (line[at] !== "\\") at = letter(line, at, into);
    else if (mark === '"') at = escaped(line, at, into);
    // Between single quotes, only the quote itself can be escaped.
    else at = letter(line, line[at + 1] === "'" ? at + 1 : at, into);
  }
  throw new Unbalanced(`The quote at character ${from + 1} is not closed.`);
}

function escaped(line: string, at: number, into: number[]): number {
  const hex = /^\\x([0-9a-f]{2})/i.exec(line.slice(at, at + 4))?.[1];
  if (hex) {
    into.push(Number.parseInt(hex, 16));
    return at + 4;
  }
  const next = line[at + 1];
  // A backslash at the end of the line: the caller reports that the quote is not closed.
  if (next === undefined) return at + 1;
  const means = ESCAPES[next];
  if (means === undefined) return letter(line, at + 1, into);
  into.push(means.charCodeAt(0));
  return at + 2;
}
