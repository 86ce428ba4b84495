/** A server of its own for each file of tests. */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const target = process.env.CARGO_TARGET_DIR ?? join(import.meta.dirname, "../../target");
const program = process.env.MOONSHARD_BIN ?? resolve(target, "debug/moonshard");

export interface Server {
  url: string;
  command(...args: (string | number)[]): Promise<unknown>;
  stop(): Promise<void>;
}

/** Starts a server that keeps nothing, on ports that are free or on the one of `http`. `password` is that of its user. */
export async function start(
  http = "127.0.0.1:0",
  more: string[] = ["--data-dir", "none"],
  password = "",
): Promise<Server> {
  // How long a script takes is the machine's matter.
  const patient = ["--script-timeout-ms", "60000"];
  const options = ["--resp", "127.0.0.1:0", "--http", http, "--grpc", "off", ...patient, ...more];
  const { child, address } = await run(options, /^moonshard ready .*http=(\S+)/, password);
  const url = `http://${address}`;
  const headers = {
    "Content-Type": "application/json",
    ...(password && { Authorization: `Bearer ${password}` }),
  };
  return {
    url,
    async command(...args) {
      const answer = await fetch(`${url}/v1/command`, {
        method: "POST",
        headers,
        body: JSON.stringify({ args }),
      });
      return ((await answer.json()) as { reply: unknown }).reply;
    },
    stop: () => stop(child),
  };
}

/** Starts a store node that keeps nothing: its address, and how it is stopped. */
export async function startStore(): Promise<{ address: string; stop(): Promise<void> }> {
  const options = ["store", "--grpc", "127.0.0.1:0", "--data-dir", "none"];
  const { child, address } = await run(options, /^moonshard store ready grpc=(\S+)/);
  return { address, stop: () => stop(child) };
}

/** Processes with replicas of the same groups. */
export interface Replicas {
  addresses: string[];
  /** Ends one of them as a crash would. */
  kill(at: number): Promise<void>;
  /** Ends all, and deletes their data. */
  stop(): Promise<void>;
}

/** Makes three processes a cluster with three replicas of each group. */
export async function startReplicas(): Promise<Replicas> {
  const data = mkdtempSync(join(tmpdir(), "moonshard-console-"));
  const running = new Set<ChildProcess>();
  const kill = async (child: ChildProcess | undefined) => {
    if (child && running.delete(child)) await stop(child);
  };
  const end = async () => {
    await Promise.all([...running].map(kill));
    rmSync(data, { recursive: true });
  };
  try {
    const stores: { child: ChildProcess; address: string }[] = [];
    for (const at of [1, 2, 3]) {
      const options = ["store", "--grpc", "127.0.0.1:0", "--data-dir", join(data, String(at))];
      const store = await run([...options, "--durability", "sync"], /^moonshard store ready grpc=(\S+)/);
      running.add(store.child);
      stores.push(store);
    }
    const addresses = stores.map((store) => store.address);
    await promisify(execFile)(program, ["topology", "found", "--stores", addresses.join(",")]);
    return { addresses, kill: (at) => kill(stores[at]?.child), stop: end };
  } catch (error) {
    await end();
    throw error;
  }
}

async function run(
  options: string[],
  sign: RegExp,
  password = "",
): Promise<{ child: ChildProcess; address: string }> {
  if (!existsSync(program)) throw new Error(`${program} is not there: cargo build --package gateway`);
  const env = { ...process.env, MOONSHARD_REQUIREPASS: password };
  const child = spawn(program, options, { env, stdio: ["ignore", "pipe", "inherit"] });
  return { child, address: await ready(child, sign) };
}

function stop(child: ChildProcess): Promise<void> {
  return new Promise((done) => {
    child.once("exit", () => done());
    child.kill("SIGKILL");
  });
}

/** Where it serves, as its first line says. */
async function ready(child: ChildProcess, sign: RegExp): Promise<string> {
  if (!child.stdout) throw new Error("the server's output is piped");
  for await (const line of createInterface({ input: child.stdout })) {
    const found = sign.exec(line);
    if (found?.[1]) return found[1];
  }
  throw new Error("the server ended before it was ready");
}
