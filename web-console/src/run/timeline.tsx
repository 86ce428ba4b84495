/** The calls of a run: a picture with a lane for each shard or node, and a list. */
import { useState } from "preact/hooks";
import { placeName } from "../api/places";
import { shown, type Text } from "../api/text";
import type { Call, Json, Trace } from "../api/types";
import { Badge, Button, Empty } from "../ui/parts";
import { count, counted, micros } from "./numbers";

/** Calls that the list shows at a time. */
const PAGE = 100;

/** A call as it is typed, in short. */
export function words(call: Call): string {
  const args = call.args.map((arg, at) => (at === 0 ? shown(arg).toUpperCase() : quoted(arg)));
  return (
    args.join(" ") + (call.arg_count > call.args.length ? ` … ${call.arg_count - call.args.length} more` : "")
  );
}

function quoted(text: Text): string {
  const all = shown(text);
  const cut = all.length > 60 ? `${all.slice(0, 60)}…` : all;
  return /^[\w:{}.-]+$/.test(cut) ? cut : JSON.stringify(cut);
}

/** What a call was answered, in short. */
export function answer(call: Call): string {
  if (call.error) return call.error.message;
  if (call.collected) return "batched: its reply is not used";
  if (call.long_reply) {
    const { kind, length, bytes } = call.long_reply;
    return `${kind}${length === null ? "" : ` of ${count(length)}`} (${counted(bytes, "byte")})`;
  }
  return brief(call.reply ?? null);
}

function brief(reply: Json): string {
  const text = JSON.stringify(reply);
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

/** The part of the axis that has room for a label behind its tick. */
const LABELLED = 0.93;

interface Lane {
  name: string;
  calls: { call: Call; at: number }[];
}

/** Calls by where their first key is; those without keys come first. */
export function lanesOf(calls: Call[]): Lane[] {
  const lanes = new Map<number, Lane>();
  for (const [at, call] of calls.entries()) {
    const place = call.shard ?? -1;
    const name = place < 0 ? "no key" : placeName(place);
    const lane = lanes.get(place) ?? { name, calls: [] };
    lane.calls.push({ call, at });
    lanes.set(place, lane);
  }
  return [...lanes.entries()].sort(([a], [b]) => a - b).map(([, lane]) => lane);
}

/** Round numbers that divide a span into a few parts. */
export function ticksOf(span: number): number[] {
  const rough = span / 4;
  const size = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((one) => one >= rough) ?? size * 10;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, at) => at * step);
}

function Picture({
  calls,
  chosen,
  choose,
}: {
  calls: Call[];
  chosen: number | null;
  choose: (at: number) => void;
}) {
  const span = Math.max(...calls.map((call) => call.at_microseconds + call.microseconds), 1);
  const part = (value: number) => `${(value / span) * 100}%`;
  return (
    <div
      class="lanes"
      role="img"
      aria-label={`${counted(calls.length, "call")} over ${micros(span)}; details are in the list below`}
    >
      {lanesOf(calls).map((lane) => (
        <div class="lane" key={lane.name}>
          <span class="lane-name">{lane.name}</span>
          <div class="lane-bars">
            {lane.calls.map(({ call, at }) => (
              // biome-ignore lint/a11y/noStaticElementInteractions: the list below does the same for the keyboard
              // biome-ignore lint/a11y/useKeyWithClickEvents: the list below does the same for the keyboard
              <span
                key={at}
                class={`bar ${call.error ? "bad" : call.collected ? "collected" : ""} ${at === chosen ? "chosen" : ""}`}
                style={{ left: part(call.at_microseconds), width: part(call.microseconds) }}
                title={`${words(call)}\n${micros(call.microseconds)}`}
                onClick={() => choose(at)}
              />
            ))}
          </div>
        </div>
      ))}
      <div class="lane axis">
        <span class="lane-name" />
        <div class="lane-bars">
          {ticksOf(span * LABELLED).map((tick) => (
            <span key={tick} class="tick" style={{ left: part(tick) }}>
              {micros(tick)}
            </span>
          ))}
        </div>
      </div>
    </div>
  );
}

export function Timeline({ trace }: { trace: Trace | undefined }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const [most, setMost] = useState(PAGE);
  const steps = trace?.steps ?? [];
  if (steps.length === 0) return <Empty title="No calls" />;
  const calls = steps.flatMap((step) => ("call" in step ? [step.call] : []));
  const choose = (at: number) => {
    setChosen(at);
    if (at >= most) setMost(at + PAGE);
    requestAnimationFrame(() => document.getElementById(`call-${at}`)?.scrollIntoView({ block: "nearest" }));
  };
  let at = -1;
  return (
    <div class="timeline">
      {calls.length > 0 && <Picture calls={calls} chosen={chosen} choose={choose} />}
      <ol class="calls">
        {steps.slice(0, most).map((step, index) => {
          if ("log" in step) {
            return (
              <li key={index} class="log-line">
                <Badge>{step.log.level}</Badge> {shown(step.log.text)}
              </li>
            );
          }
          at += 1;
          const { call } = step;
          return (
            <li key={index} id={`call-${at}`} class={at === chosen ? "chosen" : ""}>
              <code class="call-words">{words(call)}</code>
              <span class="call-cost">
                {call.shard !== null && `${placeName(call.shard)} · `}
                {micros(call.microseconds)}
              </span>
              <code class={`call-reply ${call.error ? "bad" : ""}`}>{answer(call)}</code>
            </li>
          );
        })}
      </ol>
      {steps.length > most && (
        <Button onClick={() => setMost(most + 5 * PAGE)}>{count(steps.length - most)} more</Button>
      )}
      {(trace?.omitted ?? 0) > 0 && (
        <p class="quiet">The server kept no details of {counted(trace?.omitted ?? 0, "more call")}.</p>
      )}
    </div>
  );
}
