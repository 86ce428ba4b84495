import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("saveUser", { numberOfKeys: 3, lua });

async function save(id, email, city) {
  await redis.saveUser(`user:${id}`, "users:by-email", `users:in:${city}`, id, email, city);
}

async function show(city) {
  const ids = await redis.smembers(`users:in:${city}`);
  console.log(`${city}:`, ...ids.sort());
}

await save(1, "a@example.com", "Oslo");
await save(2, "a@example.com", "Oslo").catch((error) => console.log(error.message));
await save(2, "b@example.com", "Oslo");
await show("Oslo");
await save(1, "a@example.com", "Rome");
await show("Oslo");
await show("Rome");
console.log("b@example.com:", await redis.hget("users:by-email", "b@example.com"));
redis.disconnect();
