/** Completion: commands and their words in strings, libraries, names of the script itself. */
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import type { CommandDoc } from "../api/types";
import { callAt, syntaxWords } from "./call";
import { commandOf, docs, GLOBALS, KEYWORDS, LIBRARIES, type Member } from "./docs";

function ofMember([label, detail, info]: Member, type: string): Completion {
  const option: Completion = { label, type };
  if (detail) option.detail = detail;
  if (info) option.info = info;
  return option;
}

function ofCommand(name: string, doc: CommandDoc): Completion {
  return {
    label: name.toUpperCase(),
    type: "command",
    detail: doc.syntax,
    info: () => aboutCommand(name, doc),
  };
}

/** A few lines about a command. */
export function aboutCommand(name: string, doc: CommandDoc): HTMLElement {
  const box = document.createElement("div");
  box.className = "about";
  const add = (tag: string, text: string, className: string) => {
    const part = document.createElement(tag);
    part.textContent = text;
    part.className = className;
    box.append(part);
  };
  add("code", `${name.toUpperCase()} ${doc.syntax}`, "about-syntax");
  add("p", doc.summary, "about-summary");
  add(
    "small",
    [doc.complexity, doc.flags.includes("write") ? "writes" : "reads"].filter(Boolean).join(" · "),
    "about-more",
  );
  return box;
}

function inString(context: CompletionContext, text: string): CompletionResult | null {
  const call = callAt(text, context.pos);
  if (!call || call.stringFrom === null) return null;
  const from = call.stringFrom;
  if (call.index === 0) {
    const options = Object.entries(docs.value).map(([name, doc]) => ofCommand(name, doc));
    return { from, options, validFor: /^[\w-]*$/ };
  }
  const found = commandOf(call.args);
  if (!found) return null;
  const subs = call.index === 1 ? Object.entries(found.doc.subcommands ?? {}) : [];
  if (subs.length > 0)
    return { from, options: subs.map(([name, doc]) => ofCommand(name, doc)), validFor: /^[\w-]*$/ };
  const words = syntaxWords(found.doc.syntax).map((label): Completion => ({ label, type: "keyword" }));
  return words.length > 0 ? { from, options: words, validFor: /^\w*$/ } : null;
}

/** All that completion knows at the cursor. */
export function complete(context: CompletionContext): CompletionResult | null {
  const text = context.state.doc.toString();
  const quoted = inString(context, text);
  if (quoted) return quoted;
  const line = context.state.doc.lineAt(context.pos);
  const before = text.slice(line.from, context.pos);
  if (isQuoted(before) || /--/.test(before)) return null;
  const member = /\b(\w+)\.(\w*)$/.exec(before);
  if (member) {
    const library = LIBRARIES[member[1] ?? ""];
    if (!library) return null;
    const from = context.pos - (member[2] ?? "").length;
    return {
      from,
      options: library.map((one) => ofMember(one, one[1] ? "function" : "constant")),
      validFor: /^\w*$/,
    };
  }
  const word = /[A-Za-z_]\w*$/.exec(before)?.[0];
  if (!word && !context.explicit) return null;
  const own = new Set(text.match(/\b[A-Za-z_]\w{2,}\b/g) ?? []);
  const known = new Set([...GLOBALS.map(([name]) => name), ...KEYWORDS, word ?? ""]);
  const options = [
    ...GLOBALS.map((one) => ofMember(one, one[1] ? "function" : "variable")),
    ...KEYWORDS.map((label): Completion => ({ label, type: "keyword" })),
    ...[...own]
      .filter((label) => !known.has(label))
      .map((label): Completion => ({ label, type: "text", boost: -1 })),
  ];
  return { from: context.pos - (word?.length ?? 0), options, validFor: /^\w*$/ };
}

function isQuoted(before: string): boolean {
  let quote = "";
  for (let at = 0; at < before.length; at++) {
    const letter = before[at] ?? "";
    if (letter === "\\") at += 1;
    else if (quote === letter) quote = "";
    else if (!quote && (letter === '"' || letter === "'")) quote = letter;
  }
  return quote !== "";
}
