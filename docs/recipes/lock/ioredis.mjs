import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("lock", { numberOfKeys: 2, lua });
const keys = ["{report}:lock", "{report}:token"];

async function acquire(owner) {
  const token = await redis.lock(keys, "acquire", owner, 30_000);
  console.log(`${owner}: ${token === null ? "held by another owner" : `token ${token}`}`);
}

async function release(owner) {
  const released = await redis.lock(keys, "release", owner);
  console.log(`${owner}: ${released ? "released" : "not the owner"}`);
}

await acquire("ada");
await acquire("bob");
await release("ada");
await acquire("bob");
await release("ada");
redis.disconnect();
