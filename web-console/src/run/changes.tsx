/** What was written, or would be. */
import { shown } from "../api/text";
import type { Told, Write } from "../api/types";
import { Badge, Empty } from "../ui/parts";
import { type Changed, diffOf, type Line } from "./diff";
import { counted } from "./numbers";
import type { Mode } from "./state";

const SORTS: Record<Changed["what"], string> = {
  created: "good",
  deleted: "bad",
  changed: "warn",
  touched: "",
};
const SIGNS: Record<Line["sort"], string> = { same: " ", added: "+", removed: "−", changed: "~" };
const WORDS: Record<Line["sort"], string> = {
  same: "stays",
  added: "added",
  removed: "removed",
  changed: "changed",
};

function Row({ line }: { line: Line }) {
  return (
    <tr class={line.sort}>
      <td class="sign">
        <span aria-hidden="true">{SIGNS[line.sort]}</span>
        <span class="unseen">{WORDS[line.sort]}</span>
      </td>
      {line.label !== null && <th scope="row">{line.label}</th>}
      <td>
        {line.sort === "changed" ? (
          <>
            <del>{line.before}</del> <span aria-hidden="true">→</span> <ins>{line.after}</ins>
          </>
        ) : (
          (line.after ?? line.before)
        )}
      </td>
    </tr>
  );
}

function Change({ write }: { write: Write }) {
  const changed = diffOf(write);
  const type = (write.after ?? write.before)?.type ?? "";
  return (
    <article class="change">
      <header>
        <Badge sort={SORTS[changed.what]}>{changed.what}</Badge>
        <code>{write.key === null ? `database ${write.db}` : shown(write.key)}</code>
        <span class="quiet">{[type, ...changed.notes].join(" · ")}</span>
      </header>
      {changed.lines.length > 0 && (
        <table>
          <tbody>
            {changed.lines.map((line, at) => (
              <Row key={at} line={line} />
            ))}
          </tbody>
        </table>
      )}
      {changed.unseen > 0 && <p class="quiet">{counted(changed.unseen, "more element")}, not compared.</p>}
    </article>
  );
}

export function Changes({ told, dry, mode }: { told: Told; dry: boolean; mode: Mode }) {
  const { writes } = told;
  if (!writes) {
    const why =
      mode === "read-only"
        ? "A read-only run does not write."
        : "Changes are reported if the run is atomic and was not stopped, “report changes” is selected, and the server holds the data itself.";
    return (
      <Empty title="Nothing to compare">
        <p>{why}</p>
      </Empty>
    );
  }
  if (writes.length === 0) return <Empty title={dry ? "It would change nothing" : "It changed nothing"} />;
  return (
    <div class="changes">
      <p class="quiet">
        {dry ? "These changes would be made. All of them were rolled back." : "These changes were made."} Of
        long values the first elements are shown.
      </p>
      {writes.map((write, at) => (
        <Change key={at} write={write} />
      ))}
      {(told.writes_omitted ?? 0) > 0 && (
        <p class="quiet">{counted(told.writes_omitted ?? 0, "more key")}.</p>
      )}
    </div>
  );
}
