/** The pictures of the documentation: `npm run screenshots`. To be looked at before they are committed. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { launch, open, write } from "./browser";
import { start } from "./server";

const DOCS = join(import.meta.dirname, "../docs");

/** As WebP, which the browser itself can make: a third of the PNG. */
async function keep(browser: Browser, page: Page, name: string): Promise<void> {
  const png = (await page.screenshot()).toString("base64");
  const blank = await browser.newPage();
  const webp = await blank.evaluate(async (png) => {
    const image = new Image();
    image.src = `data:image/png;base64,${png}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), {
      width: image.width,
      height: image.height,
    });
    canvas.getContext("2d")?.drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.92).replace(/^[^,]*,/, "");
  }, png);
  await blank.close();
  writeFileSync(join(DOCS, `${name}.webp`), Buffer.from(webp, "base64"));
}

const [server, browser] = await Promise.all([start(), launch()]);
const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name });

async function example(page: Page, name: string): Promise<void> {
  await button(page, "Examples").click();
  await button(page, `Open with data: ${name}`).click();
  const done = page.getByText("The data was loaded.");
  await done.waitFor();
  await done.waitFor({ state: "detached" });
}

/** Calls and runs in waves, for so many milliseconds. */
async function load(ms: number): Promise<void> {
  const began = performance.now();
  for (let at = 0; performance.now() - began < ms; at++) {
    const wave = 1.2 + Math.sin(at / 60);
    const script = "return redis.call('SET', KEYS[1], ARGV[1], 'EX', 20)";
    await server.command("EVAL", script, 1, `load:${at}`, "x".repeat(200));
    for (let call = 0; call < 3 * wave; call++) await server.command("GET", `load:${at - call}`);
    await new Promise((resolve) => setTimeout(resolve, 60 / wave));
  }
}

async function picture(
  name: string,
  options: BrowserContextOptions,
  show: (page: Page) => Promise<void>,
): Promise<void> {
  const size = { viewport: { width: 1280, height: 780 } };
  const { page, close } = await open(browser, server.url, { ...size, ...options });
  await show(page);
  await keep(browser, page, name);
  await close();
}

await picture("dry-run", { colorScheme: "light" }, async (page) => {
  await example(page, "Reliable queue");
  await button(page, "Dry run").click();
  await page.getByRole("tab", { name: "Changes 2" }).click();
});

await picture("calls", { colorScheme: "dark" }, async (page) => {
  await example(page, "Leaderboards over rooms");
  for (let runs = 0; runs < 3; runs++) {
    await button(page, /^Run/).click();
    await page.getByRole("tab", { name: "Calls 4" }).click();
  }
});

await picture("step", { colorScheme: "light" }, async (page) => {
  await example(page, "Reliable queue");
  await button(page, /^Step/).click();
  for (let calls = 1; calls < 5; calls++) {
    await page.getByText(`Before call ${calls} of`).waitFor();
    await button(page, "Next").click();
  }
  await page.getByText("Before call 5 of").waitFor();
});

await picture("completion", { colorScheme: "dark" }, async (page) => {
  await write(page, "");
  await page.keyboard.type("local best = redis.call('zr");
  await page.getByText("writes").waitFor();
});

await picture("keys", { colorScheme: "light" }, async (page) => {
  for (const room of ["east", "west"]) await server.command("SET", `room:${room}:name`, `The ${room} room`);
  await server.command("HSET", "user:1:profile", "name", "Ada", "city", "London");
  await server.command("SET", "user:1:session", "opened", "EX", 3600);
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByLabel("Tree").check();
  await button(page, /room:/).first().click();
  await button(page, /user:1:/)
    .first()
    .click();
  await page.getByRole("link", { name: "room:east", exact: true }).click();
  await page.getByText("in memory").waitFor();
});

await picture("command-line", { colorScheme: "dark" }, async (page) => {
  await page.getByRole("link", { name: "Command line" }).click();
  for (const [line, sign] of [
    ['SET greeting "hello, world" EX 60', "OK"],
    ["HGETALL user:1:profile", "London"],
    ["LPUSH greeting x", "WRONGTYPE"],
    ["ZRANGE room:east 0 1 REV WITHSCORES", "double"],
  ] as const) {
    await page.getByLabel("Command", { exact: true }).fill(line);
    await page.keyboard.press("Enter");
    await page.getByRole("log").getByText(sign).first().waitFor();
  }
});

await picture("metrics", { colorScheme: "light" }, async (page) => {
  await page.getByRole("link", { name: "Metrics" }).click();
  await load(100_000);
});

await picture("phone", { colorScheme: "dark", viewport: { width: 390, height: 780 } }, async (page) => {
  await example(page, "Reliable queue");
  for (let runs = 0; runs < 3; runs++) {
    await button(page, "Dry run").click();
    await page.getByRole("tab", { name: "Calls 7" }).click();
  }
});

await browser.close();
await server.stop();
