/** Which call of the server the cursor is in: enough of Lua's lexis to tell strings, comments and brackets apart. */

export interface CallAt {
  /** As `redis.call`. */
  callee: string;
  /** What is known of the arguments before the cursor; null if one is not a plain string. */
  args: (string | null)[];
  /** Which argument the cursor is in, from 0. */
  index: number;
  /** Where the cursor's string begins, behind its quote; null if the cursor is in none. */
  stringFrom: number | null;
}

interface Open {
  callee: string | null;
  args: (string | null)[];
  /** Whether the present argument has more than one token. */
  tokens: number;
  present: string | null;
}

const CALLEE = /(?:redis|server)\.(?:call|pcall|acall|apcall)$/;

/** Words that begin, divide or end statements: where one of them is, a call before it was not closed. */
const STATEMENT = /^(?:break|do|else|elseif|end|for|goto|if|in|local|repeat|return|then|until|while)$/;

/** The call around `pos`, which is nothing outside of `redis.call` and its relatives. */
export function callAt(text: string, pos: number): CallAt | null {
  const stack: Open[] = [];
  let [at, name, stringFrom] = [0, "", null as number | null];
  const token = (value: string | null) => {
    const top = stack.at(-1);
    if (!top) return;
    top.tokens += 1;
    top.present = top.tokens === 1 ? value : null;
  };
  while (at < pos) {
    const rest = text.slice(at, at + 2);
    const letter = rest[0] ?? "";
    const long = /^\[(=*)\[/.exec(text.slice(at, at + 20));
    if (rest === "--") {
      const block = /^--\[(=*)\[/.exec(text.slice(at, at + 20));
      const end = block ? text.indexOf(`]${block[1]}]`, at) : text.indexOf("\n", at);
      if (end < 0 || end >= pos) return null;
      at = block ? end + 2 + (block[1]?.length ?? 0) : end + 1;
    } else if (letter === '"' || letter === "'") {
      const end = endOfString(text, at);
      if (end >= pos) {
        stringFrom = at + 1;
        break;
      }
      token(text.slice(at + 1, end));
      at = end + 1;
      name = "";
    } else if (long) {
      const close = `]${long[1]}]`;
      const end = text.indexOf(close, at);
      if (end < 0 || end >= pos) return null;
      token(null);
      at = end + close.length;
      name = "";
    } else if ("({[".includes(letter)) {
      const callee = letter === "(" ? (CALLEE.exec(name)?.[0] ?? null) : null;
      token(null);
      stack.push({ callee, args: [], tokens: 0, present: null });
      [at, name] = [at + 1, ""];
    } else if (")}]".includes(letter)) {
      stack.pop();
      [at, name] = [at + 1, ""];
    } else if (letter === ",") {
      const top = stack.at(-1);
      if (top) {
        top.args.push(top.present);
        [top.tokens, top.present] = [0, null];
      }
      [at, name] = [at + 1, ""];
    } else if (/[\w.]/.test(letter)) {
      const word = /^[\w.]+/.exec(text.slice(at, at + 200))?.[0] ?? letter;
      name = word;
      if (STATEMENT.test(word)) stack.length = 0;
      token(null);
      at += word.length;
    } else {
      if (!/\s/.test(letter)) {
        token(null);
        name = "";
      }
      at += 1;
    }
  }
  const top = stack.at(-1);
  if (!top?.callee) return null;
  return { callee: top.callee, args: top.args, index: top.args.length, stringFrom };
}

/** Where a quoted string ends: its quote, or the end of its line. */
function endOfString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === text[from] || text[at] === "\n") return at;
  }
  return text.length;
}

/** The parts of a command's syntax that stand for an argument each, outermost brackets together. */
export function syntaxParts(syntax: string): string[] {
  const parts: string[] = [];
  let [depth, part] = [0, ""];
  for (const letter of syntax) {
    if ("[<(".includes(letter)) depth += 1;
    if ("]>)".includes(letter)) depth -= 1;
    if (letter === " " && depth === 0) {
      if (part) parts.push(part);
      part = "";
    } else part += letter;
  }
  if (part) parts.push(part);
  return parts;
}

/**
 * Which part of a command's syntax the argument behind those that are given stands for. Options come in any order before the
 * next argument that is required, and are known by their words.
 */
export function presentPart(parts: string[], given: (string | null)[]): number {
  // The next part, the first of the options that may still come, and the part that wants more arguments.
  let [next, options, open, wanted] = [0, 0, 0, 0];
  for (const argument of given) {
    if (wanted > 0) {
      wanted -= 1;
      continue;
    }
    const word = argument?.toUpperCase() ?? "";
    const named = partWithWord(parts, options, word);
    const at = named ?? parts.findIndex((part, at) => at >= next && !isOption(part));
    const part = parts[at];
    if (part === undefined) continue;
    const repeats = part.includes("...");
    open = at;
    wanted = named === null ? (repeats ? namesAtStart(part.slice(1)) - 1 : 0) : valuesAfter(part, word);
    next = repeats ? at : at + 1;
    if (!part.startsWith("[")) options = at + 1;
  }
  return Math.min(wanted > 0 ? open : next, parts.length - 1);
}

/** The part with this word among the options from `from` on and the part behind them. */
function partWithWord(parts: string[], from: number, word: string): number | null {
  for (let at = from; at < parts.length; at++) {
    const part = parts[at] ?? "";
    if (syntaxWords(part).includes(word)) return at;
    if (!part.startsWith("[")) return null;
  }
  return null;
}

/** Whether a part may be left out, and begins with a word if it is not. */
function isOption(part: string): boolean {
  return /^\[<?[A-Z][A-Z0-9]/.test(part);
}

/** How many arguments a word of a part is followed by at least. */
function valuesAfter(part: string, word: string): number {
  const after = part
    .slice(part.search(new RegExp(`\\b${word}\\b`)) + word.length)
    // Words that may stand in its place, and signs that may be left out.
    .replace(/^(?: \| [A-Z0-9]+)*>/, "")
    .replace(/^ \[= \| ~\]/, "");
  return namesAtStart(after.trimStart());
}

function namesAtStart(text: string): number {
  return /^(?:[a-z][\w-]*(?: |\]|$))*/.exec(text)?.[0].match(/[a-z][\w-]*/g)?.length ?? 0;
}

/** Words of a syntax that are written as they are, such as EX and NX. */
export function syntaxWords(syntax: string): string[] {
  return [...new Set(syntax.match(/\b[A-Z][A-Z0-9]+\b/g) ?? [])];
}
