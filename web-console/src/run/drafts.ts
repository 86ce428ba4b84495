/** What is typed, kept by this browser when the tab is closed. Each tab has a draft of its own. */
import { effect, signal } from "@preact/signals";
import { type Draft, draft, readDraft } from "./state";

export interface Kept {
  tab: string;
  /** When it was last changed. */
  at: number;
  draft: Draft;
}

/** Keys in `localStorage` begin with this, followed by the tab. */
const KEPT = "moonshard.draft.";
/** Names the tab for as long as it lives. */
const TAB = "moonshard.tab";
/** How many drafts are kept, and how long they may be together; the oldest are dropped. */
export const MOST = 20;
const MOST_LETTERS = 1_000_000;

/** Drafts that are kept, the newest first. */
export const drafts = signal<Kept[]>([]);

/** Random, because names of tabs meet in one storage. There may be no `randomUUID`: it requires TLS. */
function newTab(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(36)).join("");
}

function ownTab(): string {
  const tab = sessionStorage.getItem(TAB) ?? newTab();
  sessionStorage.setItem(TAB, tab);
  return tab;
}

function read(name: string): Kept | null {
  try {
    const value = JSON.parse(localStorage.getItem(name) ?? "null") as Partial<Kept> | null;
    const draft = readDraft(value?.draft);
    return draft && { tab: name.slice(KEPT.length), at: Number(value?.at) || 0, draft };
  } catch {
    return null;
  }
}

/** Reads what all tabs have kept, and drops what is too much. */
export function readDrafts(): void {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(KEPT));
  const all = names.flatMap((name) => read(name) ?? []).sort((one, other) => other.at - one.at);
  let letters = 0;
  const fits = all.filter(({ tab }, at) => {
    letters += localStorage.getItem(KEPT + tab)?.length ?? 0;
    return at === 0 || (at < MOST && letters <= MOST_LETTERS);
  });
  const kept = new Set(fits.map(({ tab }) => KEPT + tab));
  for (const name of names) if (!kept.has(name)) localStorage.removeItem(name);
  drafts.value = fits;
}

/** The draft of this tab, or the newest one in a new tab. */
export function lastDraft(): Draft | null {
  try {
    readDrafts();
    const own = drafts.value.find(({ tab }) => tab === sessionStorage.getItem(TAB));
    return (own ?? drafts.value[0])?.draft ?? null;
  } catch {
    // The browser keeps nothing.
    return null;
  }
}

/** Keeps the draft from its first change on. */
export function keepDraft(): void {
  const tab = ownTab();
  let last = JSON.stringify(draft.peek());
  effect(() => {
    const now = draft.value;
    const text = JSON.stringify(now);
    if (text === last) return;
    last = text;
    const entry = JSON.stringify({ at: Date.now(), draft: now });
    try {
      localStorage.setItem(KEPT + tab, entry);
    } catch {
      // The storage is full: old drafts make room, or this one is lost with the tab.
      const others = drafts.peek().filter((other) => other.tab !== tab);
      for (const other of others) localStorage.removeItem(KEPT + other.tab);
      try {
        localStorage.setItem(KEPT + tab, entry);
      } catch {
        // It is too long to be kept.
      }
    }
  });
}

export function forgetDraft(tab: string): void {
  localStorage.removeItem(KEPT + tab);
  readDrafts();
}

export function forgetDrafts(): void {
  for (const { tab } of drafts.value) localStorage.removeItem(KEPT + tab);
  readDrafts();
}
