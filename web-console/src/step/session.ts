/** A script that is stepped through: what it is about to call, and what it called before. */
import { signal } from "@preact/signals";
import { ask, Problem } from "../api/http";
import type { Text } from "../api/text";
import type { Json, Trace } from "../api/types";
import { runtimeMark, shownLine } from "../editor/marks";
import { complaint } from "../run/execute";
import { type Trouble, troubleOf } from "../run/problem";
import { draft, requestOf } from "../run/state";
import { type FromWorker, type Halt, literalOf, ofLatin1, type ToWorker, type Value } from "./protocol";
import workerAddress from "./worker.ts?worker&url";

export interface Done {
  words: Text[];
  line: number | null;
  shard: number | null;
  reply: Json;
  error: string | null;
}

export interface Session {
  state: "computing" | "halted" | "calling" | "ended";
  halt: Halt | null;
  done: Done[];
  logs: string[];
  value: Value | null;
  trouble: Trouble | null;
  /** Goes on by itself. */
  runs: boolean;
}

export const stepping = signal<Session | null>(null);

/** The same for each call: it is made by a script of its own, so that its reply is what scripts get. */
const CALL = "if tonumber(ARGV[1]) == 3 then redis.setresp(3) end return redis.pcall(unpack(ARGV, 2))";

let worker: Worker | null = null;
let readOnly = false;

function change(part: Partial<Session>): void {
  if (stepping.value) stepping.value = { ...stepping.value, ...part };
}

interface Policy {
  createScriptURL(address: string): string;
}
interface Policies {
  createPolicy(name: string, rules: Policy): Policy;
}

let policy: Policy | undefined;

/** The page's strict policy lets no address become a script unless this rule says that it is the worker's. */
function newWorker(): Worker {
  const own: Policy = {
    createScriptURL: (address) => {
      if (address !== workerAddress) throw new TypeError(`${address} is not the worker`);
      return address;
    },
  };
  const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
  policy ??= policies?.createPolicy("stepper", own) ?? own;
  return new Worker(policy.createScriptURL(workerAddress), { type: "module" });
}

function tell(told: ToWorker): void {
  worker?.postMessage(told);
}

export function begin(): void {
  const made = requestOf(draft.value);
  complaint.value = "wrong" in made ? made.wrong : null;
  if ("wrong" in made) return;
  const { script, keys, args } = made.request;
  readOnly = made.request.read_only === true || /^(#!lua|--!df).*no-writes/.test(script);
  stepping.value = {
    state: "computing",
    halt: null,
    done: [],
    logs: [],
    value: null,
    trouble: null,
    runs: false,
  };
  runtimeMark.value = null;
  worker = newWorker();
  worker.onmessage = ({ data }: MessageEvent<FromWorker>) => hear(data);
  worker.onerror = () => end({ trouble: broken("Lua could not be started in this browser.") });
  tell({ begin: { script, keys, args } });
}

function broken(message: string): Trouble {
  return { code: "CONSOLE", message, line: null, hint: "Reload the page. Run and Dry run work without it." };
}

function end(part: Partial<Session>): void {
  worker?.terminate();
  worker = null;
  change({ state: "ended", halt: null, ...part });
  const trouble = stepping.value?.trouble;
  shownLine.value = null;
  if (trouble?.line) runtimeMark.value = { line: trouble.line, message: trouble.message };
}

function hear(told: FromWorker): void {
  const now = stepping.value;
  if (!now || now.state === "ended") return;
  if ("log" in told) {
    change({ logs: [...now.logs, `${told.log.level}: ${told.log.text}`] });
  } else if ("done" in told) {
    end({ value: told.done });
  } else if ("failed" in told) {
    const trouble = troubleOf(new Problem(400, { code: "ERR", detail: String(told.failed.message) }));
    end({ trouble: { ...trouble, line: told.failed.line ?? trouble.line } });
  } else {
    change({ state: "halted", halt: told.halt });
    shownLine.value = told.halt.line;
    if (now.runs) void next();
  }
}

/** Makes the call that the script is halted before, and goes on to the next. */
export async function next(): Promise<void> {
  const halt = stepping.value?.halt;
  if (!halt || stepping.value?.state !== "halted") return;
  change({ state: "calling" });
  const words = halt.words.map(ofLatin1);
  const body = {
    script: CALL,
    keys: [],
    args: [halt.resp, ...words],
    read_only: readOnly,
    trace: true,
    flags: ["undeclared-keys=widen"],
  };
  let reply: Json;
  let trace: Trace | undefined;
  try {
    const told = await ask<{ reply: Json; trace?: Trace }>("/v1/eval?lossless=true", { body });
    [reply, trace] = [told.reply, told.trace];
  } catch (error) {
    if (!(error instanceof Problem)) return end({ trouble: troubleOf(error) });
    reply = { error: { code: error.code, message: error.message } };
    trace = error.body.trace as Trace | undefined;
  }
  const now = stepping.value;
  if (now?.state !== "calling") return;
  const message = reply && typeof reply === "object" && !Array.isArray(reply) ? reply.error : undefined;
  const step = trace?.steps.find((one) => "call" in one);
  const done: Done = {
    words,
    line: halt.line,
    shard: step && "call" in step ? step.call.shard : null,
    reply,
    error: message ? String((message as { message: string }).message) : null,
  };
  change({ state: "computing", halt: null, done: [...now.done, done] });
  tell({ answer: literalOf(reply) });
}

/** Makes all calls to the end. */
export function goOn(): void {
  change({ runs: true });
  void next();
}

/** Halts again before the next call. */
export function pause(): void {
  change({ runs: false });
}

/** Ends it where it is. What its calls wrote stays. */
export function stop(): void {
  if (stepping.value?.state === "ended") stepping.value = null;
  else end({});
}

/** Back to what was there before. */
export function leave(): void {
  end({});
  stepping.value = null;
}
