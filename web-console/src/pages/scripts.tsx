/** The scripts that the server knows, what runs now, and what their runs did. */
import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { listen } from "../api/events";
import { ask, command, database, Problem } from "../api/http";
import { shown } from "../api/text";
import type { KnownScript } from "../api/types";
import { Editor } from "../editor/lazy";
import { bytes, count, micros, short } from "../run/numbers";
import { EMPTY, load, script as typed } from "../run/state";
import { Badge, Button, Dialog, Empty, Notice } from "../ui/parts";
import { addressOf, go, route } from "../ui/route";
import { attempt } from "../ui/toast";

interface Running {
  sha1: string;
  "client-id": number;
  duration_ms: number;
}

interface Ended {
  run: number;
  sha?: string;
  function?: string;
  mode: string;
  outcome: string;
  fuel: number;
  microseconds: number;
}

type Stats = Record<string, number>;

const scripts = signal<KnownScript[] | null>(null);
const stats = signal<Record<string, Stats>>({});
const running = signal<Running[]>([]);
const ended = signal<Ended[]>([]);
const open = signal<{ script: KnownScript; stats: Stats } | null>(null);
/** Why the script that the address names is not shown. */
const absent = signal<string | null>(null);
const sure = signal(false);
/** Whether ends of runs are heard of. */
const hearing = signal(false);

/** Ends of runs that are listed. */
const MOST_ENDED = 30;
/** Not more often than this the server is asked, however much happens. */
const PAUSE_MS = 1000;

async function refresh(): Promise<void> {
  const [known, now] = await Promise.all([
    ask<{ scripts: KnownScript[] }>("/v1/scripts"),
    command(["SCRIPT", "RUNNING"]),
  ]);
  scripts.value = known.scripts;
  running.value = now as unknown as Running[];
  const all = await ask<{ replies: Stats[] }>("/v1/pipeline", {
    body: { commands: known.scripts.map(({ sha }) => ["SCRIPT", "STATS", sha]) },
  });
  stats.value = Object.fromEntries(known.scripts.map(({ sha }, at) => [sha, all.replies[at] ?? {}]));
}

/** Follows the server while the page is open. */
function follow(): () => void {
  const abort = new AbortController();
  let due = true;
  const timer = setInterval(() => {
    if (!due && running.value.length === 0) return;
    due = false;
    void refresh().catch(() => {
      due = true;
    });
  }, PAUSE_MS);
  void refresh().catch(() => undefined);
  void listen(({ kind, data }) => {
    due = true;
    if (kind === "listening") hearing.value = true;
    if (kind !== "ended") return;
    ended.value = [data as unknown as Ended, ...ended.value].slice(0, MOST_ENDED);
  }, abort.signal);
  return () => {
    clearInterval(timer);
    hearing.value = false;
    abort.abort();
  };
}

/** Loads the script that the address names, while the page is open. */
function followScript(): () => void {
  return effect(() => {
    const { name } = route.value;
    [open.value, absent.value] = [null, null];
    if (name !== undefined) void show(name);
  });
}

async function show(sha: string): Promise<void> {
  try {
    const script = await ask<KnownScript>(`/v1/scripts/${sha}`);
    const stats = await ask<Stats>(`/v1/scripts/${sha}/stats`);
    if (route.value.name === sha) open.value = { script, stats };
  } catch (error) {
    if (route.value.name !== sha) return;
    const gone = error instanceof Problem && error.status === 404;
    const text = error instanceof Error ? error.message : String(error);
    absent.value = gone ? `The server knows no script ${sha}. It was removed, or never loaded.` : text;
  }
}

const close = () => go({ page: "scripts" });

function edit(known: KnownScript): void {
  load({ ...EMPTY, db: database.value, script: shown(known.script ?? "") });
  go({ page: "playground" });
}

function ScriptLink({ sha, name }: { sha: string; name?: string | null }) {
  return <a href={addressOf({ page: "scripts", name: sha })}>{name ?? <code>{sha.slice(0, 12)}</code>}</a>;
}

function Now() {
  return (
    <section>
      <h2>
        Running now <Badge sort={running.value.length > 0 ? "warn" : ""}>{running.value.length}</Badge>
      </h2>
      {running.value.length === 0 ? (
        <p class="quiet">No script is running or waiting for locks.</p>
      ) : (
        <table class="list">
          <thead>
            <tr>
              <th>Script</th>
              <th>Client</th>
              <th class="number">For</th>
              <th>
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {running.value.map((run) => (
              <tr key={run["client-id"]}>
                <td>
                  <ScriptLink sha={run.sha1} />
                </td>
                <td>{run["client-id"]}</td>
                <td class="number">{micros(run.duration_ms * 1000)}</td>
                <td class="actions">
                  <Button
                    sort="danger"
                    onClick={() =>
                      void attempt(
                        () => command(["SCRIPT", "KILL", "CLIENT", run["client-id"]]),
                        "Killed; rolled back if it was atomic.",
                      ).then(refresh)
                    }
                  >
                    Kill
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Known({ all }: { all: KnownScript[] }) {
  if (all.length === 0) {
    return (
      <Empty title="No scripts yet">
        <p>Scripts run by EVAL are cached; SCRIPT LOAD stores a script permanently.</p>
      </Empty>
    );
  }
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Known scripts">
      <table class="list">
        <thead>
          <tr>
            <th>Script</th>
            <th>Stored</th>
            <th>Flags</th>
            <th class="number">Runs</th>
            <th class="number">Errors</th>
            <th class="number">Limits</th>
            <th class="number" title="Half of all runs took less">
              Median
            </th>
            <th class="number" title="99 of 100 runs took less">
              p99
            </th>
            <th class="number" title="Half of all runs used less">
              Fuel
            </th>
            <th class="number" title="Commands called by its runs">
              Calls
            </th>
            <th
              class="number"
              title="Number of times that a run was rolled back and repeated with more keys locked"
            >
              Again
            </th>
            <th class="number" title="Number of runs that used machine code">
              Compiled
            </th>
            <th class="number">Size</th>
          </tr>
        </thead>
        <tbody>
          {all.map((known) => (
            <Line key={known.sha} known={known} stats={stats.value[known.sha] ?? {}} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Line({ known, stats }: { known: KnownScript; stats: Stats }) {
  const number = (name: string) => count(stats[name] ?? 0);
  const time = (name: string) => (stats.runs ? micros(stats[name] ?? 0) : "–");
  return (
    <tr>
      <td>
        <ScriptLink sha={known.sha} name={known.name} />
      </td>
      <td class="kept">{known.loaded ? "loaded" : "cached"}</td>
      <td>{known.flags.join(" ")}</td>
      <td class="number">{number("runs")}</td>
      <td class="number">{number("errors")}</td>
      <td class="number">{number("limits_hit")}</td>
      <td class="number">{time("usec_p50")}</td>
      <td class="number">{time("usec_p99")}</td>
      <td class="number">{stats.runs ? short(stats.fuel_p50 ?? 0) : "–"}</td>
      <td class="number">{number("commands")}</td>
      <td class="number">{number("reruns")}</td>
      <td class="number">{number("compiled_runs")}</td>
      <td class="number">{bytes(known.bytes)}</td>
    </tr>
  );
}

function Lately() {
  return (
    <section>
      <h2>Ended lately</h2>
      {ended.value.length === 0 ? (
        <p class="quiet">
          {hearing.value ? "Runs that end while this page is open are listed here." : "Listening…"}
        </p>
      ) : (
        <ol class="lately">
          {ended.value.map((run) => (
            <li key={run.run}>
              <Badge sort={run.outcome === "ok" ? "good" : "bad"}>{run.outcome}</Badge>
              {run.sha ? <ScriptLink sha={run.sha} /> : <code>{run.function}</code>}
              <span>{run.mode}</span>
              <span>{micros(run.microseconds)}</span>
              <span>{short(run.fuel)} fuel</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function Opened() {
  const now = open.value;
  if (!now) return null;
  const { script, stats } = now;
  return (
    <Dialog title={script.name ?? script.sha} close={close} wide>
      <div class="opened">
        <Editor label="Text of the script" value={shown(script.script ?? "")} />
      </div>
      <dl class="facts">
        {Object.entries(stats).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{count(value)}</dd>
          </div>
        ))}
      </dl>
      <div class="dialog-end">
        <Button sort="primary" onClick={() => edit(script)}>
          Open in the playground
        </Button>
        {!script.loaded && (
          <Button
            onClick={() =>
              void attempt(
                () => ask("/v1/scripts", { body: { script: script.script } }),
                "It is stored until all scripts are removed.",
              ).then(() => {
                close();
                return refresh();
              })
            }
          >
            Keep it
          </Button>
        )}
      </div>
    </Dialog>
  );
}

export function ScriptsPage() {
  useEffect(follow, []);
  useEffect(followScript, []);
  const all = scripts.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Scripts</h1>
        <span class="space" />
        <Button
          onClick={() =>
            void attempt(() => ask("/v1/scripts", { body: { script: typed.value } }), "Loaded.").then(refresh)
          }
        >
          Load what is in the playground
        </Button>
        <Button sort="danger" onClick={() => (sure.value = true)}>
          Remove all
        </Button>
      </header>
      {absent.value && <Notice sort="warn">{absent.value}</Notice>}
      <Now />
      <section>
        <h2>
          Known <Badge>{all?.length ?? 0}</Badge>
        </h2>
        {all && <Known all={all} />}
      </section>
      <Lately />
      <Opened />
      {sure.value && (
        <Dialog title="Remove all scripts?" close={() => (sure.value = false)}>
          <p>EVALSHA of any of them fails until it is loaded again. Their writes stay.</p>
          <div class="dialog-end">
            <Button
              sort="danger"
              onClick={() => {
                sure.value = false;
                void attempt(() => ask("/v1/scripts", { method: "DELETE" }), "Removed.").then(refresh);
              }}
            >
              Remove all
            </Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}
