/** Looks for what keeps people from using a page. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Axe {
  run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
}

/** Themes and widths that each page is looked at in. */
export const VIEWS = (["light", "dark"] as const).flatMap((colorScheme) =>
  [1360, 390].map((width) => ({ colorScheme, width })),
);

/** Finds nothing on the page as it is. The page's policy would not let axe in: it has to be bypassed. */
export async function check(page: Page, place: string): Promise<void> {
  await page.evaluate(axe);
  const look = () => page.evaluate(() => (globalThis as unknown as { axe: Axe }).axe.run());
  // It fails itself if an element leaves the page meanwhile.
  const { violations } = await look().catch(look).catch(look);
  const told = violations.map(
    ({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => node.html.slice(0, 150))}`,
  );
  assert.deepEqual(told, [], place);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${place} is ${overflow} pixels too wide`);
}
