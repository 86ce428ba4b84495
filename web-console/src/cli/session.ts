/** Commands that were typed, and their replies. */
import { signal } from "@preact/signals";
import { database, Problem, rawCommand } from "../api/http";
import { shown, type Text } from "../api/text";
import { type Reply, readReply } from "../run/reply";
import { DATABASES } from "../ui/route";
import { isSecret, keepLine } from "./lines";
import { wordsOf } from "./words";

export interface Exchange {
  id: number;
  /** The database that was selected. */
  db: number;
  line: string;
  /** Null while the command runs, and if it was not answered. */
  reply: { reply: Reply; raw: Uint8Array } | null;
  /** Why there is no reply. */
  trouble: string | null;
}

export const exchanges = signal<Exchange[]>([]);
/** The command that waits for its reply. */
export const waiting = signal<AbortController | null>(null);

/** The log is cut to this many exchanges. */
const MOST = 100;
/** Shown instead of a line with a password. */
const HIDDEN = "(not shown, because it may contain a password)";

const NO_AUTH =
  "AUTH has no effect here: each command is a request of its own. The console asks for a password when the server requires one.";

const OK = new TextEncoder().encode("+OK\r\n");

let lastId = 0;

export function clear(): void {
  exchanges.value = [];
}

export function cancel(): void {
  waiting.value?.abort();
}

/** Runs what was typed. */
export async function send(line: string): Promise<void> {
  if (waiting.value) return;
  const made = parse(line);
  if (made.words?.length === 0) return;
  const secret = isSecret(made.words ?? line.split(/\s+/));
  if (!secret) keepLine(line);
  if (made.words?.length === 1 && nameOf(made.words) === "clear") return clear();
  const id = ++lastId;
  const first = { id, db: database.value, line: secret ? HIDDEN : line, reply: null, trouble: made.trouble };
  exchanges.value = [...exchanges.value, first].slice(-MOST);
  if (made.words === null) return;
  const abort = new AbortController();
  waiting.value = abort;
  const answer = await ask(made.words, abort.signal).finally(() => {
    waiting.value = null;
  });
  exchanges.value = exchanges.value.map((one) => (one.id === id ? { ...one, ...answer } : one));
}

const nameOf = (words: Text[]) => shown(words[0] ?? "").toLowerCase();

function parse(line: string): { words: Text[]; trouble: null } | { words: null; trouble: string } {
  try {
    return { words: wordsOf(line), trouble: null };
  } catch (error) {
    return { words: null, trouble: messageOf(error) };
  }
}

async function ask(words: Text[], signal: AbortSignal): Promise<Pick<Exchange, "reply" | "trouble">> {
  try {
    if (nameOf(words) === "auth") throw new Error(NO_AUTH);
    const raw = select(words) ?? (await rawCommand(words, signal));
    return { reply: { reply: readReply(raw), raw }, trouble: null };
  } catch (error) {
    return { reply: null, trouble: signal.aborted ? "You cancelled the command." : messageOf(error) };
  }
}

/** SELECT changes the database of the console, which each request names. Null for other commands. */
function select(words: Text[]): Uint8Array | null {
  const db = Number(shown(words[1] ?? ""));
  if (nameOf(words) !== "select" || words.length !== 2) return null;
  if (!Number.isInteger(db) || db < 0 || db >= DATABASES) {
    throw new Error(`There are databases 0 to ${DATABASES - 1}.`);
  }
  database.value = db;
  return OK;
}

function messageOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return error instanceof Error ? error.message : String(error);
}
