/** A key that is not there yet. */
import { useState } from "preact/hooks";
import { command } from "../api/http";
import type { Text } from "../api/text";
import type { KeyValue } from "../api/types";
import { Button, Dialog } from "../ui/parts";
import { attempt } from "../ui/toast";

/** A stream begins with XADD, which has more to say than fits here. */
type Kind = Exclude<KeyValue["type"], "stream" | "ReJSON-RL">;

export function NewKey({ close, made }: { close: () => void; made: (key: Text) => void }) {
  const [name, setName] = useState("");
  const [type, setType] = useState<Kind>("string");
  const [first, setFirst] = useState({ name: "", value: "" });
  const named = type === "hash" || type === "zset";
  const make = (event: Event) => {
    event.preventDefault();
    const words = {
      string: ["SET", name, first.value, "NX"],
      hash: ["HSET", name, first.name, first.value],
      list: ["RPUSH", name, first.value],
      set: ["SADD", name, first.value],
      zset: ["ZADD", name, first.value, first.name],
    }[type];
    const create = async () => {
      if ((await command(["EXISTS", name])) === 1) throw new Error("A key with this name already exists.");
      await command(words);
    };
    void attempt(create, "Created.").then((fine) => fine && made(name));
  };
  return (
    <Dialog title="New key" close={close}>
      <form class="form" onSubmit={make}>
        <label>
          Key
          <input required value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          Type
          <select value={type} onChange={(event) => setType(event.currentTarget.value as Kind)}>
            {(["string", "hash", "list", "set", "zset"] as const).map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        {named && (
          <label>
            {type === "hash" ? "Field" : "Member"}
            <input
              required
              value={first.name}
              onInput={(event) => setFirst({ ...first, name: event.currentTarget.value })}
            />
          </label>
        )}
        <label>
          {type === "zset" ? "Score" : type === "string" || type === "hash" ? "Value" : "First element"}
          <input
            required={type === "zset"}
            value={first.value}
            onInput={(event) => setFirst({ ...first, value: event.currentTarget.value })}
          />
        </label>
        <Button sort="primary" type="submit">
          Make it
        </Button>
      </form>
    </Dialog>
  );
}
