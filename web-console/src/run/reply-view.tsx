/** A reply as a tree, as RESP and as JSON. Long ones are shown page by page. */
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { shown } from "../api/text";
import { Button, Choice, copy } from "../ui/parts";
import { say } from "../ui/toast";
import { count, counted } from "./numbers";
import { type Reply, spellRaw, toJson } from "./reply";

type Form = "tree" | "resp" | "json";
const form = signal<Form>("tree");

/** Elements that are shown at a time. */
const PAGE = 100;
/** Letters of a text that are shown at a time. */
const LETTERS = 20_000;

interface Shown {
  reply: Reply;
  raw: Uint8Array;
}

const textOf = ({ reply, raw }: Shown) => (form.value === "resp" ? spellRaw(raw) : toJson(reply));

export function FormChoice() {
  return (
    <Choice
      label="Form of the reply"
      name="form"
      all={[
        { id: "tree", name: "Tree" },
        { id: "resp", name: "RESP" },
        { id: "json", name: "JSON" },
      ]}
      now={form.value}
      choose={(id) => (form.value = id)}
    />
  );
}

export function CopyReply(shown: Shown) {
  return (
    <Button
      sort="quiet"
      onClick={() =>
        void copy(textOf(shown)).then((done) =>
          say(done ? "Copied." : "This browser does not allow pages to copy.", !done),
        )
      }
    >
      Copy {form.value === "resp" ? "RESP" : "JSON"}
    </Button>
  );
}

/** A reply in the form that is chosen. */
export function ReplyBody(shown: Shown) {
  if (form.value === "tree") return <Tree reply={shown.reply} />;
  return <LongText key={form.value} text={textOf(shown)} />;
}

export function ReplyView(shown: Shown) {
  return (
    <div class="reply">
      <div class="reply-bar">
        <FormChoice />
        <span class="space" />
        <CopyReply {...shown} />
      </div>
      <ReplyBody {...shown} />
    </div>
  );
}

function LongText({ text }: { text: string }) {
  const [most, setMost] = useState(LETTERS);
  return (
    <>
      <pre class="code">{text.slice(0, most)}</pre>
      {text.length > most && (
        <Button onClick={() => setMost(most + 5 * LETTERS)}>
          {counted(text.length - most, "more letter")}: show some
        </Button>
      )}
    </>
  );
}

export function Tree({ reply }: { reply: Reply }) {
  return (
    <ul class="tree">
      <Node name={null} reply={reply} depth={0} />
    </ul>
  );
}

function childrenOf(reply: Reply): [string, Reply][] | null {
  if (reply.type === "map") return reply.pairs.map(([key, value]) => [brief(key), value]);
  if (reply.type === "array" || reply.type === "set" || reply.type === "push") {
    return reply.items.map((item, at) => [String(at + 1), item]);
  }
  return null;
}

function Node({ name, reply, depth }: { name: string | null; reply: Reply; depth: number }) {
  const children = childrenOf(reply);
  const [open, setOpen] = useState(depth < 2 && (children?.length ?? 0) <= PAGE * 10);
  const [most, setMost] = useState(PAGE);
  const label = name !== null && <span class="tree-name">{name}</span>;
  if (!children) {
    return (
      <li>
        {label}
        <Leaf reply={reply} />
      </li>
    );
  }
  return (
    <li>
      <button type="button" class="tree-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        {label}
        <span class="tree-type">
          {reply.type} of {count(children.length)}
        </span>
      </button>
      {open && (
        <ul>
          {children.slice(0, most).map(([key, child], at) => (
            <Node key={at} name={key} reply={child} depth={depth + 1} />
          ))}
          {children.length > most && (
            <li>
              <Button onClick={() => setMost(most + PAGE * 5)}>
                {count(children.length - most)} more: show {count(Math.min(PAGE * 5, children.length - most))}
              </Button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

/** A reply in one line. */
export function brief(reply: Reply): string {
  switch (reply.type) {
    case "string":
    case "verbatim":
      return shown(reply.text);
    case "integer":
      return String(reply.value);
    case "boolean":
      return String(reply.value);
    case "null":
      return "null";
    case "map":
      return `map of ${reply.pairs.length}`;
    case "array":
    case "set":
    case "push":
      return `${reply.type} of ${reply.items.length}`;
    default:
      return reply.text;
  }
}

function Leaf({ reply }: { reply: Reply }) {
  const [most, setMost] = useState(1000);
  const text = brief(reply);
  const type = reply.type === "string" ? (typeof reply.text === "string" ? "string" : "bytes") : reply.type;
  const size = reply.type === "string" && reply.bytes > 40 ? ` of ${counted(reply.bytes, "byte")}` : "";
  return (
    <>
      <span class={`tree-value ${type}`}>{text.slice(0, most) || '""'}</span>
      {text.length > most && <Button onClick={() => setMost(most + LETTERS)}>show more</Button>}
      <span class="tree-type">
        {type}
        {size}
      </span>
    </>
  );
}
