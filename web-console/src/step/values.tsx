/** What the variables of a script hold. */
import { shown } from "../api/text";
import type { Frame, LuaValue } from "../api/types";
import { count } from "../run/numbers";
import { inWords } from "./steps";

/** Entries up to which a table is open at first. */
const FEW = 8;

function ValueView({ value }: { value: LuaValue }) {
  if (value.type !== "table") return <span class={`tree-value ${value.type}`}>{inWords(value)}</span>;
  const { entries, count: all } = value;
  if (all === 0) return <span class="tree-value">{"{}"}</span>;
  if (entries.length === 0) return <span class="tree-value">{inWords(value)}</span>;
  return (
    <details open={all !== null && all <= FEW}>
      <summary>{inWords(value)}</summary>
      <ul class="tree">
        {entries.map(([key, item], at) => (
          <li key={at}>
            <span class="tree-name">{key.type === "string" ? shown(key.value) : inWords(key)}</span>{" "}
            <ValueView value={item} />
          </li>
        ))}
        {all === null ? (
          <li class="quiet">and more</li>
        ) : (
          all > entries.length && <li class="quiet">{count(all - entries.length)} more</li>
        )}
      </ul>
    </details>
  );
}

/** A function and its variables. `first`: the one that makes the call. */
export function FrameView({ frame, first }: { frame: Frame; first: boolean }) {
  return (
    <section class="frame">
      <h2>
        {first ? "Variables" : "Called from"} <code>{frame.function}</code>
        {frame.line !== null && ` line ${frame.line}`}
      </h2>
      {frame.variables.length === 0 ? (
        <p class="quiet">No local variables yet.</p>
      ) : (
        <table class="locals">
          <tbody>
            {frame.variables.map(({ name, value }, at) => (
              <tr key={at}>
                <th scope="row">{shown(name)}</th>
                <td>
                  <ValueView value={value} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
