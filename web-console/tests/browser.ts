/** The system's Chromium, if there is one. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const places = [
  process.env.CHROMIUM ?? "",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
];

/** A name of this machine that the browser does not know to be this machine. */
export const HOST = "shard.test";

/** Nothing if there is none: then tests that need it are skipped. */
export const chromiumPath = places.find((path) => path !== "" && existsSync(path));

export function launch(): Promise<Browser> {
  // Root has no sandbox of Chromium; what is shown here is our own.
  const args = ["--no-sandbox", `--host-resolver-rules=MAP ${HOST} 127.0.0.1`];
  return chromium.launch({ executablePath: chromiumPath ?? "", args });
}

/** A page that notes what it should not do: errors, broken policies, requests to foreign hosts. */
export interface Watched {
  page: Page;
  faults: string[];
  close(): Promise<void>;
}

export async function open(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
  prepare?: (page: Page, faults: string[]) => Promise<void>,
): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (
      url !== "about:blank" &&
      origin !== new URL(url).origin &&
      protocol !== "data:" &&
      protocol !== "blob:"
    ) {
      faults.push(`foreign: ${request.url()}`);
    }
  });
  await page.exposeFunction("fault", (text: string) => faults.push(text));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      (globalThis as unknown as { fault(text: string): void }).fault(`policy: ${event.violatedDirective}`);
    });
  });
  await prepare?.(page, faults);
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}

/** Replaces the text of the script. */
export async function write(page: Page, script: string): Promise<void> {
  const editor = page.getByRole("textbox", { name: "Script" });
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("Delete");
  await page.keyboard.insertText(script);
}

export const button = (page: Page, name: string | RegExp) =>
  page.getByRole("button", { name, exact: typeof name === "string" });

/** Waits until something is there, or so. */
export async function until<T>(is: () => Promise<T | false | null>): Promise<T> {
  const started = performance.now();
  while (performance.now() - started < 60_000) {
    const found = await is();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail("it did not come to that");
}
