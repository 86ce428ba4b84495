// What programs do with Bottleneck, whose scripts have eight keys of a limiter without hash tags: limits that several clients
// share, weights, a reservoir, groups, messages, jobs that expire.
//
// Usage: bottleneck.mjs HOST:PORT DB. CLUSTER in the environment is the address of a server for clients of Redis Cluster.

import assert from "node:assert/strict";
import Bottleneck from "bottleneck";
import * as Redis from "ioredis";

const [address, db] = process.argv.slice(2);
const endpoint = (text) => ({ host: text.split(":")[0], port: Number(text.split(":")[1]) });
// The client's own 10 seconds are short on a busy machine, and a client that is not seen meanwhile is forgotten. A heartbeat
// must not come while connections are closed.
const patient = { clientTimeout: 300_000, heartbeatInterval: 300_000 };
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Ends the program: an exception would be given to this again. */
const fail = (error) => {
  console.error(error.message);
  process.exit(1);
};

/** A connection for the limiters of one client. */
const connect = (options) => {
  const connection = new Bottleneck.IORedisConnection({ Redis: Redis.default, ...options });
  connection.on("error", fail);
  return connection;
};
const limiterOf = (connection, id, options) => {
  const limiter = new Bottleneck({ id: `bottleneck-${id}`, connection, ...patient, ...options });
  limiter.on("error", fail);
  return limiter;
};

/**
 * Jobs of which at most three run at the same time, and start no sooner than 10 ms after another; then another client goes on.
 * Not both at once: a client that takes a second for an answer is removed by the other one, and does not know the error of Redis
 * since 7.0 by which it would register again.
 */
async function shared(connections) {
  const options = { maxConcurrent: 3, minTime: 10 };
  const first = limiterOf(connections[0], "shared", { ...options, clearDatastore: true });
  await first.ready();
  let running = 0;
  let most = 0;
  const job = async (number) => {
    running += 1;
    most = Math.max(most, running);
    await sleep(20);
    running -= 1;
    return number * 2;
  };
  const began = Date.now();
  const jobs = Array.from({ length: 30 }, (_, number) => first.schedule(() => job(number)));
  assert.deepEqual(await Promise.all(jobs), Array.from({ length: 30 }, (_, number) => number * 2));
  // The script computes when jobs start: 29 pauses of 10 ms.
  assert.ok(Date.now() - began >= 280, `${Date.now() - began} ms`);
  assert.ok(most <= 3, `${most} at once`);
  await assert.rejects(first.schedule(() => Promise.reject(new Error("a job"))), /^Error: a job$/);
  assert.deepEqual([await first.running(), await first.done()], [0, 31]);
  await first.disconnect();

  const second = limiterOf(connections[1], "shared", { maxConcurrent: 100 });
  await second.ready();
  await assert.rejects(second.schedule({ weight: 4 }, sleep, 0), /OVERWEIGHT:4:3/);
  assert.equal(await second.schedule(() => job(21)), 42);
  assert.deepEqual([await second.done(), await second.clusterQueued()], [32, 0]);
}

/** What the server refuses: too heavy jobs, and more than the reservoir has. */
async function reservoir([connection]) {
  const limiter = limiterOf(connection, "reservoir", { maxConcurrent: 5, reservoir: 4, clearDatastore: true });
  await limiter.ready();
  // Since 7.0, Redis puts ERR before an error of one word: the client passes on what it would translate.
  await assert.rejects(limiter.schedule({ weight: 6 }, sleep, 0), /OVERWEIGHT:6:5/);
  assert.equal(await limiter.check(4), true);
  await limiter.schedule({ weight: 3 }, sleep, 0);
  assert.equal(await limiter.currentReservoir(), 1);
  assert.equal(await limiter.check(2), false);
  const waiting = limiter.schedule({ weight: 2 }, async () => "late");
  assert.equal(await limiter.incrementReservoir(5), 6);
  assert.equal(await waiting, "late");
  await limiter.updateSettings({ maxConcurrent: 1 });
  await assert.rejects(limiter.schedule({ weight: 2 }, sleep, 0), /OVERWEIGHT:2:1/);
  await assert.rejects(limiter.schedule({ expiration: 30 }, sleep, 200), /timed out after 30 ms/);
}

/** A limiter for each visitor, which all clients see, and a message to all of them. */
async function groups(connections) {
  const options = { id: "bottleneck-visitors", ...patient, maxConcurrent: 1 };
  const [one, other] = connections.map((connection) => new Bottleneck.Group({ connection, ...options }));
  for (const group of [one, other]) group.on("error", fail);
  const names = Array.from({ length: 10 }, (_, index) => `visitor-${index}`);
  const greet = (name) => one.key(name).schedule(async () => `hello ${name}`);
  assert.deepEqual(await Promise.all(names.map(greet)), names.map((name) => `hello ${name}`));
  assert.deepEqual((await other.clusterKeys()).sort(), names);
  const listener = other.key(names[0]);
  await listener.ready();
  const heard = new Promise((resolve) => listener.on("message", resolve));
  await one.key(names[0]).publish("a message");
  assert.equal(await heard, "a message");
  for (const name of names) assert.equal(await one.deleteKey(name), true);
  assert.deepEqual(await other.clusterKeys(), []);
}

async function run(options, checks) {
  const connections = [connect(options), connect(options)];
  await Promise.all(connections.map((connection) => connection.ready));
  await Promise.all(checks.map((check) => check(connections)));
  await Promise.all(connections.map((connection) => connection.disconnect()));
}

await run({ clientOptions: { ...endpoint(address), db: Number(db) } }, [shared, reservoir, groups]);
// Groups delete the keys of a limiter in one pipeline, which ioredis refuses for Redis Cluster.
if (process.env.CLUSTER) await run({ clusterNodes: [endpoint(process.env.CLUSTER)] }, [shared, reservoir]);
console.log("Bottleneck is content");
