import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("timelinePage", { numberOfKeys: 1, lua });

await redis.hset("user:1", { name: "Ada" });
await redis.hset("user:2", { name: "Bob" });
await redis.hset("post:10", { author: 1, text: "first", likes: 7 });
await redis.hset("post:11", { author: 2, text: "second", likes: 0 });
await redis.zadd("timeline", 1000, "10", 2000, "11", 1500, "12");

const page = async (skip) => JSON.parse(await redis.timelinePage("timeline", skip, 10));

for (const { author, text, likes } of await page(0)) console.log(`${author}: ${text} (${likes} likes)`);
console.log((await page(10)).length, "posts");
redis.disconnect();
