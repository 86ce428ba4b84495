// What programs do with node-redis: scripts and functions as methods, pipelines, transactions, pub/sub, client-side caching,
// streams, blocking pops, fields of hashes that expire, both protocols, and a client of Redis Cluster.
//
// Usage: node_redis.mjs HOST:PORT DB. CLUSTER in the environment is the address of a server for clients of Redis Cluster.

import assert from "node:assert/strict";
import { BasicClientSideCache, createClient, createCluster, defineScript, RESP_TYPES, WatchError } from "redis";

const [address, db] = process.argv.slice(2);

// A counter that never passes its limit.
const takeSeat = defineScript({
  SCRIPT: `local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
    if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
    return redis.call('INCR', KEYS[1]) -- ${Date.now()}`,
  NUMBER_OF_KEYS: 1,
  parseCommand(parser, key, limit) {
    parser.pushKey(key);
    parser.push(String(limit));
  },
  transformReply: (reply) => ({ seat: reply }),
});

const library = `#!lua name=noderedis
redis.register_function('noderedis_twice', function(keys, args) return args[1] * 2 end)`;
const functions = {
  noderedis: {
    noderedis_twice: {
      NUMBER_OF_KEYS: 0,
      parseCommand: (parser, number) => parser.push(String(number)),
      transformReply: undefined,
    },
  },
};

// The client's own 5 seconds are short on a busy machine.
const patient = { commandOptions: { timeout: 60_000 }, scripts: { takeSeat }, functions };
const connect = (options) =>
  createClient({ url: `redis://${address}/${db}`, ...patient, ...options })
    .on("error", (error) => assert.fail(error))
    .connect();

/** Waits until `holds` does, or says what did not come about. */
async function until(what, holds) {
  const deadline = Date.now() + 60_000;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function scripts(redis) {
  // The server does not know it at first: NOSCRIPT is answered by EVAL.
  for (const seat of [1, 2]) assert.deepEqual(await redis.takeSeat("seats", 2), { seat });
  await assert.rejects(redis.takeSeat("seats", 2), /FULL at 2/);
  const replies = await redis.multi().set("n", 5).takeSeat("more seats", 1).get("n").exec();
  assert.deepEqual(replies, ["OK", { seat: 1 }, "5"]);
  const script = "return {KEYS[1], ARGV[1], 7.9, {false}}";
  assert.deepEqual(await redis.eval(script, { keys: ["k"], arguments: ["v"] }), ["k", "v", 7, [null]]);
  const binary = Buffer.from([0, 255, 13, 10, 128]);
  const buffers = redis.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  assert.deepEqual(await buffers.eval("return ARGV[1]", { arguments: [binary] }), binary);
  assert.equal(await redis.functionLoad(library, { REPLACE: true }), "noderedis");
  assert.equal(await redis.noderedis.noderedis_twice(21), 42);
}

async function pipelines(redis) {
  const replies = await Promise.all(Array.from({ length: 1000 }, () => redis.incr("many")));
  assert.deepEqual(replies, Array.from({ length: 1000 }, (_, index) => index + 1));
  const results = await redis.multi().set("t", 1).incr("t").hSet("t", "a", 1).get("t").exec().catch((error) => error);
  assert.deepEqual(results.replies.map((reply) => reply.message?.split(" ")[0] ?? reply), ["OK", 2, "WRONGTYPE", "2"]);
  await redis.watch("t");
  await redis.set("t", 9);
  await assert.rejects(redis.multi().incr("t").exec(), WatchError);
  assert.equal(await redis.get("t"), "9");
}

async function values(redis) {
  assert.equal(await redis.hSet("h", { one: 1, two: "zwei" }), 2);
  assert.deepEqual({ ...(await redis.hGetAll("h")) }, { one: "1", two: "zwei" });
  const members = [{ value: "a", score: 1 }, { value: "b", score: 2.5 }, { value: "c", score: Infinity }];
  assert.equal(await redis.zAdd("z", members), 3);
  assert.deepEqual(await redis.zRangeWithScores("z", 0, -1), members);
  assert.equal(await redis.zScore("z", "b"), 2.5);
  assert.equal(await redis.set("s", "x", { expiration: { type: "PX", value: 60_000 }, condition: "NX" }), "OK");
  assert.equal(await redis.set("s", "x", { condition: "NX" }), null);
  assert.deepEqual(await redis.sendCommand(["SET", "s", "y", "KEEPTTL", "GET"]), "x");
  await redis.mSet(Array.from({ length: 100 }, (_, index) => [`scan:${index}`, String(index)]));
  const found = new Set();
  for await (const keys of redis.scanIterator({ MATCH: "scan:*", COUNT: 10 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 100);
  await redis.geoAdd("places", { longitude: 13.361389, latitude: 38.115556, member: "Palermo" });
  const centre = { longitude: 15, latitude: 37 };
  assert.deepEqual(await redis.geoSearch("places", centre, { radius: 200, unit: "km" }), ["Palermo"]);
}

async function messages(redis, channel) {
  const listener = await redis.duplicate().connect();
  const heard = [];
  await listener.subscribe(channel, (message, name) => heard.push([name, message]));
  await listener.pSubscribe(`${channel}*`, (message, name) => heard.push(["pattern", name, message]));
  await listener.sSubscribe(channel, (message) => heard.push(["shard", message]));
  assert.equal(await redis.publish(channel, "hello"), 2);
  assert.equal(await redis.sPublish(channel, "there"), 1);
  await until("three messages", () => heard.length === 3);
  assert.deepEqual(heard.sort(), [[channel, "hello"], ["pattern", channel, "hello"], ["shard", "there"]].sort());
  await listener.unsubscribe();
  await listener.pUnsubscribe();
  await listener.sUnsubscribe();
  // The client leaves a string in RESP2 as a buffer when it has been subscribed.
  assert.equal(String(await listener.get("s")), "y");
  await listener.close();
}

async function streams(redis) {
  const ids = [];
  for (let index = 0; index < 5; index += 1) ids.push(await redis.xAdd("events", "*", { n: String(index) }));
  await redis.xGroupCreate("events", "workers", "0");
  const next = { key: "events", id: ">" };
  const [{ name, messages: mine }] = await redis.xReadGroup("workers", "one", next, { COUNT: 3 });
  assert.deepEqual([name, mine.map(({ id }) => id), { ...mine[0].message }], ["events", ids.slice(0, 3), { n: "0" }]);
  assert.equal(await redis.xAck("events", "workers", ids[0]), 1);
  const claimed = await redis.xAutoClaim("events", "workers", "two", 0, "0");
  assert.deepEqual(claimed.messages.map(({ id }) => id), ids.slice(1, 3));
  assert.equal((await redis.xPending("events", "workers")).pending, 2);

  const waiter = await redis.duplicate().connect();
  const waiting = waiter.xRead({ key: "events", id: ids[4] }, { BLOCK: 50_000 });
  const last = await redis.xAdd("events", "*", { n: "5" });
  assert.equal((await waiting)[0].messages[0].id, last);
  assert.equal(await waiter.xRead({ key: "events", id: last }, { BLOCK: 20 }), null);
  const popped = waiter.blPop(["none", "queue"], 50);
  await redis.rPush("queue", "job");
  assert.deepEqual({ ...(await popped) }, { key: "queue", element: "job" });
  await waiter.close();
}

/** Fields of hashes that expire, which Redis has since 7.4 and 8.0. */
async function fields(redis) {
  await redis.hSet("fields", { stays: "1", goes: "2" });
  assert.deepEqual(await redis.hExpire("fields", ["stays", "none"], 100), [1, -2]);
  assert.deepEqual(await redis.hExpire("fields", "stays", 50, "GT"), [0]);
  assert.ok((await redis.hTTL("fields", "stays"))[0] > 90);
  assert.deepEqual(await redis.hPersist("fields", ["stays", "goes"]), [1, -1]);
  assert.equal(await redis.hSetEx("fields", { brief: "3" }, { expiration: { type: "PX", value: 1 } }), 1);
  await until("a field expires", async () => !(await redis.hExists("fields", "brief")));
  const expiration = { type: "EX", value: 100 };
  assert.deepEqual(await redis.hGetEx("fields", ["stays", "none"], { expiration }), ["1", null]);
  assert.ok((await redis.hpTTL("fields", "stays"))[0] > 90_000);
  assert.deepEqual(await redis.hGetDel("fields", "goes"), ["2"]);
  assert.deepEqual({ ...(await redis.hGetAll("fields")) }, { stays: "1" });
}

async function caching(redis) {
  const clientSideCache = new BasicClientSideCache({ ttl: 0, maxEntries: 100 });
  const reader = await connect({ clientSideCache });
  await redis.set("cached", "old");
  // FLUSHDB of another program empties the caches of all clients.
  await until("a hit", async () => (await reader.get("cached")) === "old" && clientSideCache.stats().hitCount > 0);
  await redis.eval("return redis.call('SET', KEYS[1], 'new')", { keys: ["cached"] });
  await until("the new value", async () => (await reader.get("cached")) === "new");
  await redis.flushDb();
  await until("nothing is left", async () => (await reader.get("cached")) === null);
  await reader.close();
}

/** Keys of many slots, a script and messages of shards through a client of Redis Cluster. */
async function cluster(url) {
  const redis = createCluster({ rootNodes: [{ url }], ...patient });
  redis.on("error", (error) => assert.fail(error));
  await redis.connect();
  assert.equal(redis.masters.length, 1);
  const keys = Array.from({ length: 100 }, (_, index) => `node:${index}`);
  await Promise.all(keys.map((key, index) => redis.set(key, index)));
  assert.deepEqual(await Promise.all(keys.map((key) => redis.get(key))), keys.map((_, index) => String(index)));
  assert.deepEqual(await redis.takeSeat("{node}:seats", 1), { seat: 1 });
  await assert.rejects(redis.takeSeat("{node}:seats", 1), /FULL at 1/);
  assert.deepEqual(await redis.multi().set("{node}:a", 1).incr("{node}:a").exec(), ["OK", 2]);
  const heard = [];
  await redis.sSubscribe("{node}:channel", (message) => heard.push(message));
  await redis.sPublish("{node}:channel", "x");
  await until("a message", () => heard.length === 1);
  await redis.sUnsubscribe("{node}:channel");
  await Promise.all([...keys, "{node}:seats", "{node}:a"].map((key) => redis.del(key)));
  await redis.close();
}

// What it speaks by default is RESP3.
for (const [number, options] of [[2, { RESP: 2 }], [3, {}]]) {
  const redis = await connect(options);
  await redis.flushDb();
  for (const check of [scripts, pipelines, values]) await check(redis);
  await messages(redis, `node:${db}:${number}`);
  for (const check of [streams, fields]) await check(redis);
  if (number === 3) await caching(redis);
  assert.match(await redis.sendCommand(["CLIENT", "INFO"]), new RegExp(`resp=${number}`));
  await redis.flushDb();
  await redis.close();
}
if (process.env.CLUSTER) await cluster(`redis://${process.env.CLUSTER}`);
console.log("node-redis is content");
