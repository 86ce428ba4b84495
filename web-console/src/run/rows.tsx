/** Keys and arguments, a row each. */
import type { Signal } from "@preact/signals";
import { Button } from "../ui/parts";
import { newRow, type Row, type RowKind, wordOf } from "./state";

const KINDS: Record<RowKind, string> = { text: "text", number: "number", hex: "hex bytes", json: "JSON" };

interface Props {
  title: string;
  one: string;
  /** As the script calls them. */
  name: string;
  rows: Signal<Row[]>;
  kinds: RowKind[];
}

export function Rows({ title, one, name, rows, kinds }: Props) {
  const change = (id: number, part: Partial<Row>) => {
    rows.value = rows.value.map((row) => (row.id === id ? { ...row, ...part } : row));
  };
  const add = (kind: RowKind) => {
    rows.value = [...rows.value, newRow(kind)];
  };
  return (
    <fieldset class="rows">
      <legend>
        {title} <code>{name}</code>
      </legend>
      {rows.value.map((row, at) => {
        const value = wordOf(row);
        const wrong = "wrong" in value ? value.wrong : null;
        const label = `${one} ${at + 1}`;
        return (
          <div class="row" key={row.id}>
            <span class="row-number" aria-hidden="true">
              {at + 1}
            </span>
            <input
              aria-label={label}
              aria-invalid={wrong !== null}
              title={wrong ?? undefined}
              value={row.text}
              spellcheck={false}
              onInput={(event) => change(row.id, { text: event.currentTarget.value })}
            />
            <select
              aria-label={`Type of ${label.toLowerCase()}`}
              value={row.kind}
              onChange={(event) => change(row.id, { kind: event.currentTarget.value as RowKind })}
            >
              {kinds.map((kind) => (
                <option key={kind} value={kind}>
                  {KINDS[kind]}
                </option>
              ))}
            </select>
            <Button
              sort="quiet"
              aria-label={`Remove ${label.toLowerCase()}`}
              onClick={() => {
                rows.value = rows.value.filter((other) => other.id !== row.id);
              }}
            >
              ✕
            </Button>
            {wrong && <span class="wrong">{wrong}</span>}
          </div>
        );
      })}
      <Button sort="quiet" class="add" onClick={() => add(rows.value.at(-1)?.kind ?? "text")}>
        + {one.toLowerCase()}
      </Button>
    </fieldset>
  );
}
