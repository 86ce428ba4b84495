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
  ["call", "(command, …)", "Calls a command; an error stops the script."],
  ["pcall", "(command, …)", "Calls a command; an error is returned as a table with the field err."],
  [
    "acall",
    "(command, …)",
    "Calls a command whose result is not used, so that the call can be batched with others.",
  ],
  ["apcall", "(command, …)", "Like acall; an error is ignored."],
  ["log", "(level, message)", "Writes to the server log and to the trace of this run."],
  ["sha1hex", "(text)", "SHA-1 in hexadecimal."],
  ["error_reply", "(text)", "Creates a table that is returned as an error reply."],
  ["status_reply", "(text)", "Creates a table that is returned as a status reply."],
  ["setresp", "(2 or 3)", "Sets the RESP version of the replies of calls."],
  ["LOG_DEBUG", "", "Level of redis.log."],
  ["LOG_VERBOSE", "", "Level of redis.log."],
  ["LOG_NOTICE", "", "Level of redis.log."],
  ["LOG_WARNING", "", "Level of redis.log."],
  ["REDIS_VERSION", "", "The Redis version that the server is compatible with."],
  ["REDIS_VERSION_NUM", "", "The same as a number."],
];

const names = (words: string): Member[] => words.split(" ").map((name) => [name, "", ""]);

export const LIBRARIES: Record<string, Member[]> = {
  redis: REDIS,
  server: REDIS,
  cjson: [
    ["encode", "(value)", "Encodes a value as JSON."],
    ["decode", "(text)", "Decodes JSON; null becomes cjson.null."],
    ["null", "", "The value of JSON null."],
    ["encode_sparse_array", "(convert, ratio, safe)", ""],
    ["encode_max_depth", "(depth)", ""],
    ["encode_number_precision", "(digits)", ""],
    ["decode_max_depth", "(depth)", ""],
  ],
  cmsgpack: [
    ["pack", "(…)", "Encodes values as MessagePack."],
    ["unpack", "(text)", "Decodes all values of MessagePack data."],
  ],
  struct: [
    ["pack", "(format, …)", "Packs values into bytes."],
    ["unpack", "(format, bytes, from)", "Unpacks values from bytes."],
    ["size", "(format)", "The size of a format in bytes."],
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
  ["pairs", "(table)", "Iterates over all keys and values, in no particular order."],
  ["ipairs", "(table)", "Iterates over the elements 1, 2, … up to the first nil."],
  ["type", "(value)", "nil, number, string, boolean, table or function."],
  ["unpack", "(table, from, to)", "Returns the elements as separate values."],
  ["pcall", "(f, …)", "Calls f; returns true and its results, or false and the error."],
  ["error", "(message)", "Raises an error, which stops the script unless pcall catches it."],
  ["assert", "(value, message)", "Raises an error if value is false or nil."],
  ...names("select next rawget rawset setmetatable getmetatable loadstring xpcall"),
];

export const KEYWORDS =
  "and break do else elseif end false for function if in local nil not or repeat return then true until while".split(
    " ",
  );
