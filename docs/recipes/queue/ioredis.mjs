import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("queue", { numberOfKeys: 4, lua });
const keys = ["waiting", "working", "payloads", "last"].map((part) => `{mail}:${part}`);

for (const name of ["ada", "bob"]) {
  console.log("put", await redis.queue(keys, "put", `welcome ${name}`));
}

// A worker has 30 seconds for a job.
const [id, payload, deadline] = await redis.queue(keys, "take", 30_000);
console.log(`job ${id}: ${payload}`);
console.log("done:", (await redis.queue(keys, "done", id, deadline)) === 1);
console.log("done again:", (await redis.queue(keys, "done", id, deadline)) === 1);
const [next, text] = await redis.queue(keys, "take", 30_000);
console.log(`job ${next}: ${text}`);
if ((await redis.queue(keys, "take", 30_000)) === null) console.log("no job");
redis.disconnect();
