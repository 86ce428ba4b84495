/** The elements of a collection, to be changed one by one. */
import { useState } from "preact/hooks";
import { command } from "../api/http";
import { idOf, shown, type Text } from "../api/text";
import type { Json, KeyValue } from "../api/types";
import { count } from "../run/numbers";
import { Button } from "../ui/parts";
import { attempt } from "../ui/toast";

/** Name and value; what has but one of them leaves the other out. */
export interface Element {
  name: Text | null;
  value: Text | null;
}

/** The elements that the API tells of. */
export function elementsOf({ type, value }: Pick<KeyValue, "type" | "value">): Element[] {
  if (type === "hash") {
    const map = value as { [name: string]: Json };
    const pairs = (Array.isArray(map.map) ? map.map : Object.entries(map)) as [Text, Text][];
    return pairs.map(([name, value]) => ({ name, value }));
  }
  const items = Array.isArray(value) ? value : [];
  if (type === "zset") {
    const scored = items as unknown as { member: Text; score: number | { double: string } }[];
    return scored.map(({ member, score }) => ({
      name: member,
      value: typeof score === "object" ? score.double : String(score),
    }));
  }
  return (items as Text[]).map((item) =>
    type === "set" ? { name: item, value: null } : { name: null, value: item },
  );
}

const HEADS: Record<string, [string | null, string | null]> = {
  hash: ["Field", "Value"],
  zset: ["Member", "Score"],
  set: ["Member", null],
  list: [null, "Element"],
};

interface Props {
  now: KeyValue;
  done: () => void;
  /** Shows those that come next, if there are some. */
  more: (() => void) | null;
}

/** The command that gives an element another value. */
function change(now: KeyValue, { name }: Element, at: number, value: string): (Text | number)[] {
  if (now.type === "hash") return ["HSET", now.key, name ?? "", value];
  if (now.type === "zset") return ["ZADD", now.key, value, name ?? ""];
  return ["LSET", now.key, at, value];
}

/** Takes an element away. Of a list the one at this place and no other, which needs two commands as one. */
async function remove(now: KeyValue, { name }: Element, at: number): Promise<void> {
  if (now.type !== "list") {
    await command([
      { hash: "HDEL", zset: "ZREM", set: "SREM", string: "", stream: "", "ReJSON-RL": "" }[now.type],
      now.key,
      name ?? "",
    ]);
    return;
  }
  const script =
    "redis.call('LSET', KEYS[1], ARGV[1], ARGV[2]) return redis.call('LREM', KEYS[1], 1, ARGV[2])";
  const mark = `removed-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  await command(["EVAL", script, 1, now.key, at, mark]);
}

function Line({ now, element, at, done }: { now: KeyValue; element: Element; at: number; done: () => void }) {
  const text = element.value === null ? "" : shown(element.value);
  const [typed, setTyped] = useState<string | null>(null);
  const label = element.name === null ? `Element ${at}` : shown(element.name);
  const isText = typeof element.value === "string";
  const save = () => {
    const value = typed ?? "";
    setTyped(null);
    if (value !== text) void attempt(() => command(change(now, element, at, value)), "Saved.").then(done);
  };
  return (
    <tr>
      {now.type === "list" && <td class="number quiet">{at}</td>}
      {element.name !== null && <th scope="row">{shown(element.name)}</th>}
      {element.value !== null && (
        <td>
          {typed === null ? (
            <span class="element-value">{text}</span>
          ) : (
            <input
              aria-label={`Value of ${label}`}
              value={typed}
              ref={(input) => input?.focus()}
              onInput={(event) => setTyped(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === "Enter") save();
                if (event.key === "Escape") setTyped(null);
              }}
            />
          )}
        </td>
      )}
      <td class="actions">
        {typed !== null ? (
          <Button sort="primary" onClick={save}>
            Save
          </Button>
        ) : (
          isText && (
            <Button sort="quiet" aria-label={`Edit ${label}`} onClick={() => setTyped(text)}>
              Edit
            </Button>
          )
        )}
        <Button
          sort="quiet"
          aria-label={`Remove ${label}`}
          onClick={() => void attempt(() => remove(now, element, at), "Removed.").then(done)}
        >
          Remove
        </Button>
      </td>
    </tr>
  );
}

function Add({ now, done }: { now: KeyValue; done: () => void }) {
  const [first, second] = HEADS[now.type] ?? [null, null];
  const [typed, setTyped] = useState({ name: "", value: "" });
  const add = (event: Event) => {
    event.preventDefault();
    const { name, value } = typed;
    const words = {
      hash: ["HSET", now.key, name, value],
      zset: ["ZADD", now.key, value, name],
      set: ["SADD", now.key, name],
      list: ["RPUSH", now.key, value],
      string: [],
      stream: [],
      "ReJSON-RL": [],
    }[now.type];
    setTyped({ name: "", value: "" });
    void attempt(() => command(words), "Added.").then(done);
  };
  return (
    <form class="add-element" onSubmit={add}>
      {first && (
        <input
          aria-label={`New ${first.toLowerCase()}`}
          placeholder={first.toLowerCase()}
          required
          value={typed.name}
          onInput={(event) => setTyped({ ...typed, name: event.currentTarget.value })}
        />
      )}
      {second && (
        <input
          aria-label={`New ${second.toLowerCase()}`}
          placeholder={second.toLowerCase()}
          required={now.type === "zset"}
          value={typed.value}
          onInput={(event) => setTyped({ ...typed, value: event.currentTarget.value })}
        />
      )}
      <Button type="submit">{now.type === "list" ? "Append" : "Add"}</Button>
    </form>
  );
}

export function Elements({ now, done, more }: Props) {
  const elements = elementsOf(now);
  const [first, second] = HEADS[now.type] ?? [null, null];
  return (
    <>
      <div class="scroll-x">
        <table class="list elements">
          <thead>
            <tr>
              {now.type === "list" && <th class="number">Index</th>}
              {first && <th>{first}</th>}
              {second && <th>{second}</th>}
              <th>
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {elements.map((element, at) => (
              <Line
                key={element.name === null ? at : idOf(element.name)}
                now={now}
                element={element}
                at={at}
                done={done}
              />
            ))}
          </tbody>
        </table>
      </div>
      {more && <Button onClick={more}>{count(elements.length)} shown; show more</Button>}
      <Add now={now} done={done} />
    </>
  );
}
