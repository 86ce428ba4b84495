/** What completion knows: the server's commands, and Lua as scripts find it. */
import { signal } from "@preact/signals";
import { ask } from "../api/http";
import type { CommandDoc, Docs } from "../api/types";

export const docs = signal<Docs>({});

/** Asked for once; while the server is away there is no completion of commands. */
export async function loadDocs(): Promise<void> {
  if (Object.keys(docs.value).length === 0) docs.value = await ask<Docs>("/v1/docs").catch(() => ({}));
}

/** A command, or its subcommand if the second word names one. */
export function commandOf(words: (string | null)[]): { name: string; doc: CommandDoc; depth: number } | null {
  const first = words[0]?.toLowerCase();
  const doc = first ? docs.value[first] : undefined;
  if (!first || !doc) return null;
  const second = words[1]?.toLowerCase();
  const sub = second ? doc.subcommands?.[second] : undefined;
  return sub && second ? { name: `${first} ${second}`, doc: sub, depth: 2 } : { name: first, doc, depth: 1 };
}

/** Name, how it is called, and what it does. */
export type Member = [name: string, detail: string, info: string];

export const REDIS: Member[] = [
  ["call", "(command, …)", "Runs a command; an error ends the script."],
  ["pcall", "(command, …)", "Runs a command; an error is a table with the field err."],
  ["acall", "(command, …)", "Runs a command whose result is not needed: it can be collected with others."],
  ["apcall", "(command, …)", "Like acall; an error does nothing."],
  ["log", "(level, message)", "Writes to the server's log, and to the trace of this run."],
  ["sha1hex", "(text)", "SHA-1 as hexadecimal digits."],
  ["error_reply", "(text)", "A table that becomes an error when it is returned."],
  ["status_reply", "(text)", "A table that becomes a status when it is returned."],
  ["setresp", "(2 or 3)", "Which protocol replies of calls are in."],
  ["LOG_DEBUG", "", "Level of redis.log."],
  ["LOG_VERBOSE", "", "Level of redis.log."],
  ["LOG_NOTICE", "", "Level of redis.log."],
  ["LOG_WARNING", "", "Level of redis.log."],
  ["REDIS_VERSION", "", "The version of Redis that this behaves like."],
  ["REDIS_VERSION_NUM", "", "The same as a number."],
];

const names = (words: string): Member[] => words.split(" ").map((name) => [name, "", ""]);

export const LIBRARIES: Record<string, Member[]> = {
  redis: REDIS,
  server: REDIS,
  cjson: [
    ["encode", "(value)", "A value as JSON."],
    ["decode", "(text)", "JSON as a value; null is cjson.null."],
    ["null", "", "What null of JSON becomes."],
    ["encode_sparse_array", "(convert, ratio, safe)", ""],
    ["encode_max_depth", "(depth)", ""],
    ["encode_number_precision", "(digits)", ""],
    ["decode_max_depth", "(depth)", ""],
  ],
  cmsgpack: [
    ["pack", "(…)", "Values as MessagePack."],
    ["unpack", "(text)", "All values of MessagePack."],
  ],
  struct: [
    ["pack", "(format, …)", "Values as bytes."],
    ["unpack", "(format, bytes, from)", "Values of bytes."],
    ["size", "(format)", "How many bytes a format takes."],
  ],
  bit: names("tobit tohex bnot band bor bxor lshift rshift arshift rol ror bswap"),
  string: names("byte char find format gmatch gsub len lower match rep reverse sub upper"),
  table: names("concat insert maxn remove sort getn"),
  math: names(
    "abs ceil cos deg exp floor fmod huge log log10 max min modf pi pow rad random randomseed sin sqrt tan",
  ),
};

export const GLOBALS: Member[] = [
  ["KEYS", "", "The keys, from 1."],
  ["ARGV", "", "The arguments, from 1; all are strings."],
  ...Object.keys(LIBRARIES).map((name): Member => [name, "", "A library."]),
  ["tonumber", "(value, base)", "A number, or nil."],
  ["tostring", "(value)", "A string."],
  ["pairs", "(table)", "All keys and values, in no order."],
  ["ipairs", "(table)", "Elements 1, 2, … up to the first nil."],
  ["type", "(value)", "nil, number, string, boolean, table or function."],
  ["unpack", "(table, from, to)", "Elements as single values."],
  ["pcall", "(f, …)", "Calls f: true and its results, or false and the error."],
  ["error", "(message)", "Ends the script unless pcall is around it."],
  ["assert", "(value, message)", "An error if value is false or nil."],
  ...names("select next rawget rawset setmetatable getmetatable loadstring xpcall"),
];

export const KEYWORDS =
  "and break do else elseif end false for function if in local nil not or repeat return then true until while".split(
    " ",
  );
