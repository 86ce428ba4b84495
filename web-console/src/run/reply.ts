/** Replies: RESP3 read into a tree, and shown as JSON. Exact: whole numbers keep all their digits. */
import { base64Of, shown, type Text, textOf } from "../api/text";

export type Reply =
  | { type: "string"; text: Text; bytes: number }
  | { type: "status" | "error" | "double" | "bignumber"; text: string }
  | { type: "integer"; value: bigint }
  | { type: "boolean"; value: boolean }
  | { type: "null" }
  | { type: "verbatim"; format: string; text: Text; bytes: number }
  | { type: "array" | "set" | "push"; items: Reply[] }
  | { type: "map"; pairs: [Reply, Reply][] };

class Reader {
  #at = 0;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  #line(): string {
    const end = this.#bytes.indexOf(13, this.#at);
    if (end < 0) throw new Error("the reply ends in the middle of a line");
    const line = this.#bytes.subarray(this.#at, end);
    this.#at = end + 2;
    return shown(textOf(line));
  }

  #take(count: number): Uint8Array {
    const taken = this.#bytes.subarray(this.#at, this.#at + count);
    if (taken.length < count) throw new Error("the reply ends in the middle of a string");
    this.#at += count + 2;
    return taken;
  }

  #many(count: number): Reply[] {
    return Array.from({ length: count }, () => this.read());
  }

  #pairs(count: number): [Reply, Reply][] {
    return Array.from({ length: count }, () => [this.read(), this.read()]);
  }

  read(): Reply {
    const line = this.#line();
    const [kind, rest] = [line[0], line.slice(1)];
    const count = Number(rest);
    switch (kind) {
      case "+":
        return { type: "status", text: rest };
      case "-":
        return { type: "error", text: rest };
      case ":":
        return { type: "integer", value: BigInt(rest) };
      case ",":
        return { type: "double", text: rest };
      case "(":
        return { type: "bignumber", text: rest };
      case "#":
        return { type: "boolean", value: rest === "t" };
      case "_":
        return { type: "null" };
      case "$":
        return count < 0
          ? { type: "null" }
          : { type: "string", text: textOf(this.#take(count)), bytes: count };
      case "!":
        return { type: "error", text: shown(textOf(this.#take(count))) };
      case "=": {
        const bytes = this.#take(count);
        const format = shown(textOf(bytes.subarray(0, 3)));
        return { type: "verbatim", format, text: textOf(bytes.subarray(4)), bytes: count - 4 };
      }
      case "*":
        return count < 0 ? { type: "null" } : { type: "array", items: this.#many(count) };
      case "~":
        return { type: "set", items: this.#many(count) };
      case ">":
        return { type: "push", items: this.#many(count) };
      case "%":
        return { type: "map", pairs: this.#pairs(count) };
      case "|":
        this.#pairs(count);
        return this.read();
      default:
        throw new Error(`a reply of unknown type: ${line.slice(0, 20)}`);
    }
  }
}

export function readReply(bytes: Uint8Array): Reply {
  return new Reader(bytes).read();
}

function plain(text: Text): string {
  return JSON.stringify(text);
}

/** As the API shows replies, with line ends for people. */
export function toJson(reply: Reply, indent = ""): string {
  const inner = `${indent}  `;
  const block = (open: string, parts: string[], close: string) =>
    parts.length === 0
      ? open + close
      : `${open}\n${parts.map((part) => inner + part).join(",\n")}\n${indent}${close}`;
  switch (reply.type) {
    case "string":
    case "verbatim":
      return plain(reply.text);
    case "status":
      return JSON.stringify(reply.text);
    case "error":
      return `{"error": {"code": ${JSON.stringify(codeOf(reply.text))}, "message": ${JSON.stringify(reply.text)}}}`;
    case "double":
      return Number.isFinite(Number(reply.text)) ? reply.text : `{"double": ${JSON.stringify(reply.text)}}`;
    case "bignumber":
      return `{"big_number": "${reply.text}"}`;
    case "integer":
      return String(reply.value);
    case "boolean":
      return String(reply.value);
    case "null":
      return "null";
    case "map": {
      const names = reply.pairs.map(([key]) =>
        key.type === "string" || key.type === "status" ? key.text : null,
      );
      const isObject =
        names.every((name) => typeof name === "string") && new Set(names).size === names.length;
      if (isObject) {
        const members = reply.pairs.map(
          ([, value], at) => `${JSON.stringify(names[at])}: ${toJson(value, inner)}`,
        );
        return block("{", members, "}");
      }
      const pairs = reply.pairs.map(([key, value]) => `[${toJson(key, inner)}, ${toJson(value, inner)}]`);
      return `{"map": ${block("[", pairs, "]")}}`;
    }
    default:
      return block(
        "[",
        reply.items.map((item) => toJson(item, inner)),
        "]",
      );
  }
}

/** The code word of an error text. */
export function codeOf(message: string): string {
  return /^[A-Z_]+(?= |$)/.exec(message)?.[0] ?? "ERR";
}

/** RESP for people: control characters and other bytes are spelled, each line end begins a line. */
export function spellRaw(bytes: Uint8Array): string {
  const text = textOf(bytes);
  if (typeof text !== "string")
    return shown({ base64: base64Of(bytes) }).replaceAll("\\x0d\\x0a", "\\r\\n\n");
  return text.replace(/\r\n|\p{Cc}/gu, (found) =>
    found === "\r\n" ? "\\r\\n\n" : `\\x${found.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}
