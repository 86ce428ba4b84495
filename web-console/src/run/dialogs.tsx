/** Examples, history, sharing. */
import { useEffect, useState } from "preact/hooks";
import { ask, database } from "../api/http";
import { Badge, Button, copy, Dialog, Empty } from "../ui/parts";
import { attempt, say } from "../ui/toast";
import { drafts, forgetDraft, forgetDrafts, MOST, readDrafts } from "./drafts";
import { EXAMPLES, type Example } from "./examples";
import { result } from "./execute";
import { forgetAll, history, readHistory } from "./history";
import { type Draft, load } from "./state";

function show(draft: Draft, close: () => void): void {
  load(draft);
  result.value = null;
  close();
}

async function prepare(example: Example): Promise<void> {
  await ask("/v1/pipeline", { body: { commands: example.prepare, atomic: true } });
}

export function ExamplesDialog({ close }: { close: () => void }) {
  const choose = (example: Example, prepared: boolean) => {
    const draft = { ...example.draft, db: database.value };
    if (!prepared) return show(draft, close);
    void attempt(() => prepare(example), "The data was loaded.").then((done) => done && show(draft, close));
  };
  return (
    <Dialog title="Examples" close={close} wide>
      <ul class="examples">
        {EXAMPLES.map((example) => (
          <li key={example.name}>
            <div>
              <h3>{example.name}</h3>
              <p>{example.about}</p>
            </div>
            <div class="examples-buttons">
              <Button onClick={() => choose(example, false)} aria-label={`Open ${example.name}`}>
                Open
              </Button>
              {example.prepare.length > 0 && (
                <Button
                  sort="primary"
                  aria-label={`Open with data: ${example.name}`}
                  title={example.prepare.map((words) => words.join(" ")).join("\n")}
                  onClick={() => choose(example, true)}
                >
                  Open with data
                </Button>
              )}
            </div>
          </li>
        ))}
      </ul>
      <p class="quiet">
        “With data” writes some keys into the database first; the tooltip of the button lists them.
      </p>
    </Dialog>
  );
}

function Runs({ close }: { close: () => void }) {
  const entries = history.value;
  if (entries.length === 0) return <Empty title="No runs yet" />;
  return (
    <>
      <ul class="history">
        {entries.map((entry) => (
          <li key={`${entry.at} ${entry.dry}`}>
            <button type="button" onClick={() => show(entry.draft, close)}>
              <span class="history-head">
                <Badge sort={entry.ok ? "good" : "bad"}>{entry.outcome}</Badge>
                {entry.dry && <Badge sort="warn">dry run</Badge>}
                <time>{new Date(entry.at).toLocaleString()}</time>
                <span class="quiet">{entry.draft.keys.map((row) => row.text).join(" ")}</span>
              </span>
              <code>{firstLine(entry.draft.script)}</code>
            </button>
          </li>
        ))}
      </ul>
      <div class="dialog-end">
        <Button sort="danger" onClick={forgetAll}>
          Clear
        </Button>
        <span class="quiet">Stored in this browser only.</span>
      </div>
    </>
  );
}

function Drafts({ close }: { close: () => void }) {
  const entries = drafts.value;
  if (entries.length === 0) return null;
  return (
    <section aria-labelledby="drafts">
      <h3 id="drafts">Drafts</h3>
      <ul class="history drafts">
        {entries.map(({ tab, at, draft }) => (
          <li key={tab}>
            <button type="button" onClick={() => show(draft, close)}>
              <time>{new Date(at).toLocaleString()}</time>
              <code>{firstLine(draft.script)}</code>
            </button>
            <Button
              sort="quiet"
              aria-label={`Remove the draft ${firstLine(draft.script)}`}
              onClick={() => forgetDraft(tab)}
            >
              ✕
            </Button>
          </li>
        ))}
      </ul>
      <div class="dialog-end">
        <Button sort="danger" onClick={forgetDrafts}>
          Remove all drafts
        </Button>
        <span class="quiet">What each tab had last: the newest {MOST}, in this browser only.</span>
      </div>
    </section>
  );
}

export function HistoryDialog({ close }: { close: () => void }) {
  useEffect(() => {
    readDrafts();
    readHistory();
  }, []);
  return (
    <Dialog title="History" close={close} wide>
      <Runs close={close} />
      <Drafts close={close} />
    </Dialog>
  );
}

/** The first line that says something. */
function firstLine(script: string): string {
  const lines = script.split("\n").map((line) => line.trim());
  return lines.find((line) => line !== "" && !line.startsWith("#!")) ?? "";
}

export function ShareDialog({ close }: { close: () => void }) {
  const [address] = useState(location.href);
  return (
    <Dialog title="Share" close={close}>
      <p>
        This address of the server contains the script, keys, arguments and settings. Opening it does not run
        the script.
      </p>
      <label class="share">
        Address
        <input readOnly value={address} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <div class="dialog-end">
        <Button
          sort="primary"
          onClick={() =>
            void copy(address).then((done) => say(done ? "Copied." : "Copy it from the field.", !done))
          }
        >
          Copy
        </Button>
        <span class="quiet">All of it is in the address; it is not stored anywhere else.</span>
      </div>
    </Dialog>
  );
}
