/** What is to be run, as the controls of the playground show it. */
import { computed, signal } from "@preact/signals";
import { database } from "../api/http";
import { fromHex, type Text, textOf } from "../api/text";
import type { EvalRequest } from "../api/types";

export type RowKind = "text" | "number" | "hex" | "json";

/** A key or argument as it is typed. */
export interface Row {
  id: number;
  kind: RowKind;
  text: string;
}

export type Mode = "atomic" | "read-only" | "async";

/** All that a run depends on, in a form that can be kept and shared. */
export interface Draft {
  script: string;
  keys: { kind: RowKind; text: string }[];
  args: { kind: RowKind; text: string }[];
  mode: Mode;
  flags: string[];
  /** Whether a run is to tell what it wrote. */
  changes: boolean;
  limits: { fuel: string; timeout: string; memory: string };
  db: number;
}

export const EMPTY: Draft = {
  script: "",
  keys: [],
  args: [],
  mode: "atomic",
  flags: [],
  changes: true,
  limits: { fuel: "", timeout: "", memory: "" },
  db: 0,
};

let lastId = 0;

/** How often a draft was shown. */
export const loads = signal(0);

export const script = signal("");
export const keys = signal<Row[]>([]);
export const args = signal<Row[]>([]);
export const mode = signal<Mode>("atomic");
export const flags = signal<string[]>([]);
export const changes = signal(true);
export const limits = signal(EMPTY.limits);

/** Shows a draft. */
export function load(draft: Draft): void {
  const rows = (of: Draft["keys"]) => of.map((row) => ({ ...row, id: ++lastId }));
  loads.value += 1;
  script.value = draft.script;
  keys.value = rows(draft.keys);
  args.value = rows(draft.args);
  mode.value = draft.mode;
  flags.value = draft.flags;
  changes.value = draft.changes;
  limits.value = draft.limits;
  database.value = draft.db;
}

export const draft = computed<Draft>(() => {
  const rows = (of: Row[]) => of.map(({ kind, text }) => ({ kind, text }));
  return {
    script: script.value,
    keys: rows(keys.value),
    args: rows(args.value),
    mode: mode.value,
    flags: flags.value,
    changes: changes.value,
    limits: limits.value,
    db: database.value,
  };
});

export function newRow(kind: RowKind = "text", text = ""): Row {
  return { id: ++lastId, kind, text };
}

/** What a row stands for, or what is wrong with it. */
export function wordOf({ kind, text }: { kind: RowKind; text: string }): { value: Text } | { wrong: string } {
  switch (kind) {
    case "text":
      return { value: text };
    case "number":
      return text.trim() !== "" && Number.isFinite(Number(text))
        ? { value: text.trim() }
        : { wrong: "not a number" };
    case "hex": {
      const bytes = fromHex(text);
      return bytes ? { value: textOf(bytes) } : { wrong: "not pairs of hexadecimal digits" };
    }
    case "json":
      try {
        JSON.parse(text);
        return { value: text };
      } catch {
        return { wrong: "not JSON" };
      }
  }
}

/** What is to be sent, or what is wrong with what is typed. */
export function requestOf(of: Draft): { request: EvalRequest } | { wrong: string } {
  const words: Text[][] = [[], []];
  for (const [at, [name, rows]] of (
    [
      ["Key", of.keys],
      ["Argument", of.args],
    ] as const
  ).entries()) {
    for (const [index, row] of rows.entries()) {
      const value = wordOf(row);
      if ("wrong" in value) return { wrong: `${name} ${index + 1} is ${value.wrong}.` };
      words[at]?.push(value.value);
    }
  }
  const limits: EvalRequest["limits"] = {};
  for (const [field, name, text] of [
    ["fuel", "Fuel", of.limits.fuel],
    ["timeout_ms", "Time", of.limits.timeout],
  ] as const) {
    if (text.trim() === "") continue;
    const number = Number(text.replaceAll("_", ""));
    if (!Number.isSafeInteger(number) || number < 1)
      return { wrong: `${name} is not a whole number of at least 1.` };
    limits[field] = number;
  }
  if (of.limits.memory.trim() !== "") limits.memory = of.limits.memory.trim();
  const flags = of.mode === "async" ? [...of.flags, "disable-atomicity"] : of.flags;
  const request: EvalRequest = {
    script: of.script,
    keys: words[0] ?? [],
    args: words[1] ?? [],
    flags,
    limits,
  };
  if (of.mode === "read-only") request.read_only = true;
  return { request };
}

/** A draft that came from outside, if it is one. */
export function readDraft(value: unknown): Draft | null {
  if (typeof value !== "object" || value === null) return null;
  const given = value as Partial<Record<keyof Draft, unknown>>;
  if (typeof given.script !== "string") return null;
  const kinds: RowKind[] = ["text", "number", "hex", "json"];
  const rows = (list: unknown): Draft["keys"] =>
    (Array.isArray(list) ? list : []).flatMap((row: Partial<Row> | null) => {
      const kind = kinds.find((one) => one === row?.kind) ?? "text";
      return typeof row?.text === "string" ? [{ kind, text: row.text }] : [];
    });
  const limit = (name: keyof Draft["limits"]) => {
    const value = (given.limits as Record<string, unknown> | undefined)?.[name];
    return typeof value === "string" ? value : "";
  };
  const list = Array.isArray(given.flags) ? given.flags : [];
  const number = Number(given.db);
  return {
    script: given.script,
    keys: rows(given.keys),
    args: rows(given.args),
    mode: given.mode === "read-only" || given.mode === "async" ? given.mode : "atomic",
    flags: list.filter((flag): flag is string => typeof flag === "string"),
    changes: given.changes !== false,
    limits: { fuel: limit("fuel"), timeout: limit("timeout"), memory: limit("memory") },
    db: Number.isInteger(number) && number >= 0 && number < 16 ? number : 0,
  };
}
