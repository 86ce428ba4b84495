/** A server of its own for each file of tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const target = process.env.CARGO_TARGET_DIR ?? join(import.meta.dirname, "../../target");
const program = process.env.MOONSHARD_BIN ?? resolve(target, "debug/moonshard");

export interface Server {
  url: string;
  command(...args: (string | number)[]): Promise<unknown>;
  stop(): Promise<void>;
}

/** Starts a server that keeps nothing, on ports that are free or on the one of `http`. */
export async function start(http = "127.0.0.1:0"): Promise<Server> {
  if (!existsSync(program)) throw new Error(`${program} is not there: cargo build --package gateway`);
  const options = ["--resp", "127.0.0.1:0", "--http", http, "--grpc", "off", "--data-dir", "none"];
  const child = spawn(program, options, { stdio: ["ignore", "pipe", "inherit"] });
  const address = await ready(child);
  const url = `http://${address}`;
  return {
    url,
    async command(...args) {
      const answer = await fetch(`${url}/v1/command`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ args }),
      });
      return ((await answer.json()) as { reply: unknown }).reply;
    },
    stop: () =>
      new Promise((done) => {
        child.once("exit", () => done());
        child.kill("SIGKILL");
      }),
  };
}

/** Where it serves HTTP, as its first line says. */
async function ready(child: ChildProcess): Promise<string> {
  if (!child.stdout) throw new Error("the server's output is piped");
  for await (const line of createInterface({ input: child.stdout })) {
    const found = /^moonshard ready .*http=(\S+)/.exec(line);
    if (found?.[1]) return found[1];
  }
  throw new Error("the server ended before it was ready");
}
