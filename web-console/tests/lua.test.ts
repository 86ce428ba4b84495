/** The Lua that scripts are stepped through in. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { LuaFactory } from "wasmoon";
import type { FromWorker } from "../src/step/protocol";

const source = (name: string) => readFileSync(join(import.meta.dirname, "../src/step", name), "utf8");

let begin: (script: string, keys: string, args: string) => FromWorker;
let answer: (reply: string) => FromWorker;
const logs: string[] = [];

before(async () => {
  const lua = await new LuaFactory().createEngine({ injectObjects: false });
  lua.global.set("prelude", source("prelude.lua"));
  lua.global.set("cjson_source", source("cjson.lua"));
  lua.global.set("emit", (told: string) => logs.push(told));
  lua.doStringSync(`
    local stepper = load(prelude, '=prelude')(emit)
    local cjson = load(cjson_source, '=cjson')()
    function begin(script, keys, args) return stepper.begin(script, keys, args, cjson) end
    answer = stepper.answer
  `);
  const [first, second] = [lua.global.get("begin"), lua.global.get("answer")];
  begin = (...given) => JSON.parse(first(...given));
  answer = (reply) => JSON.parse(second(reply));
});

function run(script: string, keys = "{}", args = "{}"): FromWorker {
  return begin(script, keys, args);
}

/** What a script returns that makes no calls. */
function value(script: string): string | undefined {
  const told = run(script);
  assert.ok("done" in told, JSON.stringify(told));
  return told.done.v;
}

test("a script halts before each call and shows its variables", () => {
  const script = `#!lua name=x
local first = KEYS[1]
local function inner(n)
  local reply = redis.call('GET', first, n, 1.5, 3 / 1)
  return reply
end
local got = inner(7)
return got .. ARGV[1]`;
  const told = run(script, '{"k\\255"}', '{"!"}');
  assert.ok("halt" in told, JSON.stringify(told));
  assert.deepEqual(told.halt.words, ["GET", "k\u00ff", "7", "1.5", "3"]);
  assert.deepEqual(
    told.halt.frames.map(({ line, locals }) => [line, locals.map(([name]) => name)]),
    [
      [4, ["first", "n"]],
      [7, ["first", "inner"]],
    ],
  );
  const end = answer('"v\\255"');
  assert.ok("done" in end);
  assert.equal(end.done.v, "v\u00ff!");
});

test("a call that a function ends with has its line, too", () => {
  const told = run("local key = 'k'\n\nreturn redis.call('GET', key)");
  assert.ok("halt" in told);
  assert.deepEqual([told.halt.line, told.halt.frames], [3, []]);
});

test("errors of calls are raised or returned as the server does it", () => {
  run("return redis.call('GET', 'k')");
  assert.deepEqual(answer('{err="WRONGTYPE no"}'), { failed: { message: "WRONGTYPE no", line: 1 } });
  run("local r = redis.pcall('GET', 'k')\nreturn r.err");
  assert.deepEqual(answer('{err="WRONGTYPE no"}'), { done: { t: "string", v: "WRONGTYPE no", n: 12 } });
  run("local ok, e = pcall(redis.call, 'GET', 'k') return tostring(ok) .. e.err");
  assert.deepEqual(answer('{err="ERR x"}'), { done: { t: "string", v: "falseERR x", n: 10 } });
});

test("errors of the script tell their line", () => {
  for (const [script, line, message] of [
    ["local a = 1\nreturn nosuch", 2, /nonexistent global variable 'nosuch'/],
    ["local a = 1\n\nerror('mine')", 3, /mine/],
    ["x = 1", 1, /readonly table/],
    ["local a =\n= 2", 2, /Error compiling script/],
    ["redis.call()", 1, /at least one argument/],
    ["redis.call('SET', {})", 1, /must be strings or integers/],
    ["return cmsgpack.pack(1)", 1, /cmsgpack.pack is not there/],
  ] as const) {
    const told = run(script);
    assert.ok("failed" in told, script);
    assert.match(told.failed.message, message);
    assert.equal(told.failed.line, line, script);
  }
});

test("coroutines of the script hand calls on", () => {
  const told = run(`local co = coroutine.wrap(function(a)
  local got = redis.call('GET', a)
  coroutine.yield(got .. 1)
  return got .. 2
end)
return co('k') .. co()`);
  assert.ok("halt" in told, JSON.stringify(told));
  assert.deepEqual(answer('"v"'), { done: { t: "string", v: "v1v2", n: 4 } });
});

test("it has what Lua 5.1 has", () => {
  assert.equal(value("return tostring(10 / 2)"), "5");
  assert.equal(value("return string.format('%d %s', 6 / 2, 4 / 2)"), "3 2");
  assert.equal(value("return table.concat({4 / 2, 'x'}, '-')"), "2-x");
  assert.equal(value("return unpack({1, 'b'}, 2)"), "b");
  assert.equal(value("return math.pow(2, 10)"), "1024");
  assert.equal(value("return loadstring('return 1 + 1')()"), "2");
  assert.equal(value("return table.getn({1, 2})"), "2");
});

test("libraries answer as those of the server", () => {
  assert.equal(value("return redis.sha1hex('abc')"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  assert.equal(
    value("return redis.sha1hex(('x'):rep(200))"),
    createHash("sha1").update("x".repeat(200)).digest("hex"),
  );
  assert.equal(value("return bit.tohex(bit.bxor(0xffffffff, 1))"), "fffffffe");
  assert.equal(value("return bit.bnot(0)"), "-1");
  assert.equal(value("return bit.arshift(-8, 1)"), "-4");
  assert.equal(
    value("return cjson.encode({1, 'a\"/', cjson.null, {x = 1.5}, {}})"),
    '[1,"a\\"\\/",null,{"x":1.5},{}]',
  );
  assert.equal(
    value(`return cjson.decode('{"a": [1, {"b": "\\\\u00e9\\\\ud83d\\\\ude00"}]}').a[2].b`),
    "Ã©ð\u009f\u0098\u0080",
  );
  assert.equal(value("return tostring(cjson.decode('[null]')[1] == cjson.null)"), "true");
  assert.ok("failed" in run("return cjson.decode('{\"a\": }')"));
  assert.equal(value("return redis.error_reply('no').err"), "ERR no");
  logs.length = 0;
  value("redis.log(redis.LOG_WARNING, 'a', 'b') return 1");
  assert.deepEqual(
    logs.map((line) => JSON.parse(line)),
    [{ log: { level: "warning", text: "a b" } }],
  );
});
