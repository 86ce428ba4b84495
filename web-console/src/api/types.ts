/** What the API answers, as openapi.json describes it. */
import type { Text } from "./text";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface Run {
  sha: string;
  mode: "atomic" | "async" | "read-only";
  outcome: "ok" | "error" | "limit" | "killed";
  fuel: number;
  memory_bytes: number;
  calls: number;
  reruns: number;
  microseconds: number;
}

export interface Preview {
  type: string;
  length: number;
  expire_at_ms: number | null;
  sticky: boolean;
  elements: Text[];
}

export interface Write {
  db: number;
  key: Text | null;
  before: Preview | null;
  after: Preview | null;
}

export interface Call {
  args: Text[];
  arg_count: number;
  db: number;
  key: Text | null;
  shard: number | null;
  at_microseconds: number;
  microseconds: number;
  reply?: Json;
  error?: { code: string; message: string };
  long_reply?: { kind: string; length: number | null; bytes: number };
  collected?: true;
  /** With `variables`: the line of the script. */
  line?: number | null;
  /** With `variables`: the functions that led to it, the innermost first. */
  frames?: Frame[];
  frames_cut?: boolean;
}

export interface Frame {
  function: string;
  line: number | null;
  variables: { name: Text; value: LuaValue }[];
}

export type LuaValue =
  | { type: "nil" | "function" | "thread" | "userdata" }
  | { type: "boolean"; value: boolean }
  | { type: "number"; value: string }
  | { type: "string"; value: Text; length: number }
  | { type: "table"; entries: [LuaValue, LuaValue][]; count: number | null };

export type Step = { call: Call } | { log: { level: string; text: Text } };

export interface Trace {
  steps: Step[];
  omitted: number;
  frames_omitted?: number;
  reruns: { why: string; db: number | null; key: Text | null }[];
}

/** What is told of a run whether it ended well or not. */
export interface Told {
  run?: Run | null;
  writes?: Write[];
  writes_omitted?: number;
  trace?: Trace;
}

export interface EvalReply extends Told {
  reply: Json;
  raw?: Text;
}

export interface EvalRequest {
  script: string;
  keys: Text[];
  args: Text[];
  flags: string[];
  limits: { fuel?: number; timeout_ms?: number; memory?: string };
  read_only?: boolean;
  dry_run?: boolean;
  trace?: boolean;
  variables?: boolean;
  raw?: boolean;
  writes?: boolean;
}

export interface CommandDoc {
  summary: string;
  since: string;
  group: string;
  complexity: string;
  syntax: string;
  arity: number;
  flags: string[];
  subcommands?: Record<string, CommandDoc>;
}

export type Docs = Record<string, CommandDoc>;

export interface KnownScript {
  sha: string;
  name: string | null;
  flags: string[];
  bytes: number;
  loaded: boolean;
  script?: Text;
}

export interface KeyValue {
  key: Text;
  type: "string" | "list" | "hash" | "set" | "zset" | "stream" | "ReJSON-RL";
  ttl_ms: number | null;
  sticky: boolean;
  bytes: number;
  length: number;
  value: Json;
  cursor: string | null;
}

export interface Member {
  address: string;
  slots: string;
  slot_count: number;
  keys: number;
  bytes: number;
  epoch: number;
  lag: number;
  reachable: boolean;
  error: string | null;
}

/** A process of a cluster with replicas. */
export interface StoreProcess {
  id: number;
  address: string;
  /** Where its machine is; empty if that is not known. */
  zone: string;
  state: "active" | "joining" | "leaving" | "lost";
  answers: boolean;
  error: string | null;
}

export interface Replica {
  process: number;
  address: string;
  state: "leader" | "follower" | "learner" | "waits_for_copy" | "missing";
  leads: boolean;
  lag_entries: number | null;
  answers: boolean;
  leaves: boolean;
}

export interface Group {
  name: string;
  slots: string;
  leader: string | null;
  term: number | null;
  changing: boolean;
  replicas: Replica[];
}

export interface Topology {
  mode: "embedded" | "distributed";
  stores: string[];
  epoch: number | null;
  /** Of a cluster with replicas these are the groups that have slots, by name. */
  members: Member[];
  /** Of a cluster with replicas: how many each group is to have. */
  replicas: number | null;
  processes: StoreProcess[] | null;
  groups: Group[] | null;
  nodes: {
    id: string;
    version: string;
    resp: string;
    shards: number | null;
    threads: number;
    keys: number;
    bytes: number;
  }[];
}
