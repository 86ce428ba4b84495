/** Which page is shown, and what on it: the fragment of the address says. */
import { batch, computed, signal } from "@preact/signals";
import { database } from "../api/http";
import { percentDecoded, percentEncoded, type Text } from "../api/text";

export const PAGES = [
  "playground",
  "scripts",
  "functions",
  "keys",
  "command-line",
  "slow-log",
  "metrics",
  "topology",
] as const;
export type Page = (typeof PAGES)[number];

export interface Route {
  page: Page | "missing";
  /** The database, if the address names one. */
  db?: number;
  /** The key that is shown. */
  key?: Text;
  /** The digest of the script, or the name of the library, that is shown. */
  name?: string;
}

export const DATABASES = 16;
/** A new object each time, so that another unknown address is shown, too. */
const missing = (): Route => ({ page: "missing" });

/** What a fragment stands for. Shared scripts (`#s=…`) belong to the playground. */
export function routeOf(fragment: string): Route {
  if (fragment === "" || fragment === "#" || fragment === "#/" || fragment.startsWith("#s=")) {
    return { page: "playground" };
  }
  const [, name = "", rest] = /^#\/([^/]*)(?:\/(.*))?$/s.exec(fragment) ?? [];
  const page = PAGES.find((one) => one === name);
  if (!page) return missing();
  if (rest === undefined || rest === "") return { page };
  if (page === "keys") return keyRoute(rest);
  const pattern = { scripts: /^[0-9a-f]{40}$/i, functions: /^\w+$/ }[page as string];
  return pattern?.test(rest) ? { page, name: page === "scripts" ? rest.toLowerCase() : rest } : missing();
}

/** `DB` or `DB/KEY`. The key may contain slashes, and may be empty. */
function keyRoute(rest: string): Route {
  const [, number, encoded] = /^(\d{1,2})(?:\/(.*))?$/s.exec(rest) ?? [];
  const db = Number(number);
  if (number === undefined || db >= DATABASES) return missing();
  if (encoded === undefined) return { page: "keys", db };
  const key = percentDecoded(encoded);
  return key === null ? missing() : { page: "keys", db, key };
}

export function addressOf({ page, db, key, name }: Route): string {
  const parts: (string | number)[] = [page];
  if (db !== undefined) parts.push(db);
  if (key !== undefined) parts.push(percentEncoded(key));
  if (name !== undefined) parts.push(name);
  return `#/${parts.join("/")}`;
}

/** The address of a key of the selected database. */
export function keyAddress(key: Text): string {
  return addressOf({ page: "keys", db: database.value, key });
}

export const route = signal<Route>({ page: "playground" });
export const page = computed(() => route.value.page);

function follow(): void {
  const now = routeOf(location.hash);
  batch(() => {
    route.value = now;
    if (now.db !== undefined) database.value = now.db;
  });
}

/** Changes the address and what is shown; `replace` leaves no way back to the address before. */
export function go(to: Route, replace = false): void {
  if (replace) history.replaceState(null, "", addressOf(to));
  else history.pushState(null, "", addressOf(to));
  follow();
}

export function followAddress(): void {
  follow();
  addEventListener("hashchange", follow);
}
