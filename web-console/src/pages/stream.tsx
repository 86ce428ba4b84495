/** The entries of a stream. They are not edited: an entry never changes. */
import { idOf, shown, type Text } from "../api/text";
import type { KeyValue } from "../api/types";
import { count } from "../run/numbers";
import { Button } from "../ui/parts";

interface Entry {
  id: string;
  fields: [Text, Text][];
}

export function Stream({ now, more }: { now: KeyValue; more: (() => void) | null }) {
  const entries = now.value as unknown as Entry[];
  return (
    <>
      <div class="scroll-x">
        <table class="list elements">
          <thead>
            <tr>
              <th>Entry</th>
              <th>Fields</th>
            </tr>
          </thead>
          <tbody>
            {entries.map(({ id, fields }) => (
              <tr key={id}>
                <th scope="row">{id}</th>
                <td>
                  <dl class="stream-fields">
                    {fields.map(([name, value], at) => (
                      // A field may be there twice.
                      <div key={`${at} ${idOf(name)}`}>
                        <dt>{shown(name)}</dt>
                        <dd>{shown(value)}</dd>
                      </div>
                    ))}
                  </dl>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more && <Button onClick={more}>{count(entries.length)} shown; show more</Button>}
      <p class="quiet">XADD, XDEL and XTRIM change a stream: see the page Command line.</p>
    </>
  );
}
