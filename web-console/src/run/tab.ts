/** Which part of a result is shown. */
import { signal } from "@preact/signals";

export type Tab = "reply" | "calls" | "changes";

export const tab = signal<Tab>("reply");

/** The tab that a dry run replaced; null if the user has chosen one since. */
let before: Tab | null = null;

export function chooseTab(to: Tab): void {
  before = null;
  tab.value = to;
}

/** Opens the changes of a dry run, or its error. The next run opens the tab from before. */
export function tabFor(dry: boolean, failed: boolean): void {
  const usual = before ?? tab.peek();
  before = dry ? usual : null;
  tab.value = !dry ? usual : failed ? "reply" : "changes";
}
