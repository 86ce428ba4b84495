// What programs do with BullMQ: jobs with priorities and delays, repeated and limited ones, flows, retries and events.
//
// Usage: bullmq.mjs HOST:PORT DB

import assert from "node:assert/strict";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";

const [address, db] = process.argv.slice(2);
const [host, port] = address.split(":");
const connection = { host, port: Number(port), db: Number(db) };
const open = [];

const keep = (thing) => {
  open.push(thing);
  return thing;
};

/** Waits until `holds` does, or says what did not come about. */
async function until(what, holds) {
  const deadline = Date.now() + 60_000;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A queue, what its workers have done in their order, and its events. */
async function workshop(name, work = async (job) => job.data.n * 2, options = {}) {
  const queue = keep(new Queue(name, { connection }));
  queue.setMaxListeners(100);
  await queue.obliterate({ force: true });
  // From the first on: it may begin to read after a worker has begun.
  const events = keep(new QueueEvents(name, { connection, lastEventId: "0" }));
  await events.waitUntilReady();
  const done = [];
  const start = () =>
    keep(
      new Worker(
        name,
        async (job) => {
          const result = await work(job);
          done.push(job.name);
          return result;
        },
        { connection, drainDelay: 1, ...options },
      ),
    );
  return { queue, events, done, start };
}

async function ordinary() {
  const { queue, events, start } = await workshop("ordinary", undefined, { concurrency: 10 });
  const seen = [];
  events.on("completed", ({ jobId, returnvalue }) => seen.push([jobId, returnvalue]));
  start();
  const jobs = await queue.addBulk(Array.from({ length: 50 }, (_, n) => ({ name: "double", data: { n } })));
  const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 60_000)));
  assert.deepEqual(results, Array.from({ length: 50 }, (_, n) => n * 2));
  await until("50 events", () => seen.length === 50);
  assert.equal((await queue.getJobCounts()).completed, 50);
  assert.equal((await queue.getCompleted(0, 9)).length, 10);
}

async function priorities() {
  const { queue, done, start } = await workshop("priorities", undefined, { concurrency: 1 });
  for (const priority of [3, 1, 2]) await queue.add(`p${priority}`, { n: 1 }, { priority });
  await queue.add("first", { n: 1 });
  await queue.add("lifo", { n: 1 }, { lifo: true });
  start();
  await until("five jobs", () => done.length === 5);
  assert.deepEqual(done, ["lifo", "first", "p1", "p2", "p3"]);
}

async function delays() {
  const { queue, done, events, start } = await workshop("delays");
  const later = await queue.add("later", { n: 21 }, { delay: 300 });
  await queue.add("now", { n: 1 });
  assert.equal(await later.getState(), "delayed");
  start();
  assert.equal(await later.waitUntilFinished(events, 60_000), 42);
  assert.deepEqual(done, ["now", "later"]);
  const job = await queue.getJob(later.id);
  assert.ok(job.processedOn - job.timestamp >= 300, `${job.processedOn - job.timestamp} ms`);
}

async function retries() {
  const failing = async (job) => {
    if (job.attemptsMade < 2) throw new Error("not yet");
    return "at last";
  };
  const { queue, events, start } = await workshop("retries", failing);
  start();
  const stubborn = await queue.add("stubborn", {}, { attempts: 3, backoff: { type: "exponential", delay: 20 } });
  assert.equal(await stubborn.waitUntilFinished(events, 60_000), "at last");
  const doomed = await queue.add("doomed", {}, { attempts: 1 });
  await assert.rejects(doomed.waitUntilFinished(events, 60_000), /not yet/);
  assert.deepEqual((await queue.getFailed()).map((job) => job.name), ["doomed"]);
  await (await queue.getJob(doomed.id)).retry();
  await until("it is tried again", async () => (await queue.getJob(doomed.id)).attemptsMade >= 2);
}

async function repeated() {
  const { queue, done, start } = await workshop("repeated");
  await queue.upsertJobScheduler("often", { every: 100, limit: 4 }, { name: "tick", data: { n: 1 } });
  await queue.upsertJobScheduler("nightly", { pattern: "0 3 * * *" }, { name: "night", data: { n: 1 } });
  start();
  await until("it is repeated", () => done.filter((name) => name === "tick").length >= 3);
  const schedulers = await queue.getJobSchedulers();
  assert.ok(schedulers.some(({ key, pattern }) => key === "nightly" && pattern === "0 3 * * *"));
  assert.ok(await queue.removeJobScheduler("nightly"));
  await queue.removeJobScheduler("often");
}

async function limited() {
  const { queue, done, start } = await workshop("limited", undefined, { limiter: { max: 2, duration: 300 } });
  await queue.addBulk(Array.from({ length: 5 }, () => ({ name: "x", data: { n: 1 } })));
  const began = Date.now();
  start();
  await until("five jobs", () => done.length === 5);
  // Two, two and one: two times the limit had to be waited for.
  assert.ok(Date.now() - began >= 500, `${Date.now() - began} ms`);
}

async function flows() {
  const results = async (job) =>
    job.name === "sum" ? Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0) : job.data.n;
  const { events, start } = await workshop("flows", results, { concurrency: 3 });
  const producer = keep(new FlowProducer({ connection }));
  const { job, children } = await producer.add({
    name: "sum",
    queueName: "flows",
    children: [1, 2, 3].map((n) => ({ name: "part", queueName: "flows", data: { n } })),
  });
  assert.equal(children.length, 3);
  assert.equal(await job.getState(), "waiting-children");
  start();
  assert.equal(await job.waitUntilFinished(events, 60_000), 6);
}

async function paused() {
  const { queue, done, start } = await workshop("paused");
  await queue.pause();
  start();
  await queue.add("patient", { n: 1 }, { jobId: "only-one" });
  await queue.add("patient", { n: 1 }, { jobId: "only-one" });
  assert.equal(await queue.getWaitingCount(), 1);
  assert.deepEqual(done, []);
  await queue.resume();
  // A worker has done a job before the queue knows of it.
  await until("it goes on", async () => (await queue.getCompletedCount()) === 1);
  assert.deepEqual(done, ["patient"]);
  await queue.drain();
  assert.equal(await queue.clean(0, 100, "completed").then((ids) => ids[0]), "only-one");
}

const all = [ordinary, priorities, delays, retries, repeated, limited, flows, paused];
await Promise.all(all.map((check) => check()));
await Promise.all(open.map((thing) => thing.close()));
console.log("BullMQ is content");
