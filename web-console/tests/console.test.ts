/** The console in a browser, with a server of its own. */
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import type { Run } from "../src/api/types";
import { check, VIEWS } from "./axe";
import { button, chromiumPath, HOST, launch, open, until, type Watched, write } from "./browser";
import { type Server, start, startStore } from "./server";

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

async function visit(path = "/", options = {}): Promise<Page> {
  await server.command("FLUSHALL");
  watched = await open(browser, server.url + path, options);
  return watched.page;
}

const key = (page: Page, name: string) => page.getByRole("link", { name, exact: true });
const result = (page: Page) => page.getByRole("region", { name: "Result" });

test("the first run on an empty server answers", { skip }, async () => {
  const page = await visit();
  await button(page, /^Run/).click();
  await result(page).getByText("allowed").waitFor();
  await result(page).getByText("5 calls").waitFor();
  await page.getByRole("tab", { name: "Calls 5" }).click();
  await result(page).getByText("ZCARD rate:{alice}").waitFor();
  await page.getByRole("tab", { name: "Changes 1" }).click();
  await result(page).getByText("created").waitFor();
  await page.getByRole("tab", { name: "Reply" }).click();
  await page.getByLabel("RESP", { exact: true }).check();
  await result(page).getByText("*3\\r\\n").waitFor();
  await page.getByLabel("JSON", { exact: true }).check();
  await result(page).getByText('"allowed"').waitFor();
});

test("all examples run", { skip }, async () => {
  const page = await visit();
  await button(page, "Examples").click();
  await page.getByRole("dialog").waitFor();
  const names = await page.getByRole("dialog").getByRole("heading", { level: 3 }).allTextContents();
  assert.equal(names.length, 7);
  await page.keyboard.press("Escape");
  for (const name of names) {
    await button(page, "Examples").click();
    await page.getByRole("dialog").waitFor();
    const prepared = button(page, `Open with data: ${name}`);
    const plain = button(page, `Open ${name}`);
    await ((await prepared.count()) > 0 ? prepared : plain).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await button(page, /^Run/).click();
    await result(page).getByText("ok", { exact: true }).waitFor();
    const tree = (await result(page).locator(".tree").textContent()) ?? "";
    assert.doesNotMatch(tree, /EMPTY|refused/, name);
  }
});

test("an error is marked on its line, while it is typed and when it is run", { skip }, async () => {
  const page = await visit();
  await write(page, "local a = 1\nlocal b = = 2\nreturn a");
  const marked = page.locator(".cm-lintRange-error");
  await marked.getByText("= 2").waitFor();
  await write(page, "local a = 1\n\nreturn nosuch");
  await marked.waitFor({ state: "detached" });
  await button(page, /^Run/).click();
  await result(page).getByText("nonexistent global variable").waitFor();
  await result(page).getByText("Variables must be local").waitFor();
  await marked.getByText("nosuch").waitFor();
  await button(page, "Go to line 3").click();
  await page.locator(".cm-activeLine", { hasText: "return nosuch" }).waitFor();
});

test("an error is marked without the server, unless only Lua 5.4 objects", { skip }, async () => {
  const page = await visit();
  const marked = page.locator(".cm-lintRange-error");
  await page.route("**/v1/check", (route) => route.abort());
  await write(page, "local a = 1\nlocal b = = 2\nreturn a");
  await marked.getByText("= 2").waitFor();
  await write(page, "return '\\.'");
  await marked.waitFor({ state: "detached" });
});

test("editing breaks no policy", { skip }, async () => {
  const page = await visit();
  const log: string[] = [];
  page.on("console", (message) => {
    // Checks of half a text are answered with 400, which the browser logs, too.
    if (message.text().includes("Content Security Policy")) log.push(message.text());
  });
  await write(page, "local first = 'one'\n-- a comment\nlocal second = 'two'\nreturn first");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("return 1");
  await page.locator(".cm-line", { hasText: /^return 1$/ }).waitFor();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("(");
  await page.locator(".cm-line", { hasText: /^\(return 1\)$/ }).waitFor();
  // Lines that become one, with and without styled parts, by each way to delete.
  for (const keys of [["Backspace"], ["Delete"], ["Enter"], ["x"], ["ControlOrMeta+x", "ControlOrMeta+v"]]) {
    await write(page, "local a = 'one'\nlocal b = 'two' -- more\nreturn a .. b");
    await page.keyboard.press("ControlOrMeta+Home");
    for (let at = 0; at < 9; at++) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Shift+ArrowDown");
    for (const key of keys) await page.keyboard.press(key);
    await page.keyboard.press("ControlOrMeta+z");
  }
  await page.keyboard.press("ControlOrMeta+Home");
  await page.keyboard.press("End");
  await page.keyboard.press("Delete");
  await page.keyboard.press("ControlOrMeta+End");
  await page.keyboard.press("Home");
  await page.keyboard.press("Backspace");
  assert.deepEqual(log, []);
});

test("a dry run leaves nothing", { skip }, async () => {
  const page = await visit();
  await server.command("SET", "counter", 7);
  await write(page, "redis.call('INCR', 'counter') redis.call('SET', 'new', 'x') return 'done'");
  await button(page, "Dry run").click();
  await result(page).getByText("dry run: rolled back").waitFor();
  // What it is made for is what is shown.
  await page.getByRole("tab", { name: "Changes 2", selected: true }).waitFor();
  await result(page).locator("del", { hasText: "7" }).waitFor();
  await result(page).locator("ins", { hasText: "8" }).waitFor();
  assert.equal(await server.command("GET", "counter"), "7");
  assert.equal(await server.command("EXISTS", "new"), 0);
  await button(page, /^Run/).click();
  await page.getByRole("tab", { name: "Reply", selected: true }).waitFor();
  await page.getByRole("tab", { name: "Changes 2" }).click();
  await result(page).getByText("These changes were made").waitFor();
  assert.equal(await server.command("GET", "counter"), "8");
  // Both are remembered, and each only once.
  await button(page, "Dry run").click();
  await result(page).getByText("dry run: rolled back").waitFor();
  await button(page, "History").click();
  const runs = page.locator(".history:not(.drafts) li");
  await runs.nth(1).waitFor();
  assert.deepEqual(
    await runs.evaluateAll((lines) => lines.map((line) => line.textContent?.includes("dry run"))),
    [true, false],
  );
});

test("a script is stepped through call by call, forward and backward", { skip }, async () => {
  const page = await visit();
  await write(
    page,
    `local list = {1, 'two', {deep = true}}
redis.call('SET', 'a', 'one')
local function read(name)
  local got = redis.call('GET', name)
  return got
end
local seen = read('a')
return seen .. '!'`,
  );
  const variable = (name: string) =>
    page.locator(".locals tr").filter({ has: page.getByText(name, { exact: true }) });
  await button(page, "Step").click();
  await result(page).getByText("This was a dry run").waitFor();
  await result(page).getByText("Before call 1 of 2, in line 2").waitFor();
  await variable("list").getByText("table of 3").waitFor();
  await variable("list").getByText('"two"').waitFor();
  await variable("list").getByText("deep").waitFor();
  await page.locator(".cm-halted", { hasText: "'SET'" }).waitFor();
  assert.equal(await variable("read").count(), 0, "it is declared later");
  // The keyboard goes on, and does not lose its place at the end.
  await button(page, "Next").focus();
  await page.keyboard.press("Enter");
  await result(page).getByText("Before call 2 of 2, in line 4").waitFor();
  await variable("name").getByText('"a"').waitFor();
  await result(page).getByRole("heading", { name: "Called from main chunk line 7" }).waitFor();
  await variable("read").getByText("function").waitFor();
  await page.locator(".cm-halted", { hasText: "'GET'" }).waitFor();
  await result(page).locator(".calls li", { hasText: "SET a one" }).getByText("line 2").waitFor();
  for (let presses = 0; presses < 2; presses++) await page.keyboard.press("Enter");
  await result(page).getByText("The end, after 2 calls").waitFor();
  await result(page).getByText("one!").waitFor();
  await result(page).locator(".change", { hasText: "created" }).getByText("a", { exact: true }).waitFor();
  await page.locator(".cm-halted").waitFor({ state: "detached" });
  assert.equal(await server.command("EXISTS", "a"), 0, "nothing is kept");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Next");
  await button(page, "Previous").click();
  await variable("name").waitFor();
  await button(page, "First").click();
  await result(page).getByText("Before call 1 of 2").waitFor();
  await button(page, "Last").click();
  await result(page).getByText("The end, after 2 calls").waitFor();
  await button(page, "Back to results").click();
  await page.getByRole("tab", { name: "Changes 1" }).waitFor();
  await result(page).getByText("dry run: rolled back").waitFor();
});

test("a script that fails is stepped through to its error", { skip }, async () => {
  const page = await visit();
  await write(page, "local key = 'list'\nredis.call('RPUSH', key, 1)\nreturn redis.call('GET', key)");
  await button(page, "Step").click();
  await button(page, "Last").click();
  await result(page).getByText("WRONGTYPE").first().waitFor();
  await button(page, "Go to line 3").waitFor();
  await button(page, "Previous").click();
  await result(page).getByText("Before call 2 of 2, in line 3").waitFor();
  // The line is that of another script now.
  await page.locator(".cm-halted").waitFor();
  await write(page, "return 1\n\n\n");
  await page.locator(".cm-halted").waitFor({ state: "detached" });
  await button(page, "Step").click();
  await result(page).getByText("The end: there were no calls").waitFor();
});

const ENDLESS = "redis.call('SET', 'half', 'done') while true do end";

test("a run that goes on shows it, and is cancelled and undone", { skip }, async () => {
  const page = await visit();
  await write(page, ENDLESS);
  await button(page, /^Run/).click();
  await result(page).getByText("Running for").waitFor();
  await result(page).getByText("the server measured").waitFor();
  await result(page).getByRole("button", { name: "Cancel" }).click();
  await result(page).getByText("You cancelled the run").waitFor();
  await until(async () => JSON.stringify(await server.command("SCRIPT", "RUNNING")) === "[]");
  assert.equal(await server.command("EXISTS", "half"), 0);
});

test("limits tell what can be done", { skip }, async () => {
  const page = await visit();
  await write(page, ENDLESS);
  await page.getByRole("textbox", { name: "Fuel" }).fill("200000");
  await button(page, /^Run/).click();
  await result(page).getByText("SCRIPTLIMIT", { exact: true }).waitFor();
  await result(page).getByText("The script used all of its fuel and was rolled back").waitFor();
  await page.getByRole("textbox", { name: "Fuel" }).fill("much");
  await button(page, /^Run/).click();
  await page.getByText("Fuel is not a whole number").waitFor();
});

test("the bars show the part of each limit that a run used", { skip }, async () => {
  const page = await visit();
  await write(page, "for i = 1, 1000 do redis.call('SET', 'k', i) end");
  await page.getByRole("textbox", { name: "Fuel" }).fill("1_000_000_000");
  await page.getByRole("textbox", { name: "Time, ms" }).fill("60000");
  await page.getByRole("textbox", { name: "Memory" }).fill("16mb");
  const answered = page.waitForResponse("**/v1/eval");
  await button(page, /^Run/).click();
  const { run } = (await (await answered).json()) as { run: Run };
  for (const [name, part] of [
    ["Fuel", run.fuel / 1e9],
    ["Time", run.microseconds / 60e6],
    ["Memory", run.memory_bytes / 2 ** 24],
  ] as const) {
    const meter = result(page).getByRole("meter", { name });
    const percent = Number(await meter.getAttribute("aria-valuenow"));
    assert.ok(Math.abs(percent - 100 * part) <= 0.05, `${name}: ${percent} % for ${part}`);
  }
});

test("a script is killed from the page of scripts", { skip }, async () => {
  const page = await visit();
  await page.getByRole("link", { name: "Scripts" }).click();
  await page.getByText("Runs that end while this page is open").waitFor();
  const run = fetch(`${server.url}/v1/eval`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ script: ENDLESS, limits: { timeout_ms: 60000 } }),
  });
  await button(page, "Kill").click();
  const answer = await run;
  assert.deepEqual([answer.status, ((await answer.json()) as { code: string }).code], [409, "KILLED"]);
  await page.getByText("No script is running or waiting").waitFor();
  await page.getByRole("listitem").getByText("killed").waitFor();
  // What is known can be looked at, kept, and opened.
  await page.getByRole("region", { name: "Known scripts" }).getByRole("link").first().click();
  await page.getByRole("dialog").getByRole("textbox", { name: "Text of the script" }).waitFor();
  await button(page, "Open in the playground").click();
  await button(page, /^Run/).waitFor();
});

test("keys are found, edited, marked and deleted", { skip }, async () => {
  const page = await visit();
  await server.command("HSET", "user:1", "name", "ada", "city", "x");
  await server.command("RPUSH", "list", "a", "b", "a");
  await server.command("SET", "other", "1");
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByLabel("Part of a key").fill("user");
  await button(page, "Search").click();
  await key(page, "other").waitFor({ state: "detached" });
  await key(page, "user:1").click();
  await button(page, "Edit name").click();
  await page.getByLabel("Value of name").fill("grace");
  await page.keyboard.press("Enter");
  await until(async () => (await server.command("HGET", "user:1", "name")) === "grace");
  await page.getByRole("row", { name: /grace/ }).waitFor();
  await button(page, "Remove city").click();
  await page.getByText("1 element", { exact: true }).waitFor();
  await page.getByLabel("sticky").click();
  await until(async () => (await server.command("OBJECT", "STICKY", "user:1")) === 1);

  await page.getByLabel("Type", { exact: true }).selectOption("list");
  await page.getByLabel("Part of a key").fill("");
  await button(page, "Search").click();
  await key(page, "list").click();
  await button(page, "Remove Element 2").click();
  await page.getByText("2 elements", { exact: true }).waitFor();
  assert.deepEqual(await server.command("LRANGE", "list", 0, -1), ["a", "b"]);
  await button(page, "Delete").click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Select a key").waitFor();
  assert.equal(await server.command("EXISTS", "list"), 0);

  await button(page, "New key").click();
  await page.getByLabel("Key", { exact: true }).fill("made");
  await page.getByRole("dialog").getByLabel("Value").fill("here");
  await button(page, "Make it").click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  const box = page.getByRole("textbox", { name: "Value" });
  assert.equal(await box.inputValue(), "here");
  await box.fill("there");
  await button(page, "Save").click();
  await until(async () => (await server.command("GET", "made")) === "there");
  // It is what the page shows as saved.
  await until(() => button(page, "Save").isDisabled());
  assert.equal(await box.inputValue(), "there");
});

test("a long string is shown from its beginning on", { skip }, async () => {
  const page = await visit();
  await server.command("SETRANGE", "long", 3_000_000, "end");
  await server.command("SETRANGE", "long", 0, "begin");
  await page.getByRole("link", { name: "Keys" }).click();
  await key(page, "long").click();
  await page.getByText("This string has 2.86 MB").waitFor();
  await page.locator("pre", { hasText: "begin" }).waitFor();
  await button(page, "Load all").click();
  await page.getByText("in memory").waitFor();
});

test("what is shared is there after a reload, in another browser, too", { skip }, async () => {
  const page = await visit();
  await write(page, "return 'shared ' .. ARGV[1]");
  await page.getByLabel("Argument 1", { exact: true }).fill("42");
  await button(page, "Share").click();
  const address = await page.getByLabel("Address").inputValue();
  assert.match(address, /#s=/);
  await page.keyboard.press("Escape");
  await page.reload();
  await button(page, /^Run/).click();
  await result(page).getByText("shared 42").waitFor();
  // What is changed afterwards is not what was shared.
  await page.getByLabel("Argument 1", { exact: true }).fill("43");
  await page.reload();
  await button(page, /^Run/).click();
  await result(page).getByText("shared 43").waitFor();
  await watched?.close();
  watched = await open(browser, address);
  await button(watched.page, /^Run/).click();
  await result(watched.page).getByText("shared 42").waitFor();
});

test("commands and their words are completed, and arguments explained", { skip }, async () => {
  const page = await visit();
  await write(page, "");
  await page.keyboard.type("redis.");
  await page.getByRole("option", { name: /^acall/ }).waitFor();
  await page.keyboard.type("call('zrev");
  await page.getByRole("option", { name: /^ZREVRANK/ }).click();
  await page.locator(".cm-line", { hasText: "redis.call('ZREVRANK')" }).waitFor();
  await page.keyboard.press("End");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.type(", KEYS[1], ");
  await page.locator(".argument-help strong", { hasText: "member" }).waitFor();
  await write(page, "");
  await page.keyboard.type("redis.call('SET', KEYS[1], 1, '");
  await page.getByRole("option", { name: "KEEPTTL" }).waitFor();
});

test("the help on arguments covers no code and no button", { skip }, async () => {
  for (const viewport of [
    { width: 1360, height: 860 },
    { width: 390, height: 860 },
  ]) {
    const page = await visit("/", { viewport });
    const help = page.locator(".argument-help");
    const more = Array.from({ length: 40 }, (_, at) => `-- line ${at}`).join("\n");
    await write(page, `local a = 1\nredis.call('SET', KEYS[1], 'x'\nend\n${more}`);
    await page.locator(".cm-lintRange-error").waitFor();
    await help.waitFor({ state: "detached" });
    await page.keyboard.press("ControlOrMeta+Home");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    await help.locator("strong", { hasText: "value" }).waitFor();
    const box = await help.boundingBox();
    assert.ok(box);
    for (const place of [".toolbar", ".cm-scroller", ".inputs"]) {
      const other = await page.locator(place).first().boundingBox();
      assert.ok(other);
      const apart = box.y >= other.y + other.height || other.y >= box.y + box.height;
      assert.ok(apart, `${place} at ${viewport.width}`);
    }
    await watched?.close();
  }
});

test("a huge reply comes page by page", { skip }, async () => {
  const page = await visit();
  await write(page, "local t = {} for i = 1, 50000 do t[i] = 'element ' .. i end return t");
  await button(page, /^Run/).click();
  await result(page).getByText("array of 50,000").click();
  await result(page).getByText("element 100", { exact: true }).waitFor();
  assert.equal(await result(page).getByText("element 101", { exact: true }).count(), 0);
  await button(page, /49,900 more/).click();
  await result(page).getByText("element 101", { exact: true }).waitFor();
});

test("the keyboard is enough", { skip }, async () => {
  const page = await visit();
  await page.getByRole("textbox", { name: "Script" }).focus();
  await page.keyboard.press("Control+Enter");
  await result(page).getByText("allowed").waitFor();
  await page.keyboard.press("Control+Shift+Enter");
  await result(page).getByText("dry run: rolled back").waitFor();
  await page.keyboard.press("Control+Alt+Enter");
  await result(page).getByText("Before call 1 of 5").waitFor();
  // Escape gives Tab back to the page.
  await page.getByRole("textbox", { name: "Script" }).focus();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  await page.getByLabel("Key 1", { exact: true }).waitFor();
  const focused = await page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
  assert.equal(focused, "Key 1");
});

test("a lost server is told of, and found again", { skip }, async () => {
  const own = await start();
  const { host } = new URL(own.url);
  watched = await open(browser, own.url);
  const { page } = watched;
  // It goes away while the page is loading.
  const editor = "**/assets/editor-*";
  await page.route(editor, (route) => route.abort());
  await page.reload();
  await button(page, /^Run/).click();
  await result(page).getByText("allowed").waitFor();
  await own.stop();
  await button(page, /^Run/).click();
  await page.getByText("no answer", { exact: true }).waitFor();
  await result(page).getByText("This page tries again").waitFor();
  await page.unroute(editor);
  // Somebody else may have its port for a moment.
  const again = await until(() => start(host).catch(() => null));
  await page.getByText("connected", { exact: true }).waitFor();
  await page.getByRole("textbox", { name: "Script" }).waitFor();
  await button(page, /^Run/).click();
  await result(page).getByText("allowed").waitFor();
  await again.stop();
});

// To other hosts over HTTP without TLS, browsers send no `Sec-Fetch-Mode`.
for (const host of ["127.0.0.1", HOST]) {
  test(`one sign-in is one attempt, in the console's dialog: ${host}`, { skip }, async () => {
    const own = await start("127.0.0.1:0", ["--data-dir", "none", "--http-hosts", HOST], "sesame");
    try {
      const refused: string[] = [];
      const accepted: string[] = [];
      watched = await open(browser, own.url.replace("127.0.0.1", host), {}, async (page, faults) => {
        await notePrompts(page, faults);
        page.on("response", (response) => {
          const { authorization } = response.request().headers();
          if (authorization) (response.status() === 401 ? refused : accepted).push(authorization);
        });
      });
      const { page } = watched;
      await page.getByText("not signed in").waitFor();
      const dialog = page.getByRole("dialog", { name: "Sign in" });
      await dialog.getByLabel("Password or token").fill("wrong");
      await button(page, "Sign in").click();
      await dialog.getByRole("alert").getByText("The user or password is wrong").waitFor();
      await dialog.getByLabel("Password or token").fill("sesame");
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await page.getByText("connected", { exact: true }).waitFor();
      await button(page, /^Run/).click();
      await result(page).getByText("allowed").waitFor();
      assert.deepEqual(refused, ["Bearer wrong"]);
      assert.ok(accepted.length > 1);
      // The password is kept for as long as the tab lives.
      const kept = await page.evaluate(() =>
        [localStorage, sessionStorage].map((one) => JSON.stringify(one)),
      );
      assert.ok(!kept[0]?.includes("sesame") && kept[1]?.includes("sesame"));
    } finally {
      await own.stop();
    }
  });
}

/** Notes where the browser would open its own prompt for a password. */
async function notePrompts(page: Page, faults: string[]): Promise<void> {
  const devtools = await page.context().newCDPSession(page);
  devtools.on("Fetch.authRequired", async ({ requestId, request }) => {
    faults.push(`prompt of the browser: ${request.url}`);
    const authChallengeResponse = { response: "CancelAuth" as const };
    await devtools.send("Fetch.continueWithAuth", { requestId, authChallengeResponse });
  });
  devtools.on("Fetch.requestPaused", async ({ requestId }) => {
    await devtools.send("Fetch.continueRequest", { requestId });
  });
  await devtools.send("Fetch.enable", { handleAuthRequests: true });
}

test("runs of the past come back", { skip }, async () => {
  const page = await visit();
  await write(page, "return 'first'");
  await button(page, /^Run/).click();
  await result(page).getByText("first").waitFor();
  await write(page, "return 'second'");
  await button(page, /^Run/).click();
  await result(page).getByText("second").waitFor();
  await button(page, "History").click();
  await until(async () => (await page.locator(".history:not(.drafts) li").count()) === 2);
  await page.getByRole("button", { name: "return 'first'" }).click();
  await page.locator(".cm-line", { hasText: "return 'first'" }).waitFor();
});

test("drafts outlive their tabs until they are removed", { skip }, async () => {
  const first = await visit();
  const line = (page: Page, text: string) => page.locator(".cm-line", { hasText: text }).waitFor();
  await write(first, "return 'first'");
  await first.close();
  const second = await newTab(first);
  await line(second, "return 'first'");
  await write(second, "return 'second'");
  // Each tab has its own.
  const third = await newTab(first);
  await write(third, "return 'third'");
  await second.reload();
  await line(second, "return 'second'");
  await third.reload();
  await line(third, "return 'third'");

  await button(third, "History").click();
  const list = third.getByRole("region", { name: "Drafts" });
  await list.getByRole("button", { name: "Remove the draft return 'first'" }).click();
  await until(async () => (await list.getByRole("listitem").count()) === 2);
  await list.getByRole("button", { name: /^[^R].*return 'second'/ }).click();
  await line(third, "return 'second'");
  await button(third, "History").click();
  await list.getByRole("button", { name: "Remove all drafts" }).click();
  await list.waitFor({ state: "detached" });
  assert.doesNotMatch(await third.evaluate(() => JSON.stringify(localStorage)), /first|second|third/);
});

/** Another tab of the same browser. */
async function newTab(page: Page): Promise<Page> {
  const tab = await page.context().newPage();
  await tab.goto(server.url);
  return tab;
}

test("the number and the length of drafts are bounded", { skip }, async () => {
  const page = await visit();
  const fill = (count: number, letters: number) =>
    page.evaluate(
      ([count, letters]) => {
        localStorage.clear();
        for (let at = 1; at <= count; at++) {
          const draft = { script: `return ${at} --${"x".repeat(letters)}` };
          localStorage.setItem(`moonshard.draft.${at}`, JSON.stringify({ at, draft }));
        }
      },
      [count, letters] as const,
    );
  const kept = async () => {
    await page.reload();
    const keys = await page.evaluate(() => Object.keys(localStorage));
    const numbers = keys.map((key) => Number(key.replace("moonshard.draft.", "")));
    return numbers.filter(Number.isInteger).sort((one, other) => one - other);
  };
  await fill(30, 10);
  assert.deepEqual(
    await kept(),
    Array.from({ length: 20 }, (_, at) => at + 11),
  );
  await fill(10, 300_000);
  assert.deepEqual(await kept(), [8, 9, 10]);
  await fill(2, 1_200_000);
  assert.deepEqual(await kept(), [2]);
});

test("colours are the system's until somebody chooses", { skip }, async () => {
  const page = await visit("/", { colorScheme: "dark" });
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await paper();
  await button(page, "Use light colours").click();
  await until(async () => (await paper()) !== dark);
  const light = await paper();
  await page.reload();
  await button(page, "Use dark colours").waitFor();
  assert.equal(await paper(), light);
  await button(page, "Use dark colours").click();
  await until(async () => (await paper()) === dark);
});

test("store nodes are shown, and those that are lost", { skip }, async () => {
  const stores = await Promise.all([startStore(), startStore()]);
  const [first, second] = stores.map((store) => store.address) as [string, string];
  const gateway = await start("127.0.0.1:0", ["--stores", `${first},${second}`]);
  try {
    watched = await open(browser, gateway.url);
    const { page } = watched;
    await button(page, "Examples").click();
    await button(page, "Open with data: Leaderboards over rooms").click();
    await button(page, /^Run/).click();
    await page.getByRole("tab", { name: "Calls 4" }).click();
    for (const node of [first, second]) await page.locator(".lane-name", { hasText: node }).waitFor();
    await page.getByRole("link", { name: "Topology" }).click();
    await page.getByLabel("Where is the key").fill("room:east");
    await page.getByText(`slot 12795, ${second}`).waitFor();
    await until(async () => (await page.getByText("reachable", { exact: true }).count()) === 2);
    await stores[1]?.stop();
    await page.getByRole("article").filter({ hasText: second }).getByText("lost").waitFor();
  } finally {
    await gateway.stop();
    await stores[0]?.stop();
  }
});

for (const { colorScheme, width } of VIEWS) {
  test(`axe finds nothing: ${colorScheme}, ${width} wide`, { skip }, async () => {
    const page = await visit("/", { colorScheme, viewport: { width, height: 860 }, bypassCSP: true });
    await check(page, "first");
    await button(page, /^Run/).click();
    await result(page).getByText("allowed").waitFor();
    for (const tab of ["Reply", "Calls 5", "Changes 1"]) {
      await page.getByRole("tab", { name: tab }).click();
      await check(page, tab);
    }
    await button(page, "Dry run").click();
    await result(page).getByText("dry run: rolled back").waitFor();
    await button(page, "History").click();
    await check(page, "history");
    await page.keyboard.press("Escape");
    await write(page, "return nosuch");
    await button(page, /^Run/).click();
    await page.getByRole("tab", { name: "Error" }).click();
    await page.locator(".cm-lintRange-error").waitFor();
    await check(page, "error");
    await write(page, "redis.");
    await page.locator(".cm-tooltip-autocomplete").waitFor();
    await check(page, "completion");
    await page.keyboard.press("Escape");
    await button(page, "Examples").click();
    await check(page, "examples");
    await button(page, "Open with data: Reliable queue").click();
    await button(page, "Step").click();
    await result(page).getByText("Before call 1 of").waitFor();
    await check(page, "step");
    await button(page, "Last").click();
    await result(page).getByText("The end, after").waitFor();
    await check(page, "end of steps");
    for (const [name, sign] of [
      ["Scripts", "Ended lately"],
      ["Keys", "{jobs}:leases"],
      ["Topology", "This server holds the data"],
    ] as const) {
      await page.getByRole("link", { name }).click();
      await page.getByText(sign).first().waitFor();
      if (name === "Keys") {
        await page.getByRole("link", { name: "{jobs}:leases" }).click();
        await page.getByText("in memory").waitFor();
      }
      await check(page, name);
    }
  });
}
