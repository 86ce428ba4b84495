/** Runs of the past, kept by this browser. */
import { signal } from "@preact/signals";
import { type Draft, readDraft } from "./state";

export interface Entry {
  at: number;
  /** In a few words. */
  outcome: string;
  ok: boolean;
  draft: Draft;
}

const KEPT = "moonshard.history";
const MOST = 50;

function read(): Entry[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return (Array.isArray(list) ? list : []).flatMap((entry: Partial<Entry>) => {
      const draft = readDraft(entry.draft);
      return draft
        ? [{ at: Number(entry.at), outcome: String(entry.outcome), ok: entry.ok === true, draft }]
        : [];
    });
  } catch {
    return [];
  }
}

export const history = signal<Entry[]>(read());

function write(entries: Entry[]): void {
  history.value = entries;
  try {
    localStorage.setItem(KEPT, JSON.stringify(entries));
  } catch {
    // The browser has no more room, or keeps nothing: then it is forgotten with the page.
  }
}

/** Adds a run; the same again takes the place of its last time. */
export function remember(entry: Entry): void {
  const same = JSON.stringify(entry.draft);
  write([entry, ...history.value.filter((other) => JSON.stringify(other.draft) !== same)].slice(0, MOST));
}

export function forgetAll(): void {
  write([]);
}
