/** One key: its value by type, with what can be done to it. */
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ask, command, database, keyPath, Problem } from "../api/http";
import { bytesOf, shown, type Text } from "../api/text";
import type { Json, KeyValue } from "../api/types";
import { bytes, counted, micros } from "../run/numbers";
import { Badge, Button, Dialog, Empty, Notice } from "../ui/parts";
import { go, route } from "../ui/route";
import { attempt } from "../ui/toast";
import { Elements } from "./elements";
import { correct } from "./key-marks";
import { Stream } from "./stream";

/** The key that the address names. */
export const chosen = computed<Text | null>(() => route.value.key ?? null);
const value = signal<KeyValue | null>(null);
const trouble = signal<string | null>(null);

/** The beginning of a string that is too long to be shown without being asked for. */
const beginning = signal<{ length: number; text: Text } | null>(null);

/** Elements that are asked for at a time. */
const PAGE = 100;
/** Bytes of a string that are shown at once: more makes a page slow. */
const MOST_BYTES = 1 << 20;
/** Bytes of a longer one that are shown first. */
const FIRST_BYTES = 1 << 14;

/** Opens a key, or none. `instead` replaces the present address, for a key that no longer exists. */
export function choose(key: Text | null, instead = false): void {
  const to = { page: "keys" as const, db: database.value };
  go(key === null ? to : { ...to, key }, instead);
}

/** Loads the key that the address names, while the page is open. */
function follow(): () => void {
  return effect(() => {
    void database.value;
    const key = chosen.value;
    turn += 1;
    [value.value, beginning.value, trouble.value] = [null, null, null];
    if (key !== null) void reload();
  });
}

async function beginningOf(key: Text): Promise<{ length: number; text: Text } | null> {
  const commands = [
    ["STRLEN", key],
    ["GETRANGE", key, 0, FIRST_BYTES - 1],
  ];
  const { replies } = await ask<{ replies: Json[] }>("/v1/pipeline", { body: { commands } });
  const length = replies[0];
  // Other types have no such length: that is an error, and no number.
  return typeof length === "number" && length > MOST_BYTES ? { length, text: replies[1] as Text } : null;
}

let turn = 0;

async function reload(whole = false): Promise<void> {
  const key = chosen.value;
  if (key === null) return;
  const mine = ++turn;
  try {
    const first = whole ? null : await beginningOf(key);
    if (mine !== turn) return;
    beginning.value = first;
    if (first) return;
    const told = await ask<KeyValue>(`${keyPath(key)}?count=${PAGE}`);
    if (mine !== turn) return;
    [value.value, trouble.value] = [told, null];
    correct(told);
  } catch (error) {
    if (mine !== turn) return;
    const gone = error instanceof Problem && error.status === 404;
    const text = error instanceof Error ? error.message : String(error);
    [value.value, trouble.value] = [null, gone ? absent(key) : text];
  }
}

function absent(key: Text): string {
  return `Database ${database.value} has no key ${shown(key) || '""'}. It has expired, was deleted, or never existed.`;
}

async function more(now: KeyValue): Promise<void> {
  const mine = turn;
  const next = await ask<KeyValue>(`${keyPath(now.key)}?count=${PAGE}&cursor=${now.cursor}`);
  if (mine === turn) value.value = { ...next, value: joined(now.value, next.value) };
}

function joined(before: Json, after: Json): Json {
  if (Array.isArray(before) && Array.isArray(after)) return [...before, ...after];
  const both = [before, after].map((one) => one as { [name: string]: Json });
  const pairs = both.map((one) => (Array.isArray(one.map) ? one.map : Object.entries(one)) as [Json, Json][]);
  return { map: pairs.flat() };
}

function Lifetime({ now, done }: { now: KeyValue; done: () => void }) {
  const [seconds, setSeconds] = useState("");
  const expires = now.ttl_ms === null ? "never expires" : `expires in ${micros(now.ttl_ms * 1000)}`;
  const set = (event: Event) => {
    event.preventDefault();
    const ms = Math.round(Number(seconds) * 1000);
    void attempt(() => command(["PEXPIRE", now.key, ms]), "It expires then.").then(done);
    setSeconds("");
  };
  return (
    <form class="lifetime" onSubmit={set}>
      <span>{expires}</span>
      <input
        aria-label="Seconds to live"
        type="number"
        min="0.001"
        step="any"
        required
        placeholder="seconds"
        value={seconds}
        onInput={(event) => setSeconds(event.currentTarget.value)}
      />
      <Button type="submit">Expire</Button>
      {now.ttl_ms !== null && (
        <Button onClick={() => void attempt(() => command(["PERSIST", now.key]), "It stays.").then(done)}>
          Persist
        </Button>
      )}
    </form>
  );
}

function Head({ now, done, changed }: { now: KeyValue; done: () => void; changed: () => void }) {
  const [renaming, setRenaming] = useState<string | null>(null);
  const [deleting, setDeleting] = useState(false);
  const stick = () =>
    void attempt(
      () => command([now.sticky ? "UNSTICK" : "STICK", now.key]),
      now.sticky ? "The key is no longer sticky." : "The key is sticky and never evicted.",
    ).then(done);
  const rename = (event: Event) => {
    event.preventDefault();
    const to = renaming ?? "";
    void attempt(() => command(["RENAMENX", now.key, to]).then(refuseZero), "Renamed.").then((fine) => {
      if (fine) choose(to, true);
      changed();
    });
    setRenaming(null);
  };
  const remove = () => {
    setDeleting(false);
    void attempt(() => command(["DEL", now.key]), "Deleted.").then((fine) => {
      if (!fine) return;
      choose(null, true);
      changed();
    });
  };
  return (
    <header class="key-head">
      <h2>{shown(now.key) || '""'}</h2>
      <div class="key-facts">
        <Badge>{now.type}</Badge>
        <span>
          {now.type === "string" || now.type === "ReJSON-RL"
            ? bytes(now.length)
            : counted(now.length, "element")}
        </span>
        <span>{bytes(now.bytes)} in memory</span>
        <label class="sticky">
          <input type="checkbox" checked={now.sticky} onChange={stick} /> sticky
        </label>
      </div>
      <div class="key-actions">
        <Lifetime now={now} done={done} />
        <span class="space" />
        <Button onClick={done}>Reload</Button>
        <Button onClick={() => setRenaming(shown(now.key))}>Rename</Button>
        <Button sort="danger" onClick={() => setDeleting(true)}>
          Delete
        </Button>
      </div>
      {renaming !== null && (
        <Dialog title="Rename" close={() => setRenaming(null)}>
          <form class="form" onSubmit={rename}>
            <label>
              New name
              <input value={renaming} onInput={(event) => setRenaming(event.currentTarget.value)} />
            </label>
            <Button sort="primary" type="submit">
              Rename
            </Button>
          </form>
        </Dialog>
      )}
      {deleting && (
        <Dialog title="Delete this key?" close={() => setDeleting(false)}>
          <p>
            <code>{shown(now.key)}</code> and its value are gone then.
          </p>
          <div class="dialog-end">
            <Button sort="danger" onClick={remove}>
              Delete
            </Button>
          </div>
        </Dialog>
      )}
    </header>
  );
}

function refuseZero(reply: Json): void {
  if (reply === 0) throw new Error("A key with this name already exists.");
}

/** A string, or a document as text. */
function StringValue({ now, done }: { now: KeyValue; done: () => Promise<void> }) {
  const text = now.value as Text;
  const [edited, setEdited] = useState<string | null>(null);
  if (typeof text !== "string") {
    return (
      <>
        <Notice sort="info">
          These bytes are not text; they can be replaced from a script, and are shown here.
        </Notice>
        <pre class="code">{hexDump(bytesOf(text).subarray(0, 4096))}</pre>
      </>
    );
  }
  const typed = edited ?? text;
  // KEEPTTL and the mark: an edit changes the value only.
  const save = async () => {
    const words =
      now.type === "string" ? ["SET", now.key, typed, "KEEPTTL"] : ["JSON.SET", now.key, "$", typed];
    if (!(await attempt(() => command(words), "Saved."))) return;
    await done();
    // What was typed meanwhile stays.
    setEdited((edited) => (edited === typed ? null : edited));
  };
  return (
    <div class="string-value">
      <textarea
        aria-label="Value"
        rows={10}
        spellcheck={false}
        value={typed}
        onInput={(event) => setEdited(event.currentTarget.value)}
      />
      <div class="buttons">
        <Button sort="primary" disabled={typed === text} onClick={() => void save()}>
          Save
        </Button>
        <Button disabled={typed === text} onClick={() => setEdited(null)}>
          Back
        </Button>
      </div>
    </div>
  );
}

/** Sixteen bytes a line, as hexadecimal digits and letters. */
export function hexDump(all: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < all.length; at += 16) {
    const part = [...all.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part
      .map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·"))
      .join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function Beginning({ length, text }: { length: number; text: Text }) {
  return (
    <div class="key-panel">
      <h2>{chosen.value !== null && shown(chosen.value)}</h2>
      <Notice sort="info">This string has {bytes(length)}; this is how it begins.</Notice>
      <pre class="code">{shown(text)}</pre>
      <div class="buttons">
        <Button onClick={() => void reload(true)}>Load all</Button>
      </div>
    </div>
  );
}

function Value({ now, done }: { now: KeyValue; done: () => Promise<void> }) {
  const next = now.cursor === null ? null : () => void attempt(() => more(now));
  if (now.type === "string" || now.type === "ReJSON-RL") return <StringValue now={now} done={done} />;
  if (now.type === "stream") return <Stream now={now} more={next} />;
  return <Elements now={now} done={done} more={next} />;
}

export function KeyPanel({ changed }: { changed: () => void }) {
  useEffect(follow, []);
  const now = value.value;
  if (chosen.value === null) return <Empty title="Select a key" />;
  if (trouble.value) {
    return (
      <Notice sort="warn">
        <p>{trouble.value}</p>
        <Button onClick={() => void reload()}>Try again</Button>
      </Notice>
    );
  }
  if (beginning.value) return <Beginning {...beginning.value} />;
  if (!now) return null;
  const done = () => reload();
  return (
    <div class="key-panel" key={shown(now.key)}>
      <Head now={now} done={done} changed={changed} />
      <Value now={now} done={done} />
    </div>
  );
}
