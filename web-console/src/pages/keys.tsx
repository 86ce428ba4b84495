/** The keys of a database: a list to search, and the value of one. */
import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, database } from "../api/http";
import { idOf, shown, type Text } from "../api/text";
import { counted } from "../run/numbers";
import { Badge, Button, Empty } from "../ui/parts";
import { attempt } from "../ui/toast";
import { choose, KeyPanel } from "./key";
import { FormChoice, KeyList } from "./key-list";
import { askMarks, marks } from "./key-marks";
import { NewKey } from "./new-key";

interface Listed {
  keys: Text[];
  cursor: string | null;
}

const TYPES = ["", "string", "hash", "list", "set", "zset", "stream", "ReJSON-RL"];
/** Keys that are looked for at a time. */
const PAGE = 200;
/** How many times a page without a hit is followed by the next before somebody has to ask for more. */
const MOST_EMPTY = 50;

const match = signal("");
const type = signal("");
const keys = signal<Text[]>([]);
const cursor = signal<string | null>(null);
const looking = signal(false);
const creating = signal(false);

let turn = 0;

/** Looks from the cursor on until there is something to show. */
async function look(from: string | null): Promise<void> {
  const mine = ++turn;
  looking.value = true;
  let next: string | null = from ?? "0";
  const found: Text[] = from === null ? [] : [...keys.value];
  const known = new Set(found.map(idOf));
  const fresh: Text[] = [];
  try {
    for (let tries = 0; next !== null && fresh.length < PAGE / 2 && tries < MOST_EMPTY; tries++) {
      const query = new URLSearchParams({ cursor: next, count: String(PAGE) });
      if (match.value) query.set("match", /[*?[\]]/.test(match.value) ? match.value : `*${match.value}*`);
      if (type.value) query.set("type", type.value);
      const page: Listed = await ask(`/v1/keys?${query}`);
      if (mine !== turn) return;
      // A SCAN may find a key twice.
      for (const key of page.keys) {
        if (!known.has(idOf(key))) fresh.push(key);
        known.add(idOf(key));
      }
      next = page.cursor;
    }
    keys.value = [...found, ...fresh].sort((a, b) => (shown(a) < shown(b) ? -1 : 1));
    cursor.value = next;
    const told = await askMarks(fresh);
    if (mine === turn) marks.value = new Map([...(from === null ? [] : marks.value), ...told]);
  } finally {
    if (mine === turn) looking.value = false;
  }
}

const again = () => void attempt(() => look(null));

export function KeysPage() {
  useEffect(
    () =>
      effect(() => {
        void database.value;
        void type.value;
        again();
      }),
    [],
  );
  return (
    <div class="page keys-page">
      <header class="page-head">
        <h1>Keys</h1>
        <Badge>db {database.value}</Badge>
        <span class="space" />
        <Button onClick={() => (creating.value = true)}>New key</Button>
      </header>
      <div class="keys-columns">
        <section aria-label="List of keys">
          <form
            class="search"
            onSubmit={(event) => {
              event.preventDefault();
              again();
            }}
          >
            <input
              aria-label="Part of a key, or a pattern"
              placeholder="part of a key, or user:*"
              value={match.value}
              onInput={(event) => (match.value = event.currentTarget.value)}
            />
            <select
              aria-label="Type"
              value={type.value}
              onChange={(event) => (type.value = event.currentTarget.value)}
            >
              {TYPES.map((name) => (
                <option key={name} value={name}>
                  {name || "any type"}
                </option>
              ))}
            </select>
            <Button type="submit">Search</Button>
          </form>
          {keys.value.length === 0 && !looking.value ? (
            <Empty
              title={match.value || type.value ? "No matching keys" : `Database ${database.value} is empty`}
            >
              <p>Run an example in the playground, or create a key here.</p>
            </Empty>
          ) : (
            <>
              <FormChoice />
              <KeyList keys={keys.value} busy={looking.value} />
            </>
          )}
          {cursor.value !== null && (
            <Button disabled={looking.value} onClick={() => void attempt(() => look(cursor.value))}>
              {counted(keys.value.length, "key")}; look for more
            </Button>
          )}
        </section>
        <section aria-label="Value">
          <KeyPanel changed={again} />
        </section>
      </div>
      {creating.value && (
        <NewKey
          close={() => (creating.value = false)}
          made={(key) => {
            creating.value = false;
            choose(key);
            again();
          }}
        />
      )}
    </div>
  );
}
