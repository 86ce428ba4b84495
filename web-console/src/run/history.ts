/** Runs of the past, kept by this browser. All tabs share them. */
import { signal } from "@preact/signals";
import { type Draft, readDraft } from "./state";

export interface Entry {
  at: number;
  /** In a few words. */
  outcome: string;
  ok: boolean;
  dry: boolean;
  draft: Draft;
}

const KEPT = "moonshard.history";
const MOST = 50;
/** The outcome of dry runs in histories from before entries had `dry`. */
const DRY = "dry run";

function entryOf(value: unknown): Entry[] {
  const given = (value ?? {}) as Partial<Entry>;
  const draft = readDraft(given.draft);
  if (!draft) return [];
  const [at, outcome] = [Number(given.at) || 0, String(given.outcome)];
  const dry = given.dry === true || outcome === DRY;
  return [{ at, outcome: outcome === DRY ? "ok" : outcome, ok: given.ok === true, dry, draft }];
}

/** Null if the browser keeps nothing. */
function read(): Entry[] | null {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return (Array.isArray(list) ? list : []).flatMap(entryOf);
  } catch {
    return null;
  }
}

export const history = signal<Entry[]>(read() ?? []);

/** Whether the storage has all entries. */
let kept = true;

/** Reads what other tabs have added. */
export function readHistory(): void {
  if (kept) history.value = read() ?? history.value;
}

/** Stores as many entries as there is room for; the others last until the page is closed. */
function write(entries: Entry[]): void {
  history.value = entries;
  for (let most = entries.length; ; most = Math.floor(most / 2)) {
    try {
      localStorage.setItem(KEPT, JSON.stringify(entries.slice(0, most)));
      kept = most === entries.length;
      return;
    } catch {
      kept = false;
      if (most === 0) return;
    }
  }
}

/** Whether an entry replaces another. A dry run does not replace a real run. */
function isSame(one: Entry, other: Entry): boolean {
  return one.dry === other.dry && JSON.stringify(one.draft) === JSON.stringify(other.draft);
}

/** Adds a run; the same again takes the place of its last time. */
export function remember(entry: Entry): void {
  readHistory();
  write([entry, ...history.value.filter((other) => !isSame(entry, other))].slice(0, MOST));
}

export function forgetAll(): void {
  write([]);
}
