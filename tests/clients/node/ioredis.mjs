// What programs do with ioredis: scripts as commands, pipelines made by hand and by itself, transactions, pub/sub,
// streams, blocking pops, both protocols.
//
// Usage: ioredis.mjs HOST:PORT DB

import assert from "node:assert/strict";
import { once } from "node:events";
import { Redis } from "ioredis";

const [address, db] = process.argv.slice(2);
const [host, port] = address.split(":");
const connect = (options) => new Redis({ host, port: Number(port), db: Number(db), ...options });

// A counter that never passes its limit.
const seats = {
  numberOfKeys: 1,
  lua: `local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
    if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
    return redis.call('INCR', KEYS[1])`,
};

async function scripts(redis) {
  redis.defineCommand("takeSeat", seats);
  redis.defineCommand("echoAll", { lua: "return {KEYS, ARGV, #KEYS}" });
  for (const wanted of [1, 2]) assert.equal(await redis.takeSeat("seats", 2), wanted);
  await assert.rejects(redis.takeSeat("seats", 2), /^ReplyError: FULL at 2$/);
  assert.deepEqual(await redis.echoAll(2, "a", "b", "c"), [["a", "b"], ["c"], 2]);
  // In a pipeline, where the script has to be sent if the server does not know it.
  const replies = await redis.pipeline().set("n", 5).takeSeat("more-seats", 1).takeSeat("more-seats", 1).get("n").exec();
  assert.deepEqual(replies.slice(0, 2), [[null, "OK"], [null, 1]]);
  assert.equal(replies[2][0].message, "FULL at 1");
  assert.deepEqual(replies[3], [null, "5"]);
  const binary = Buffer.from([0, 255, 13, 10, 128]);
  redis.defineCommand("same", { numberOfKeys: 0, lua: "return ARGV[1]" });
  assert.deepEqual(await redis.sameBuffer(binary), binary);
}

async function pipelines(redis) {
  const pipeline = redis.pipeline();
  for (let index = 0; index < 1000; index += 1) pipeline.incr("many");
  assert.deepEqual((await pipeline.exec()).map(([, reply]) => reply), Array.from({ length: 1000 }, (_, i) => i + 1));

  const automatic = connect({ enableAutoPipelining: true });
  const sets = Array.from({ length: 200 }, (_, index) => automatic.set(`auto:${index}`, index));
  assert.ok((await Promise.all(sets)).every((reply) => reply === "OK"));
  const gets = await Promise.all(Array.from({ length: 200 }, (_, index) => automatic.get(`auto:${index}`)));
  assert.deepEqual(gets, Array.from({ length: 200 }, (_, index) => String(index)));
  await assert.rejects(automatic.lpush("auto:1", "x"), /WRONGTYPE/);
  automatic.disconnect();

  const result = await redis.multi().set("t", 1).incr("t").hset("t", "a", 1).get("t").exec();
  assert.deepEqual(result.map(([error, reply]) => error?.message.split(" ")[0] ?? reply), ["OK", 2, "WRONGTYPE", "2"]);
  await redis.watch("t");
  await redis.set("t", 9);
  assert.equal(await redis.multi().incr("t").exec(), null);
}

async function values(redis) {
  assert.equal(await redis.hset("h", { one: 1, two: "zwei" }), 2);
  assert.deepEqual(await redis.hgetall("h"), { one: "1", two: "zwei" });
  await redis.zadd("z", 1, "a", 2.5, "b", "inf", "c");
  assert.deepEqual(await redis.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5", "c", "inf"]);
  assert.equal(await redis.set("s", "x", "PX", 60_000, "NX"), "OK");
  assert.equal(await redis.set("s", "x", "NX"), null);
  const found = new Set();
  for await (const keys of redis.scanStream({ match: "auto:1*", count: 50 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 111);
  const fields = [];
  for await (const part of redis.hscanStream("h")) fields.push(...part);
  assert.deepEqual(fields.sort(), ["1", "one", "two", "zwei"]);
  await redis.geoadd("places", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania");
  assert.deepEqual(await redis.geosearch("places", "FROMLONLAT", 15, 37, "BYRADIUS", 200, "km", "ASC"), ["Catania", "Palermo"]);
}

async function messages(redis) {
  const listener = connect();
  const heard = [];
  listener.on("message", (channel, message) => heard.push([channel, message]));
  listener.on("pmessage", (pattern, channel, message) => heard.push([pattern, channel, message]));
  assert.equal(await listener.subscribe(`io:${db}:a`, `io:${db}:b`), 2);
  assert.equal(await listener.psubscribe(`io:${db}:?`), 3);
  assert.equal(await redis.publish(`io:${db}:a`, "hello"), 2);
  while (heard.length < 2) await once(listener, "pmessage");
  assert.deepEqual(heard, [[`io:${db}:a`, "hello"], [`io:${db}:?`, `io:${db}:a`, "hello"]]);
  assert.equal(await listener.punsubscribe(`io:${db}:?`), 2);
  assert.equal(await listener.unsubscribe(`io:${db}:a`, `io:${db}:b`), 0);
  assert.equal(await listener.get("s"), "x");
  listener.disconnect();
}

async function streams(redis) {
  const reader = connect();
  const waiting = reader.xread("BLOCK", 0, "STREAMS", "events", "$");
  // It may not wait yet: then what is added first is not for it.
  const entries = setInterval(() => redis.xadd("events", "*", "kind", "birth"), 20);
  const [[name, [[, fields]]]] = await waiting;
  clearInterval(entries);
  assert.deepEqual([name, fields], ["events", ["kind", "birth"]]);
  await redis.del("events");
  const ids = [];
  for (let index = 0; index < 5; index += 1) ids.push(await redis.xadd("events", "*", "n", index));
  await redis.xgroup("CREATE", "events", "workers", "0");
  const [[, mine]] = await redis.xreadgroup("GROUP", "workers", "one", "COUNT", 3, "STREAMS", "events", ">");
  assert.deepEqual(mine.map(([id]) => id), ids.slice(0, 3));
  assert.equal(await redis.xack("events", "workers", ids[0]), 1);
  const [, claimed] = await redis.xautoclaim("events", "workers", "two", 0, "0");
  assert.deepEqual(claimed.map(([id]) => id), ids.slice(1, 3));
  assert.equal((await redis.xpending("events", "workers"))[0], 2);
  reader.disconnect();
}

async function blocking(redis) {
  const waiter = connect();
  const popped = waiter.blpop("queue:a", "queue:b", 20);
  await redis.rpush("queue:b", "job");
  assert.deepEqual(await popped, ["queue:b", "job"]);
  assert.equal(await waiter.brpop("queue:a", 0.05), null);
  waiter.disconnect();
}

for (const protocol of [3, 2]) {
  const redis = connect({ protocol });
  await redis.flushdb();
  for (const check of [scripts, pipelines, values, messages, streams, blocking]) await check(redis);
  assert.match(await redis.client("INFO"), new RegExp(`resp=${protocol}`));
  await redis.quit();
}
console.log("ioredis is content");
