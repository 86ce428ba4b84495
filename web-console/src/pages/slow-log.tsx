/** The calls that took long, as SLOWLOG lists them. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { command } from "../api/http";
import { shown, type Text } from "../api/text";
import { count, micros } from "../run/numbers";
import { Badge, Button, Dialog, Empty, Notice } from "../ui/parts";
import { attempt } from "../ui/toast";

type Entry = [id: number, seconds: number, microseconds: number, words: Text[], client: Text, name: Text];

/** Entries that are asked for. */
const MOST = 500;
/** Letters of a command that are shown. */
const LETTERS = 300;

const entries = signal<Entry[] | null>(null);
/** Calls of at least so many microseconds are listed; null if the user may not read the configuration. */
const slower = signal<number | null>(null);
const trouble = signal<string | null>(null);
const sure = signal(false);

async function refresh(): Promise<void> {
  const limit = command(["CONFIG", "GET", "slowlog-log-slower-than"]).catch(() => null);
  try {
    entries.value = (await command(["SLOWLOG", "GET", MOST])) as unknown as Entry[];
    trouble.value = null;
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error);
  }
  const told = (await limit) as Record<string, string> | null;
  const number = Number(told?.["slowlog-log-slower-than"] ?? Number.NaN);
  slower.value = Number.isFinite(number) ? number : null;
}

async function reset(): Promise<void> {
  sure.value = false;
  if (await attempt(() => command(["SLOWLOG", "RESET"]), "The slow log is empty.")) await refresh();
}

/** What is listed, in words. */
function about(limit: number): string {
  if (limit < 0) return "The slow log is off: slowlog-log-slower-than is negative.";
  return `Calls that take at least ${micros(limit)} are listed (slowlog-log-slower-than).`;
}

/** A word as it is typed on the command line. */
function spelled(word: Text): string {
  const text = shown(word);
  return /^[^\s"'\\]+$/.test(text) ? text : JSON.stringify(text);
}

function Line({ entry }: { entry: Entry }) {
  const [, seconds, microseconds, words, client, name] = entry;
  const text = words.map(spelled).join(" ");
  return (
    <tr>
      <td class="kept">{new Date(seconds * 1000).toLocaleString()}</td>
      <td class="number">{micros(microseconds)}</td>
      <td class="slow-words">
        <code>{text.length > LETTERS ? `${text.slice(0, LETTERS)}…` : text}</code>
      </td>
      <td class="kept">
        {shown(client)} {shown(name)}
      </td>
    </tr>
  );
}

function Entries({ all }: { all: Entry[] }) {
  if (all.length === 0) {
    return <Empty title="No slow calls">{slower.value !== null && <p>{about(slower.value)}</p>}</Empty>;
  }
  return (
    <section>
      {slower.value !== null && <p class="quiet">{about(slower.value)}</p>}
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Slow calls">
        <table class="list">
          <thead>
            <tr>
              <th>Began</th>
              <th class="number">Took</th>
              <th>Command</th>
              <th>Client</th>
            </tr>
          </thead>
          <tbody>
            {all.map((entry) => (
              <Line key={entry[0]} entry={entry} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

export function SlowLogPage() {
  useEffect(() => void refresh(), []);
  const all = entries.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Slow log</h1>
        {all && <Badge>{all.length < MOST ? count(all.length) : `newest ${count(MOST)}`}</Badge>}
        <span class="space" />
        <Button onClick={() => void refresh()}>Reload</Button>
        <Button sort="danger" disabled={!all?.length} onClick={() => (sure.value = true)}>
          Reset
        </Button>
      </header>
      {trouble.value && <Notice sort="bad">{trouble.value}</Notice>}
      {all && <Entries all={all} />}
      {sure.value && (
        <Dialog title="Reset the slow log?" close={() => (sure.value = false)}>
          <p>All of its entries are removed, for all users. The server goes on listing slow calls.</p>
          <div class="dialog-end">
            <Button sort="danger" onClick={() => void reset()}>
              Reset
            </Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}
