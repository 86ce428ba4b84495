/** Which page is shown: the fragment says. */
import { signal } from "@preact/signals";

export const PAGES = ["playground", "scripts", "keys", "topology"] as const;
export type Page = (typeof PAGES)[number];

function present(): Page {
  const name = location.hash.replace(/^#\//, "");
  return PAGES.find((page) => page === name) ?? "playground";
}

export const page = signal<Page>(present());

export function go(to: Page): void {
  location.hash = `#/${to}`;
}

export function followAddress(): void {
  addEventListener("hashchange", () => {
    page.value = present();
  });
}
