/** What needs neither a server nor a browser. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventReader } from "../src/api/events";
import { bytesOf, fromHex, shown, textOf } from "../src/api/text";
import type { Preview, Step } from "../src/api/types";
import { Browsing, isSecret } from "../src/cli/lines";
import { wordsOf } from "../src/cli/words";
import { callAt, presentPart, syntaxParts, syntaxWords } from "../src/editor/call";
import { elementsOf } from "../src/pages/elements";
import { ratesOf, sampleOf } from "../src/pages/samples";
import { rangesOf, slotOf } from "../src/pages/slots";
import { type Branch, treeOf } from "../src/pages/tree";
import { diffLists, diffOf } from "../src/run/diff";
import { EXAMPLES } from "../src/run/examples";
import { bytes, counted, micros, short } from "../src/run/numbers";
import { hintFor, lineOf } from "../src/run/problem";
import { readReply, spellRaw, toJson } from "../src/run/reply";
import { sizeOf } from "../src/run/server";
import { ofFragment, toFragment } from "../src/run/share";
import { type Draft, EMPTY, readDraft, requestOf } from "../src/run/state";
import { chooseTab, tab, tabFor } from "../src/run/tab";
import { lanesOf, ticksOf } from "../src/run/timeline";
import { inWords, placesOf } from "../src/step/steps";
import { addressOf, type Route, routeOf } from "../src/ui/route";
import { cornersOf } from "../src/ui/sparkline";

const utf8 = (text: string) => new TextEncoder().encode(text);

test("strings of any bytes come through", () => {
  for (const bytes of [utf8("é\0"), Uint8Array.of(0xff, 0, 10), new Uint8Array()]) {
    assert.deepEqual(bytesOf(textOf(bytes)), bytes);
  }
  assert.equal(shown({ base64: "/wBh" }), "\\xff\\x00a");
  assert.deepEqual(fromHex("00 fF"), Uint8Array.of(0, 255));
  assert.equal(fromHex("0"), null);
  assert.equal(fromHex("0g"), null);
});

test("what is shared is what was there", async () => {
  const draft: Draft = {
    ...EMPTY,
    script: "return '€' -- ✓",
    keys: [{ kind: "hex", text: "ff00" }],
    args: [{ kind: "json", text: "{}" }],
    mode: "async",
    flags: ["allow-oom"],
    changes: false,
    limits: { fuel: "10", timeout: "", memory: "8mb" },
    db: 3,
  };
  const fragment = await toFragment(draft);
  assert.match(fragment, /^#s=[\w-]+$/);
  assert.deepEqual(await ofFragment(fragment), draft);
  for (const broken of ["", "#s=", "#s=AAAA", "#/keys", `${fragment.slice(0, -4)}`]) {
    assert.equal(await ofFragment(broken), null, broken);
  }
});

test("drafts that come from outside are made to fit", () => {
  assert.equal(readDraft(null), null);
  assert.equal(readDraft({ script: 1 }), null);
  const odd = {
    script: "x",
    keys: [{ kind: "evil", text: "k" }, null, 3],
    mode: "fast",
    db: 99,
    flags: [1, "a"],
  };
  assert.deepEqual(readDraft(odd), {
    ...EMPTY,
    script: "x",
    keys: [{ kind: "text", text: "k" }],
    flags: ["a"],
  });
});

test("what is typed becomes a request, or is complained about", () => {
  const draft = {
    ...EMPTY,
    script: "x",
    mode: "async" as const,
    args: [{ kind: "hex" as const, text: "ff" }],
  };
  const made = requestOf({ ...draft, limits: { fuel: "1_000", timeout: "5", memory: "1mb" } });
  assert.deepEqual(made, {
    request: {
      script: "x",
      keys: [],
      args: [{ base64: "/w==" }],
      flags: ["disable-atomicity"],
      limits: { fuel: 1000, timeout_ms: 5, memory: "1mb" },
    },
  });
  const wrong = (part: Partial<Draft>) => {
    const made = requestOf({ ...EMPTY, ...part });
    return "wrong" in made ? made.wrong : null;
  };
  assert.equal(wrong({ keys: [{ kind: "hex", text: "f" }] }), "Key 1 is not pairs of hexadecimal digits.");
  assert.equal(wrong({ args: [{ kind: "number", text: "" }] }), "Argument 1 is not a number.");
  assert.equal(wrong({ args: [{ kind: "json", text: "{" }] }), "Argument 1 is not JSON.");
  assert.equal(
    wrong({ limits: { fuel: "some", timeout: "", memory: "" } }),
    "Fuel is not a whole number of at least 1.",
  );
});

test("examples are requests", () => {
  for (const { draft } of EXAMPLES) assert.ok("request" in requestOf(draft));
});

test("replies are read exactly", () => {
  const json = (resp: string) => toJson(readReply(utf8(resp)));
  assert.equal(json(":9007199254740993\r\n"), "9007199254740993");
  assert.equal(json(",3\r\n"), "3");
  assert.equal(json(",inf\r\n"), '{"double": "inf"}');
  assert.equal(json("*3\r\n+OK\r\n_\r\n#t\r\n"), '[\n  "OK",\n  null,\n  true\n]');
  assert.equal(json("%1\r\n$1\r\na\r\n:1\r\n"), '{\n  "a": 1\n}');
  assert.equal(json("%1\r\n:2\r\n:1\r\n"), '{"map": [\n  [2, 1]\n]}');
  assert.equal(json("*1\r\n-FULL at 2\r\n"), '[\n  {"error": {"code": "FULL", "message": "FULL at 2"}}\n]');
  assert.equal(json("=7\r\nmkd:a\nb\r\n"), '"a\\nb"');
  assert.equal(json("|1\r\n+ttl\r\n:3\r\n$2\r\né\r\n"), '"é"');
  assert.equal(toJson(readReply(Uint8Array.of(36, 49, 13, 10, 255, 13, 10))), '{"base64":"/w=="}');
  assert.throws(() => readReply(utf8("$5\r\nab")));
  assert.throws(() => readReply(utf8("?1\r\n")));
  assert.equal(spellRaw(utf8("$3\r\na\0b\r\n")), "$3\\r\\n\na\\x00b\\r\\n\n");
});

test("changes are told element by element", () => {
  const preview = (type: string, elements: string[], more: Partial<Preview> = {}): Preview => {
    const each = type === "hash" || type === "zset" ? 2 : 1;
    const length = type === "string" ? (elements[0] ?? "").length : elements.length / each;
    return { type, length, expire_at_ms: null, sticky: false, elements, ...more };
  };
  const diff = (before: Preview | null, after: Preview | null) => diffOf({ db: 0, key: "k", before, after });
  assert.deepEqual(
    diffLists(["a", "b", "c"], ["b", "c", "d"]).map((line) => line.sort),
    ["removed", "same", "same", "added"],
  );
  const hash = diff(preview("hash", ["f", "1", "g", "2"]), preview("hash", ["f", "1", "g", "3", "h", "4"]));
  assert.equal(hash.what, "changed");
  assert.deepEqual(
    hash.lines.map(({ sort, label }) => `${label} ${sort}`),
    ["f same", "g changed", "h added"],
  );
  assert.equal(diff(null, preview("string", ["x"], { sticky: true })).notes[0], "sticky");
  assert.equal(diff(preview("set", ["x"]), null).what, "deleted");
  assert.equal(diff(preview("set", ["x"]), preview("set", ["x"])).what, "touched");
  const other = diff(preview("set", ["x"]), preview("list", ["x"]));
  assert.deepEqual(
    other.lines.map((line) => line.sort),
    ["removed", "added"],
  );
  assert.equal(diff(null, preview("list", ["1"], { length: 25 })).unseen, 24);
});

test("the cursor's call is found", () => {
  const at = (text: string) => {
    const pos = text.indexOf("|");
    return callAt(text.replace("|", ""), pos);
  };
  assert.deepEqual(at("redis.call('ge|t')"), { callee: "redis.call", args: [], index: 0, stringFrom: 12 });
  assert.deepEqual(at("x = redis.pcall('SET', KEYS[1], |)")?.args, ["SET", null]);
  // A call that is not closed ends where the next statement shows it.
  assert.equal(at("redis.call('SET', KEYS[1], 'x'\nend|"), null);
  assert.equal(at("redis.call('SET', KEYS[1], 'x'\nlocal a = |"), null);
  assert.equal(at("redis.call('SET', KEYS[1], 'x'\n|")?.index, 2);
  assert.equal(at("redis.call('SET', f(1, 2), |")?.index, 2);
  assert.equal(at("redis.call('SET', {1, |"), null);
  assert.equal(at("-- redis.call('|"), null);
  assert.equal(at("--[[ redis.call(' ]] x(|"), null);
  assert.equal(at("redis.call([[SET]], |")?.index, 1);
  assert.equal(at("print('redis.call(', |"), null);
  assert.equal(at("redis.call('a\\'b', '|")?.stringFrom, 20);
  assert.equal(at("|"), null);
});

test("syntax is cut into arguments", () => {
  const syntax = "key value [NX | XX] [EX seconds | PX milliseconds] field [field ...]";
  assert.deepEqual(syntaxParts(syntax), [
    "key",
    "value",
    "[NX | XX]",
    "[EX seconds | PX milliseconds]",
    "field",
    "[field ...]",
  ]);
  assert.deepEqual(syntaxWords(syntax), ["NX", "XX", "EX", "PX"]);
});

test("the present argument is found behind options", () => {
  const zadd = "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]";
  const set = "key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]";
  const xadd = "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value";
  const union =
    "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>]";
  for (const [syntax, given, present] of [
    [zadd, [], "key"],
    [zadd, [null], "[NX | XX]"],
    [zadd, [null, null], "member"],
    [zadd, [null, "gt"], "[CH]"],
    [zadd, [null, "INCR", "NX"], "[GT | LT]"],
    [zadd, [null, "CH", null], "member"],
    [zadd, [null, null, "a"], "[score member ...]"],
    [zadd, [null, null, "a", null, "nx"], "[score member ...]"],
    [set, [null, "NX"], "[NX | XX]"],
    [set, [null, "a", "PX"], "[EX seconds | PX milliseconds | KEEPTTL]"],
    [set, [null, "a", "EX", null, "GET"], "[EX seconds | PX milliseconds | KEEPTTL]"],
    [xadd, [null, "MAXLEN", null], "<* | id>"],
    [xadd, [null, "minid"], "[<MAXLEN | MINID> [= | ~] threshold [LIMIT count]]"],
    [union, [null, "2", null, null], "[key ...]"],
    [union, [null, "2", null, null, "WEIGHTS", null, null], "[WEIGHTS weight [weight ...]]"],
    [union, [null, "1", null, "AGGREGATE"], "[AGGREGATE <SUM | MIN | MAX>]"],
    ["", ["a"], undefined],
  ] as const) {
    const parts = syntaxParts(syntax);
    assert.equal(parts[presentPart(parts, [...given])], present, `${syntax}: ${given}`);
  }
});

test("one is not many", () => {
  assert.deepEqual(
    [0, 1, 2000].map((value) => counted(value, "call")),
    ["0 calls", "1 call", "2,000 calls"],
  );
});

test("errors tell their line", () => {
  assert.equal(lineOf("ERR Error compiling script (new function): user_script:12: '=' expected"), 12);
  assert.equal(lineOf("WRONGTYPE Operation … script: 44e7, on @user_script:3."), 3);
  assert.equal(lineOf("ERR no such thing"), null);
  assert.match(hintFor("SCRIPTLIMIT fuel: 1000 units used by script a") ?? "", /Fuel/);
  assert.equal(hintFor("ERR whatever"), null);
});

test("events are cut out of a stream wherever it is torn", () => {
  const stream = 'event: listening\ndata: {}\n\n: sign of life\n\nevent: began\ndata: {"run": 1}\n\n';
  for (let cut = 0; cut <= stream.length; cut++) {
    const reader = new EventReader();
    const events = [...reader.read(stream.slice(0, cut)), ...reader.read(stream.slice(cut))];
    assert.deepEqual(
      events.map((event) => event.kind),
      ["listening", "began"],
    );
  }
});

test("slots are those of Redis Cluster", () => {
  assert.equal(slotOf(utf8("123456789")), 12739);
  assert.equal(slotOf(utf8("{user}:a")), slotOf(utf8("user")));
  assert.equal(slotOf(utf8("{}a")), slotOf(utf8("{}a")));
  assert.notEqual(slotOf(utf8("{}a")), slotOf(utf8("")));
  assert.deepEqual(rangesOf("0-5460,7000"), [
    [0, 5460],
    [7000, 7000],
  ]);
  assert.deepEqual(rangesOf(""), []);
});

test("numbers are for people", () => {
  assert.deepEqual(
    [short(999), short(12_345), short(1e11), micros(1500), micros(2e6)],
    ["999", "12.3 k", "100 G", "1.5 ms", "2 s"],
  );
  assert.deepEqual(
    [bytes(12), bytes(2048), sizeOf("8mb"), sizeOf("67108864"), sizeOf("x")],
    ["12 B", "2 KB", 8 << 20, 67108864, null],
  );
  assert.deepEqual(ticksOf(300), [0, 100, 200, 300]);
});

test("calls have a lane for each place", () => {
  const call = (shard: number | null) => ({
    args: ["GET"],
    arg_count: 1,
    db: 0,
    key: null,
    shard,
    at_microseconds: 0,
    microseconds: 1,
  });
  assert.deepEqual(
    lanesOf([call(3), call(null), call(3), call(1)]).map(
      ({ name, calls }) => `${name}: ${calls.map((one) => one.at)}`,
    ),
    ["no key: 1", "shard 1: 3", "shard 3: 0,2"],
  );
});

test("a run can be looked at before each call and at its end", () => {
  const call = { call: { args: ["PING"] } } as unknown as Step;
  const log = { log: { level: "notice", text: "" } };
  assert.deepEqual(placesOf([log, call, log, log, call, log]), [1, 4, 6]);
  assert.deepEqual(placesOf([log]), [1]);
  assert.deepEqual(placesOf([]), [0]);
});

test("values of Lua are told in a line", () => {
  assert.deepEqual(
    [
      inWords({ type: "nil" }),
      inWords({ type: "boolean", value: false }),
      inWords({ type: "number", value: "1e+15" }),
      inWords({ type: "string", value: 'a "b"', length: 5 }),
      inWords({ type: "string", value: { base64: "/w==" }, length: 1 }),
      inWords({ type: "string", value: "x".repeat(128), length: 1000 }),
      inWords({ type: "table", entries: [], count: 3 }),
      inWords({ type: "table", entries: [], count: null }),
    ],
    [
      "nil",
      "false",
      "1e+15",
      '"a \\"b\\""',
      '"\\\\xff"',
      `"${"x".repeat(128)}"… (1000 bytes)`,
      "table of 3",
      "large table",
    ],
  );
});

test("elements of all types are listed", () => {
  assert.deepEqual(elementsOf({ type: "hash", value: { map: [[{ base64: "/w==" }, "v"]] } }), [
    { name: { base64: "/w==" }, value: "v" },
  ]);
  assert.deepEqual(elementsOf({ type: "zset", value: [{ member: "m", score: { double: "inf" } }] }), [
    { name: "m", value: "inf" },
  ]);
  assert.deepEqual(elementsOf({ type: "set", value: ["m"] }), [{ name: "m", value: null }]);
  assert.deepEqual(elementsOf({ type: "list", value: ["e"] }), [{ name: null, value: "e" }]);
});

test("addresses are those of pages, keys, scripts and libraries", () => {
  const sha = "0123456789abcdef0123456789abcdef01234567";
  const all: [string, Route][] = [
    ["#/playground", { page: "playground" }],
    ["#/slow-log", { page: "slow-log" }],
    [`#/scripts/${sha}`, { page: "scripts", name: sha }],
    ["#/functions/mylib", { page: "functions", name: "mylib" }],
    ["#/keys/3", { page: "keys", db: 3 }],
    ["#/keys/0/", { page: "keys", db: 0, key: "" }],
    ["#/keys/15/a%2Fb%20%25%23%C3%A9%00", { page: "keys", db: 15, key: "a/b %#é\0" }],
    ["#/keys/0/%ff%00", { page: "keys", db: 0, key: { base64: "/wA=" } }],
    ["#/keys/0/%EF%BB%BFbom", { page: "keys", db: 0, key: "\ufeffbom" }],
  ];
  for (const [address, route] of all) {
    assert.deepEqual(routeOf(address), route, address);
    assert.equal(addressOf(route), address);
  }
  // What people type is understood, too.
  assert.deepEqual(routeOf("#/keys/0/a/b é"), { page: "keys", db: 0, key: "a/b é" });
  for (const home of ["", "#", "#/", "#s=abc"]) assert.deepEqual(routeOf(home), { page: "playground" });
  for (const unknown of [
    "#x",
    "#/nosuch",
    "#/scripts/12",
    "#/keys/16",
    "#/keys/x/y",
    "#/keys/0/%",
    "#/metrics/1",
  ]) {
    assert.deepEqual(routeOf(unknown), { page: "missing" }, unknown);
  }
});

test("a line is cut into words as by redis-cli", () => {
  assert.deepEqual(wordsOf("  SET  key\tvalue "), ["SET", "key", "value"]);
  assert.deepEqual(wordsOf(`a "b c" 'd "e"' ""`), ["a", "b c", 'd "e"', ""]);
  assert.deepEqual(wordsOf(`"\\n\\t\\x41\\"\\\\\\q" 'it\\'s \\n' a"b c"`), ['\n\tA"\\q', "it's \\n", "ab c"]);
  assert.deepEqual(wordsOf('"\\xff\\x00" é "🌒"'), [{ base64: "/wA=" }, "é", "🌒"]);
  assert.deepEqual(wordsOf(""), []);
  assert.throws(() => wordsOf('GET "a'), /character 5 is not closed/);
  assert.throws(() => wordsOf("GET 'a\\"), /is not closed/);
  assert.throws(() => wordsOf('GET "a"b'), /character 7 must be followed by a space/);
});

test("lines with passwords are known", () => {
  const secret = (line: string) => isSecret(wordsOf(line));
  for (const line of [
    "auth x",
    "ACL SETUSER u >p",
    "HELLO 3 AUTH u p",
    "CONFIG SET requirepass x",
    "MIGRATE h 1 k 0 9 AUTH p",
  ]) {
    assert.ok(secret(line), line);
  }
  for (const line of ["GET auth", "HELLO 3", "CONFIG GET maxmemory"]) assert.ok(!secret(line), line);
});

test("the arrow keys go through lines, and back to what was being typed", () => {
  const browsing = new Browsing(["first", "second"], "third");
  assert.deepEqual(
    [-1, -1, -1, 1, 1, 1].map((steps) => browsing.move(steps)),
    ["second", "first", "first", "second", "third", "third"],
  );
});

test("keys become a tree", () => {
  const tree = treeOf(["a", "a:", "a:b:c", "a:b:d", "x:y:z:1", "x:y:z:2", { base64: "Of8=" }]);
  const told = (one: Branch): unknown => [
    one.name,
    one.count,
    ...one.branches.map(told),
    ...one.leaves.map((leaf) => leaf.name),
  ];
  assert.deepEqual(told(tree), [
    "",
    7,
    ["a:", 3, ["b:", 2, "c", "d"], ""],
    ["x:y:z:", 2, "1", "2"],
    "a",
    "9\\xff",
  ]);
  assert.equal(tree.branches[1]?.path, "x:y:z:");
  assert.deepEqual(treeOf([]), { name: "", path: "", count: 0, branches: [], leaves: [] });
});

test("INFO becomes numbers, and counters become rates", () => {
  const info = (at: number, calls: number, runId = "r") =>
    `# Server\r\nrun_id:${runId}\r\nserver_time_usec:${at}\r\n\r\n# Stats\r\ntotal_commands_processed:${calls}\r\n` +
    "scripts_run:2\r\nused_memory:64\r\nconnected_clients:3\r\n# Keyspace\r\n" +
    "db0:keys=5,expires=0,avg_ttl=0\r\ndb3:keys=2,expires=1,avg_ttl=9\r\n";
  const samples = [info(1e6, 10), info(2e6, 30), info(4e6, 40), info(5e6, 3, "other"), info(6e6, 4, "other")];
  const all = samples.map(sampleOf);
  assert.deepEqual(all[0], { at: 1e6, runId: "r", calls: 10, runs: 2, keys: 7, memory: 64, clients: 3 });
  assert.deepEqual(ratesOf(all, "calls"), [20, 5, 1]);
  assert.deepEqual(ratesOf(all.slice(0, 1), "runs"), []);
  const corners = cornersOf([0, 5, 10], 5);
  assert.deepEqual(
    corners.map(([x, y]) => [x, y]),
    [
      [120, 42],
      [180, 22],
      [240, 2],
    ],
  );
});

test("a dry run shows its changes, and the next run what was shown before", () => {
  const after = (dry: boolean, failed = false) => {
    tabFor(dry, failed);
    return tab.value;
  };
  chooseTab("calls");
  assert.deepEqual([after(true), after(true), after(false)], ["changes", "changes", "calls"]);
  assert.deepEqual([after(true, true), after(false)], ["reply", "calls"]);
  after(true);
  chooseTab("reply");
  assert.deepEqual([after(false), after(true)], ["reply", "changes"]);
});
