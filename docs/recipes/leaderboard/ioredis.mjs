import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379");
const lua = readFileSync(new URL("script.lua", import.meta.url), "utf8");
redis.defineCommand("addPoints", { numberOfKeys: 1, lua });

/** The lines of the board around a player who has won some points. */
async function add(player, points) {
  const [first, board] = await redis.addPoints("board", player, points, 1);
  const lines = [];
  for (let at = 0; at < board.length; at += 2) lines.push(`${first + at / 2}. ${board[at]} ${board[at + 1]}`);
  return lines.join("\n");
}

await add("bob", 20);
await add("cyd", 50);
console.log(await add("ada", 30));
console.log(await add("bob", 50));
redis.disconnect();
