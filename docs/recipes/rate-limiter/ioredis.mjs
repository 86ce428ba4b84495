import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("takeTokens", { numberOfKeys: 1, lua });

/** At most 3 requests at once, and 3 in a minute. */
async function allow(user) {
  const [allowed] = await redis.takeTokens(`limit:${user}`, 3, 3 / 60, 1);
  return allowed === 1;
}

for (const user of ["ada", "ada", "ada", "ada", "bob"]) {
  console.log(`${user}: ${(await allow(user)) ? "allowed" : "refused"}`);
}
redis.disconnect();
