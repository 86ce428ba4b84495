/** What page and worker tell each other. Strings of Lua are letters of Latin-1, a byte each. */
import { bytesOf, type Text, textOf } from "../api/text";
import type { Json } from "../api/types";

/** A value of Lua, as far as it is shown. */
export interface Value {
  t: "nil" | "number" | "string" | "boolean" | "table" | "function" | "thread" | "userdata";
  v?: string;
  /** Bytes of a string, entries of a table. */
  n?: number;
  items?: [Value, Value][];
}

export interface Frame {
  name: string;
  line: number;
  locals: [string, Value][];
}

/** A call that was not made yet. */
export interface Halt {
  how: "call" | "pcall" | "acall" | "apcall";
  line: number;
  /** Protocol of its reply. */
  resp: number;
  words: string[];
  frames: Frame[];
}

export type FromWorker =
  | { halt: Halt }
  | { done: Value }
  | { failed: { message: string; line: number | null } }
  | { log: { level: string; text: string } };

export type ToWorker = { begin: { script: string; keys: Text[]; args: Text[] } } | { answer: string };

export function ofLatin1(letters: string): Text {
  return textOf(Uint8Array.from(letters, (letter) => letter.charCodeAt(0)));
}

function quoted(text: Text): string {
  let out = '"';
  for (const byte of bytesOf(text)) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c;
    out += plain ? String.fromCharCode(byte) : `\\${String(byte).padStart(3, "0")}`;
  }
  return `${out}"`;
}

export function listLiteral(texts: Text[]): string {
  return `{${texts.map(quoted).join(",")}}`;
}

/** A reply of the API, asked for with `lossless`, as the Lua that makes it. */
export function literalOf(reply: Json): string {
  if (reply === null) return "false";
  if (typeof reply === "boolean" || typeof reply === "number") return String(reply);
  if (typeof reply === "string") return quoted(reply);
  if (Array.isArray(reply)) return `{${reply.map((item, at) => `[${at + 1}]=${literalOf(item)}`).join(",")}}`;
  if (typeof reply.base64 === "string") return quoted({ base64: reply.base64 });
  if (reply.status !== undefined) return `{ok=${literalOf(reply.status)}}`;
  if (reply.error !== undefined) {
    const message = (reply.error as { message?: Json }).message ?? "ERR";
    return `{err=${literalOf(message)}}`;
  }
  if (Array.isArray(reply.map)) return tagged("map", reply.map as [Json, Json][]);
  if (Array.isArray(reply.set))
    return tagged(
      "set",
      (reply.set as Json[]).map((item) => [item, true]),
    );
  if (reply.double !== undefined) return { inf: "1/0", "-inf": "-1/0" }[String(reply.double)] ?? "0/0";
  if (reply.big_number !== undefined) return `{big_number=${literalOf(reply.big_number)}}`;
  return "false";
}

function tagged(name: string, pairs: [Json, Json][]): string {
  return `{${name}={${pairs.map(([key, value]) => `[${literalOf(key)}]=${literalOf(value)}`).join(",")}}}`;
}
