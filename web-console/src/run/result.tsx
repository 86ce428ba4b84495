/** What came back. */
import { useEffect, useState } from "preact/hooks";
import type { Run } from "../api/types";
import { reveal } from "../editor/marks";
import { Badge, Button, Empty, Meter, Notice, Tabs } from "../ui/parts";
import { Changes } from "./changes";
import { cancel, type Progress, progress, type Result, result } from "./execute";
import { bytes, count, counted, micros, short } from "./numbers";
import type { Trouble } from "./problem";
import { ReplyView } from "./reply-view";
import { server, sizeOf } from "./server";
import { draft } from "./state";
import { chooseTab, tab } from "./tab";
import { Timeline } from "./timeline";

export function TroubleView({ trouble }: { trouble: Trouble }) {
  return (
    <Notice sort="bad">
      <p class="trouble">
        <Badge sort="bad">{trouble.code}</Badge> <span class="trouble-text">{trouble.message}</span>
      </p>
      {trouble.hint && <p>{trouble.hint}</p>}
      {trouble.line !== null && (
        <Button onClick={() => (reveal.value = trouble.line)}>Go to line {trouble.line}</Button>
      )}
    </Notice>
  );
}

const MODES: Record<Run["mode"], string> = {
  atomic: "atomic",
  "read-only": "read-only",
  async: "without atomicity",
};

function Used({ run, result }: { run: Run; result: Result }) {
  const { limits } = result.draft;
  const fuel = Number(limits.fuel.replaceAll("_", "")) || server.value.fuel;
  const time = Number(limits.timeout) || server.value.timeout;
  const memory = sizeOf(limits.memory) ?? server.value.memoryBytes;
  const of = (text: string, most: number | null, show: (most: number) => string) =>
    most === null ? text : `${text} of ${show(most)}`;
  return (
    <div class="used">
      <Meter
        name="Fuel"
        part={fuel ? run.fuel / fuel : 0}
        text={of(short(run.fuel), fuel, short)}
        title="About one unit per WebAssembly instruction, plus the cost of calls."
      />
      <Meter
        name="Time"
        part={time ? run.microseconds / 1000 / time : 0}
        text={of(micros(run.microseconds), time, (most) => micros(most * 1000))}
      />
      <Meter
        name="Memory"
        part={memory ? run.memory_bytes / memory : 0}
        text={of(bytes(run.memory_bytes), memory, bytes)}
      />
    </div>
  );
}

function Head({ result }: { result: Result }) {
  const { told, trouble, dry } = result;
  const run = told.run;
  const reruns = told.trace?.reruns ?? [];
  return (
    <div class="result-head">
      <div class="result-line" role="status">
        <Badge sort={trouble ? "bad" : "good"}>{trouble ? (run ? run.outcome : "failed") : "ok"}</Badge>
        {dry && <Badge sort="warn">dry run: rolled back</Badge>}
        {run && <span>{MODES[run.mode]}</span>}
        {run && run.outcome !== "killed" && <span>{counted(run.calls, "call")}</span>}
        {run && run.reruns > 0 && (
          <span
            title={reruns
              .map((one) => (one.why === "key" ? `another client had locked ${String(one.key)}` : one.why))
              .join(", ")}
          >
            ran again {run.reruns}×
          </span>
        )}
        <span class="quiet">{micros(result.waited * 1000)} with the way there and back</span>
      </div>
      {run && run.outcome !== "killed" && <Used run={run} result={result} />}
    </div>
  );
}

function Running({ now }: { now: Progress }) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((count) => count + 1), 100);
    return () => clearInterval(timer);
  }, []);
  const elapsed = performance.now() - now.began;
  // What ends at once is not worth a flicker.
  if (elapsed < 150) return null;
  // To report changes it runs twice, each time within its limit.
  const { mode, changes, limits } = draft.value;
  const each = Number(limits.timeout) || server.value.timeout;
  const most = each === null ? null : mode === "atomic" && changes && !now.dry ? 2 * each : each;
  return (
    <div class="running" role="status">
      <p>
        <span class="spinner" aria-hidden="true" /> Running for {(elapsed / 1000).toFixed(1)} s
        {now.seen !== null && `; the server measured ${(now.seen / 1000).toFixed(1)} s`}
      </p>
      {most !== null && (
        <Meter
          name="Time"
          part={elapsed / most}
          text={`${micros(elapsed * 1000)} of ${micros(most * 1000)}`}
        />
      )}
      <Button sort="danger" onClick={cancel}>
        Cancel
      </Button>
    </div>
  );
}

/** Where the result is below the script, it comes into view. */
export function useIntoView(now: Result | null): void {
  useEffect(() => {
    if (now && matchMedia("(max-width: 960px)").matches) {
      document.querySelector(".outcome")?.scrollIntoView({ block: "start" });
    }
  }, [now]);
}

export function ResultPanel() {
  const [now, running] = [result.value, progress.value];
  useIntoView(now);
  if (running) return <Running now={running} />;
  if (!now) {
    return (
      <Empty title="No runs yet">
        <p>
          <b>Run</b> executes the script. <b>Dry run</b> executes it, reports what it would change, and rolls
          it back. <b>Step</b> is a dry run that shows the script's variables before each call.
        </p>
      </Empty>
    );
  }
  const { told, trouble, reply } = now;
  const calls = told.trace?.steps.filter((step) => "call" in step).length ?? 0;
  const writes = told.writes;
  const tabs = [
    { id: "reply" as const, name: trouble ? "Error" : "Reply" },
    { id: "calls" as const, name: `Calls ${count(calls + (told.trace?.omitted ?? 0))}` },
    {
      id: "changes" as const,
      name: writes ? `Changes ${count(writes.length + (told.writes_omitted ?? 0))}` : "Changes",
    },
  ];
  return (
    <div class="result">
      <Head result={now} />
      <Tabs label="Parts of the result" panel="result-panel" all={tabs} now={tab.value} choose={chooseTab} />
      <div class="result-body" id="result-panel" role="tabpanel" aria-label={tab.value} tabIndex={0}>
        {tab.value === "reply" && trouble && <TroubleView trouble={trouble} />}
        {tab.value === "reply" && reply && <ReplyView reply={reply.tree} raw={reply.raw} />}
        {tab.value === "calls" && <Timeline trace={told.trace} key={now.waited} />}
        {tab.value === "changes" && <Changes told={told} dry={now.dry} mode={now.draft.mode} />}
      </div>
    </div>
  );
}
