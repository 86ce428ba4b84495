/** The page of a cluster with replicas, in a browser: with processes of its own, and with what they seldom say. */
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import type { Group, Member, Replica, StoreProcess, Topology } from "../src/api/types";
import { check, VIEWS } from "./axe";
import { chromiumPath, launch, open, until, type Watched } from "./browser";
import { type Server, start, startReplicas } from "./server";

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

const group = (page: Page, name: string) => page.getByRole("article", { name: `Group ${name}` });
const fact = (page: Page, name: string, of: string) =>
  group(page, name)
    .locator("div", { has: page.locator("dt", { hasText: of }) })
    .locator("dd");
const line = (page: Page, address: string) =>
  page.getByRole("region", { name: "Processes" }).getByRole("row").filter({ hasText: address });

test("groups are shown with their leaders, and who takes over", { skip }, async () => {
  const replicas = await startReplicas();
  const [first, second, third] = replicas.addresses as [string, string, string];
  const gateway = await start("127.0.0.1:0", ["--stores", replicas.addresses.join(",")]);
  try {
    watched = await open(browser, `${gateway.url}/#/topology`);
    const { page } = watched;
    await page.getByText("Each group is to have 3 replicas.").waitFor();
    for (const [name, leader] of [
      ["g0", first],
      ["g1", second],
      ["g2", third],
    ] as const) {
      await until(async () => (await fact(page, name, "leader").textContent()) === leader);
      await until(async () => (await group(page, name).getByText("caught up").count()) === 3);
    }
    await group(page, "meta").getByText("it keeps the list of processes and groups").waitFor();
    await page.getByLabel("Where is the key").fill("room:east");
    await page.getByText(`slot 12795, g2, led by ${third}`).waitFor();
    await page.getByRole("img", { name: `g1, led by ${second}: 5462,10922` }).waitFor();
    assert.equal(await line(page, second).getByRole("cell").nth(3).textContent(), "g1");

    await replicas.kill(1);
    await line(page, second).getByText("does not answer").waitFor();
    await until(async () => [first, third].includes((await fact(page, "g1", "leader").textContent()) ?? ""));
    await group(page, "g1")
      .getByRole("listitem")
      .filter({ hasText: second })
      .getByText("does not answer")
      .waitFor();
    assert.equal(await line(page, second).getByRole("cell").nth(3).textContent(), "none");
    assert.equal(await line(page, second).getByRole("cell").nth(4).textContent(), "g0, g1, g2, meta");
  } finally {
    await gateway.stop();
    await replicas.stop();
  }
});

const member = (address: string, slots: string): Member => ({
  address,
  slots,
  slot_count: 8192,
  keys: 12,
  bytes: 3400,
  epoch: 1,
  lag: 0,
  reachable: true,
  error: null,
});

const replica = (process: number, more: Partial<Replica>): Replica => ({
  process,
  address: `store-${process}.example:7101`,
  state: "follower",
  leads: false,
  lag_entries: 0,
  answers: true,
  leaves: false,
  ...more,
});

const LOST = { state: "missing", lag_entries: null, answers: false } as const;

const GROUPS: Group[] = [
  {
    name: "g0",
    slots: "0-8191",
    leader: "store-1.example:7101",
    term: 7,
    changing: true,
    replicas: [
      replica(1, { state: "leader", leads: true }),
      replica(4, { state: "waits_for_copy", lag_entries: 12345 }),
      replica(5, { state: "learner", lag_entries: 1 }),
      replica(2, { ...LOST, leaves: true }),
    ],
  },
  {
    name: "g1",
    slots: "8192-16383",
    leader: null,
    term: null,
    changing: false,
    replicas: [replica(2, LOST), replica(3, LOST), replica(1, { lag_entries: null })],
  },
  { name: "meta", slots: "", leader: null, term: 3, changing: false, replicas: [replica(2, LOST)] },
];

const process = (id: number, more: Partial<StoreProcess> = {}): StoreProcess => ({
  id,
  address: `store-${id}.example:7101`,
  zone: "",
  state: "active",
  answers: true,
  error: null,
  ...more,
});

const refused = { answers: false, error: "cannot connect: Connection refused (os error 111)" };

const PROCESSES = [
  process(1, { zone: "east" }),
  process(2, { ...refused, state: "leaving" }),
  process(3, { ...refused, state: "lost" }),
  process(4, { state: "joining" }),
  process(5),
];

const TOPOLOGY: Topology = {
  mode: "distributed",
  stores: ["store-1.example:7101"],
  epoch: 4,
  members: [member("g0", "0-8191"), member("g1", "8192-16383")],
  replicas: 3,
  processes: PROCESSES,
  groups: GROUPS,
  nodes: [
    {
      id: "0123456789abcdef",
      version: "1.0.0",
      resp: "0.0.0.0:6379",
      shards: null,
      threads: 2,
      keys: 24,
      bytes: 6800,
    },
  ],
};

for (const { colorScheme, width } of VIEWS) {
  test(`what is wrong is seen, and axe finds nothing: ${colorScheme}, ${width} wide`, { skip }, async () => {
    const options = { colorScheme, viewport: { width, height: 860 }, bypassCSP: true };
    watched = await open(browser, `${server.url}/#/topology`, options, async (page) => {
      await page.route("**/v1/topology", (route) => route.fulfill({ json: TOPOLOGY }));
    });
    const { page } = watched;
    const has = async (name: string, of: string, texts: string[]) => {
      const item = group(page, name).getByRole("listitem").filter({ hasText: of });
      for (const text of texts) await item.getByText(text, { exact: true }).waitFor();
    };
    await group(page, "g0").getByText("members change").waitFor();
    await has("g0", "store-1.", ["leads", "caught up"]);
    await has("g0", "store-4.", ["waits for a copy", "12,345 entries behind"]);
    await has("g0", "store-5.", ["no vote yet", "1 entry behind"]);
    await has("g0", "store-2.", ["does not answer", "moves away"]);
    await group(page, "g1").getByText("no leader", { exact: true }).waitFor();
    await group(page, "g1").getByRole("alert").getByText("Requests for its slots wait").waitFor();
    await group(page, "meta").getByRole("alert").getByText("Processes cannot join or leave").waitFor();
    await has("g1", "store-1.", ["follows"]);
    await page.getByLabel("Where is the key").fill("room:east");
    await page.getByText("slot 12795, g1, which has no leader").waitFor();
    for (const [id, texts] of [
      [1, ["east", "answers"]],
      [2, ["unknown", "does not answer", "leaves", refused.error]],
      [3, ["does not answer", "has lost its data"]],
      [4, ["answers", "joins"]],
    ] as const) {
      for (const text of texts) await line(page, `store-${id}.`).getByText(text, { exact: true }).waitFor();
    }
    await check(page, "topology of a cluster with replicas");
  });
}
