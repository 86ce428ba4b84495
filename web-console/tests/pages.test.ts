/** Addresses, and the pages beside the playground, in a browser with a server of its own. */
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { check, VIEWS } from "./axe";
import { button, chromiumPath, launch, open, until, type Watched, write } from "./browser";
import { type Server, start } from "./server";

const skip = chromiumPath ? false : "SKIPPED: there is no Chromium (CHROMIUM names one)";

let server: Server;
let browser: Browser;
let watched: Watched | null = null;

before(async () => {
  if (skip) return;
  [server, browser] = await Promise.all([start(), launch()]);
});

after(async () => {
  if (skip) return;
  await browser.close();
  await server.stop();
});

afterEach(async () => {
  const faults = watched?.faults ?? [];
  await watched?.close();
  watched = null;
  assert.deepEqual(faults, []);
});

async function visit(path: string, options = {}): Promise<Page> {
  watched = await open(browser, server.url + path, options);
  return watched.page;
}

async function empty(): Promise<void> {
  await server.command("FLUSHALL");
  await server.command("FUNCTION", "FLUSH");
}

const link = (page: Page, name: string) => page.getByRole("link", { name, exact: true });
const heading = (page: Page, name: string) => page.getByRole("heading", { name, exact: true });

test("each key has an address, which back and forward go to", { skip }, async () => {
  await empty();
  await server.command("SET", "a/b %#é", "slash");
  await server.command("SET", "other", "value");
  const page = await visit("/#/keys/0/a%2Fb%20%25%23%C3%A9");
  await heading(page, "a/b %#é").waitFor();
  await until(async () => (await page.title()) === "a/b %#é – Keys – Moonshard");
  await link(page, "other").click();
  await heading(page, "other").waitFor();
  assert.equal(new URL(page.url()).hash, "#/keys/0/other");
  await page.goBack();
  await heading(page, "a/b %#é").waitFor();
  await page.goForward();
  await heading(page, "other").waitFor();
  // “Back” does not lead to a key that was deleted.
  await button(page, "Delete").click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Select a key").waitFor();
  assert.equal(new URL(page.url()).hash, "#/keys/0");
  await page.goto(`${server.url}/#/keys/0/other`);
  await page.getByText("Database 0 has no key other").waitFor();
  await server.command("SET", "other", "again");
  await button(page, "Try again").click();
  await heading(page, "other").waitFor();
});

test("the address of a key names its database", { skip }, async () => {
  await empty();
  const page = await visit("/#/keys/5");
  const database = page.getByRole("combobox", { name: "db" });
  assert.equal(await database.inputValue(), "5");
  await button(page, "New key").click();
  await page.getByLabel("Key", { exact: true }).fill("five");
  await button(page, "Make it").click();
  await heading(page, "five").waitFor();
  assert.equal(new URL(page.url()).hash, "#/keys/5/five");
  // Another database has other keys.
  await database.selectOption("0");
  await page.getByText("Database 0 is empty").waitFor();
  assert.equal(new URL(page.url()).hash, "#/keys/0");
  await page.goBack();
  await heading(page, "five").waitFor();
  assert.equal(await database.inputValue(), "5");
});

test("each script has an address", { skip }, async () => {
  const page = await visit("/#/scripts");
  const sha = String(await server.command("SCRIPT", "LOAD", "return 'with an address'"));
  await page.goto(`${server.url}/#/scripts/${sha}`);
  const dialog = page.getByRole("dialog", { name: sha });
  await dialog.getByText("'with an address'").waitFor();
  await button(page, "Close").click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(new URL(page.url()).hash, "#/scripts");
  await page.goBack();
  await dialog.waitFor();
  await page.goto(`${server.url}/#/scripts/${"0".repeat(40)}`);
  await page.getByText("The server knows no script 0000").waitFor();
});

test("an unknown address shows that it is unknown, with a link home", { skip }, async () => {
  const page = await visit("/#/nosuch");
  await page.getByRole("heading", { name: "Page not found" }).waitFor();
  await page.getByText("#/nosuch").waitFor();
  await page.goto(`${server.url}/#/keys/99/x`);
  await page.getByText("#/keys/99/x").waitFor();
  await link(page, "Go to the playground").click();
  await button(page, /^Run/).waitFor();
  await page.goto(`${server.url}/#s=broken`);
  await page.getByText("The address contains no readable script").waitFor();
});

test("a shared script that is opened from another page is shown", { skip }, async () => {
  const page = await visit("/");
  await write(page, "return 'shared'");
  await button(page, "Share").click();
  await page.getByRole("dialog", { name: "Share" }).waitFor();
  const shared = await page.getByLabel("Address").inputValue();
  await page.keyboard.press("Escape");
  await write(page, "return 'another'");
  await page.getByRole("link", { name: "Topology" }).click();
  await heading(page, "Topology").waitFor();
  await page.evaluate((address) => location.assign(address), shared);
  await page.locator(".cm-line", { hasText: "return 'shared'" }).waitFor();
});

test("keys are listed with their types, as a list or as a tree", { skip }, async () => {
  await empty();
  for (const key of ["user:1:name", "user:1:mail", "user:2:name"]) await server.command("SET", key, "x");
  await server.command("HSET", "user", "field", "value");
  await server.command("EXPIRE", "user", 7000);
  await server.command("XADD", "log:events", "1-1", "kind", "login");
  const page = await visit("/#/keys");
  const list = page.getByRole("list", { name: "Keys" });
  await list
    .getByRole("listitem")
    .filter({ hasText: /^user1 h *hash$/ })
    .waitFor();
  assert.equal(await list.getByRole("link").count(), 5);
  await page.getByLabel("Tree").check();
  assert.equal(await list.getByRole("link").count(), 1);
  await list.getByRole("button", { name: "user: 3" }).click();
  await list.getByRole("button", { name: "1: 2" }).click();
  await link(page, "user:1:name").click();
  await heading(page, "user:1:name").waitFor();
  // The branches above the key of the address are open.
  await page.goto(`${server.url}/#/keys/0/log%3Aevents`);
  await page.reload();
  await link(page, "log:events").waitFor();
  await page.getByRole("row", { name: "1-1 kind login" }).waitFor();
  await page.getByLabel("List", { exact: true }).check();
  await link(page, "user:2:name").waitFor();
});

const LIBRARY = `#!lua name=shop
redis.register_function{function_name='price', callback=function() return 1 end, flags={'no-writes'},
  description='what it costs'}
redis.register_function('buy', function() return 2 end)`;

test("libraries of functions are shown and deleted", { skip }, async () => {
  await empty();
  const page = await visit("/#/functions");
  await page.getByText("No libraries").waitFor();
  await server.command("FUNCTION", "LOAD", LIBRARY);
  await button(page, "Reload").click();
  await page.getByRole("row", { name: /shop.*buy.*price|shop.*price.*buy/ }).waitFor();
  await link(page, "shop").click();
  const dialog = page.getByRole("dialog", { name: "shop" });
  await dialog.getByRole("textbox", { name: "Code of the library" }).waitFor();
  await dialog.getByText("what it costs", { exact: true }).waitFor();
  await dialog.getByText("no-writes", { exact: true }).waitFor();
  await button(page, "Close").click();
  await dialog.waitFor({ state: "detached" });
  // Closing the confirmation deletes nothing.
  await button(page, "Delete shop").click();
  await page.getByRole("dialog", { name: "Delete this library?" }).waitFor();
  await page.keyboard.press("Escape");
  await page.goto(`${server.url}/#/functions/shop`);
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page
    .getByRole("dialog", { name: "Delete this library?" })
    .getByRole("button", { name: "Delete" })
    .click();
  await page.getByText("No libraries").waitFor();
  assert.deepEqual(await server.command("FUNCTION", "LIST"), []);
  await page.goto(`${server.url}/#/functions/shop`);
  await page.getByText("The server has no library shop").waitFor();
});

test("slow calls are listed, and the list is reset", { skip }, async () => {
  await server.command("CONFIG", "SET", "slowlog-log-slower-than", 0);
  await server.command("SET", "slow key", "x y");
  await server.command("CONFIG", "SET", "slowlog-log-slower-than", 60_000_000);
  const page = await visit("/#/slow-log");
  await page.getByText("Calls that take at least 60 s are listed").waitFor();
  await page.getByRole("row", { name: 'SET "slow key" "x y"' }).waitFor();
  await button(page, "Reset").click();
  await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
  await page.getByText("No slow calls").waitFor();
  assert.equal(await server.command("SLOWLOG", "LEN"), 0);
});

test("metrics are live", { skip }, async () => {
  await empty();
  await server.command("MSET", "a", 1, "b", 2);
  const page = await visit("/#/metrics");
  const figure = (name: string) => page.getByRole("article").filter({ has: heading(page, name) });
  const now = async (name: string) => Number(await figure(name).locator(".figure-now").textContent());
  await until(async () => (await now("Keys")) === 2);
  await until(async () => (await now("Connected clients")) >= 1);
  await until(async () => {
    for (let at = 0; at < 20; at++) await server.command("EVAL", "return 1", 0);
    return (await now("Calls per second")) > 5 && (await now("Script runs per second")) > 5;
  });
  await page.getByRole("img", { name: /^Keys: now 2, at most 2$/ }).waitFor();
  await server.command("DEL", "a");
  await until(async () => (await now("Keys")) === 1);
});

test("metrics are asked for only while they are seen", { skip }, async () => {
  const page = await visit("/#/metrics");
  let asked = 0;
  page.on("request", (request) => {
    if (request.postData()?.includes("INFO")) asked += 1;
  });
  await until(async () => asked >= 2);
  const hide = (hidden: boolean) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  const before = asked;
  await page.waitForTimeout(2500);
  assert.equal(asked, before);
  await hide(false);
  await until(async () => asked > before);
  await page.getByRole("link", { name: "Topology" }).click();
  await heading(page, "Topology").waitFor();
  const after = asked;
  await page.waitForTimeout(2500);
  assert.equal(asked, after);
});

test("dry runs of an older history are known as such", { skip }, async () => {
  const page = await visit("/");
  await page.evaluate(() => {
    const old = { at: 1, outcome: "dry run", ok: true, draft: { script: "return 'old'" } };
    localStorage.setItem("moonshard.history", JSON.stringify([old, { at: 2 }, null]));
  });
  await page.reload();
  await button(page, "History").click();
  const runs = page.locator(".history:not(.drafts) li");
  await runs.first().waitFor();
  assert.deepEqual(await runs.locator(".badge").allTextContents(), ["ok", "dry run"]);
});

test("commands are typed, answered and brought back", { skip }, async () => {
  await empty();
  const page = await visit("/#/command-line");
  const [prompt, log] = [page.getByLabel("Command", { exact: true }), page.getByRole("log")];
  const type = async (line: string) => {
    await prompt.fill(line);
    await page.keyboard.press("Enter");
  };
  await type('SET "a key" "it\'s\\x21"');
  await log.getByText("OK", { exact: true }).waitFor();
  assert.equal(await server.command("GET", "a key"), "it's!");
  await type("LPUSH 'a key' x");
  await log.getByText("WRONGTYPE Operation against").waitFor();
  await type("GET 'a key");
  await log.getByText("The quote at character 5 is not closed.").waitFor();
  await type("GET 'a key'");
  await log.getByText("it's!", { exact: true }).waitFor();
  await page.getByLabel("RESP", { exact: true }).check();
  await log.getByText("$5\\r\\n").waitFor();
  await page.getByLabel("Tree", { exact: true }).check();

  // The arrow keys bring lines back, also after a reload, but none with a password.
  await type("AUTH sesame");
  await log.getByText("not shown, because it may contain a password").waitFor();
  await log.getByText("AUTH has no effect here").waitFor();
  await page.reload();
  await prompt.fill("PI");
  const after = async (key: string) => {
    await prompt.press(key);
    return prompt.inputValue();
  };
  assert.equal(await after("ArrowUp"), "GET 'a key'");
  assert.equal(await after("ArrowUp"), "GET 'a key");
  assert.equal(await after("ArrowDown"), "GET 'a key'");
  assert.equal(await after("ArrowDown"), "PI");
  assert.doesNotMatch(await page.evaluate(() => JSON.stringify(localStorage)), /sesame/);

  await type("SELECT 4");
  await page.locator(".badge", { hasText: "db 4" }).waitFor();
  await type("SET four 4");
  await until(async () => (await log.getByText("OK", { exact: true }).count()) === 2);
  assert.equal(await server.command("EXISTS", "four"), 0);
  await type("SELECT 44");
  await log.getByText("There are databases 0 to 15.").waitFor();
  await type("BLPOP nothing 0");
  await button(page, "Cancel").click();
  await log.getByText("You cancelled the command.").waitFor();
  await type("clear");
  await page.getByText("No commands yet").waitFor();
  await button(page, "Clear history").click();
  assert.equal(await after("ArrowUp"), "");
});

test("tabs share the history of runs", { skip }, async () => {
  const first = await visit("/");
  const second = await first.context().newPage();
  await second.goto(server.url);
  for (const [page, name] of [
    [first, "one"],
    [second, "two"],
    [first, "three"],
  ] as const) {
    await write(page, `return '${name}'`);
    await button(page, /^Run/).click();
    await page.getByRole("region", { name: "Result" }).getByText(name, { exact: true }).waitFor();
  }
  await button(second, "History").click();
  const runs = second.locator(".history:not(.drafts) code");
  await until(async () => (await runs.count()) === 3);
  assert.deepEqual(await runs.allTextContents(), ["return 'three'", "return 'two'", "return 'one'"]);
});

for (const { colorScheme, width } of VIEWS) {
  test(`axe finds nothing on the other pages: ${colorScheme}, ${width} wide`, { skip }, async () => {
    await empty();
    await server.command("FUNCTION", "LOAD", LIBRARY);
    await server.command("SET", "user:1", "x", "EX", 100);
    await server.command("XADD", "log:events", "1-1", "kind", "login");
    await server.command("CONFIG", "SET", "slowlog-log-slower-than", 0);
    await server.command("SET", "key", "value");
    await server.command("CONFIG", "SET", "slowlog-log-slower-than", 10_000);
    const page = await visit("/#/nosuch", { colorScheme, viewport: { width, height: 860 }, bypassCSP: true });
    const see = async (address: string, sign: string) => {
      await page.goto(`${server.url}/${address}`);
      await page.getByText(sign).first().waitFor();
      await check(page, address);
    };
    await see("#/nosuch", "Page not found");
    await see("#/functions", "price");
    await see("#/functions/nosuch", "The server has no library");
    await see("#/functions/shop", "what it costs");
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await check(page, "deletion of a library");
    await see("#/slow-log", "SET key value");
    await button(page, "Reset").click();
    await check(page, "reset of the slow log");
    await see("#/metrics", "at most");
    await see("#/command-line", "No commands yet");
    for (const line of ["HGETALL nothing", "SET key 'value", "GET log:events"]) {
      await page.getByLabel("Command", { exact: true }).fill(line);
      await page.keyboard.press("Enter");
    }
    await see("#/command-line", "WRONGTYPE");
    await see("#/keys", "log:events");
    await page.getByLabel("Tree").check();
    await button(page, "user: 1").click();
    await check(page, "tree of keys");
    await see("#/keys/0/log%3Aevents", "kind");
    await see("#/keys/0/nosuch", "has no key");
    await see(`#/scripts/${"0".repeat(40)}`, "The server knows no script");
    const sha = String(await server.command("SCRIPT", "LOAD", "return 1"));
    await see(`#/scripts/${sha}`, "Open in the playground");
  });
}
