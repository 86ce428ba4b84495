/** Stepping: a dry run that is over is looked at call by call, forward and backward. */
import { useEffect, useState } from "preact/hooks";
import { placeName } from "../api/places";
import { shown } from "../api/text";
import type { Call, Step } from "../api/types";
import { shownLine } from "../editor/marks";
import { Changes } from "../run/changes";
import type { Result } from "../run/execute";
import { count, counted } from "../run/numbers";
import { ReplyView } from "../run/reply-view";
import { TroubleView, useIntoView } from "../run/result";
import { script } from "../run/state";
import { answer, words } from "../run/timeline";
import { Badge, Button, Notice } from "../ui/parts";
import { placesOf } from "./steps";
import { FrameView } from "./values";

/** Marks the line of the call in the editor, as long as the script is the one that ran. */
function useShownLine(result: Result, call: Call | null): void {
  const line = script.value === result.draft.script ? (call?.line ?? null) : null;
  useEffect(() => {
    shownLine.value = line;
    return () => {
      shownLine.value = null;
    };
  }, [line]);
}

function Moves({ at, last, go }: { at: number; last: number; go: (to: number) => void }) {
  const moves = [
    ["First", 0],
    ["Previous", Math.max(at - 1, 0)],
    ["Next", Math.min(at + 1, last)],
    ["Last", last],
  ] as const;
  // Not disabled where they lead nowhere: the focus of the keyboard would be lost.
  return (
    <div class="buttons">
      {moves.map(([name, to]) => (
        <Button
          key={name}
          sort={name === "Next" ? "primary" : "plain"}
          aria-disabled={to === at}
          onClick={() => go(to)}
        >
          {name}
        </Button>
      ))}
    </div>
  );
}

function CallNow({ call, number, calls }: { call: Call; number: number; calls: number }) {
  return (
    <>
      <span class="quiet">
        Before call {count(number)} of {count(calls)}
        {call.line !== undefined && call.line !== null && `, in line ${call.line}`}
      </span>
      <code class="call-words">{words(call)}</code>
      <span class="quiet">
        It was answered <code class={`call-reply ${call.error ? "bad" : ""}`}>{answer(call)}</code>
      </span>
    </>
  );
}

function Variables({ call }: { call: Call }) {
  if (!call.frames) {
    return (
      <p class="quiet">
        The variables of this call were not kept: the server keeps those of the first calls.
      </p>
    );
  }
  return (
    <>
      {call.frames.map((frame, at) => (
        <FrameView key={at} frame={frame} first={at === 0} />
      ))}
      {call.frames_cut && <p class="quiet">There is more than the server keeps of a call.</p>}
    </>
  );
}

function End({ result, omitted }: { result: Result; omitted: number }) {
  const { reply, trouble, told, draft } = result;
  return (
    <div class="step-end">
      {omitted > 0 && <p class="quiet">The server kept no details of {counted(omitted, "more call")}.</p>}
      {reply && (
        <section>
          <h2>It returned</h2>
          <ReplyView reply={reply.tree} raw={reply.raw} />
        </section>
      )}
      {trouble && <TroubleView trouble={trouble} />}
      <section>
        <h2>What it would change</h2>
        <Changes told={told} dry mode={draft.mode} />
      </section>
    </div>
  );
}

function Before({ steps }: { steps: Step[] }) {
  if (steps.length === 0) return null;
  return (
    <section>
      <h2>Calls so far</h2>
      <ol class="calls">
        {steps.map((step, at) =>
          "log" in step ? (
            <li key={at} class="log-line">
              <Badge>{step.log.level}</Badge> {shown(step.log.text)}
            </li>
          ) : (
            <li key={at}>
              <code class="call-words">{words(step.call)}</code>
              <span class="call-cost">
                {typeof step.call.line === "number" && `line ${step.call.line}`}
                {step.call.shard !== null && ` · ${placeName(step.call.shard)}`}
              </span>
              <code class={`call-reply ${step.call.error ? "bad" : ""}`}>{answer(step.call)}</code>
            </li>
          ),
        )}
      </ol>
    </section>
  );
}

/** A result whose trace has variables. */
export function StepPanel({ result, leave }: { result: Result; leave: () => void }) {
  const [at, setAt] = useState(0);
  const { steps, omitted } = result.told.trace ?? { steps: [], omitted: 0 };
  const places = placesOf(steps);
  const before = places[at] ?? steps.length;
  const last = places.length - 1;
  const step = steps[before];
  const call = step && "call" in step ? step.call : null;
  useShownLine(result, call);
  useIntoView(result);
  return (
    <div class="step">
      <Notice sort="info">
        This was a dry run on the server: it is over, and all that it wrote was rolled back. Here is what was
        recorded before each call.
      </Notice>
      <div class="next-call">
        <div class="step-place" role="status">
          {call ? (
            <CallNow call={call} number={at + 1} calls={last + omitted} />
          ) : (
            <span>
              {last === 0
                ? "The end: there were no calls"
                : `The end, after ${counted(last + omitted, "call")}`}
            </span>
          )}
        </div>
        <Moves at={at} last={last} go={setAt} />
      </div>
      {call ? <Variables call={call} /> : <End result={result} omitted={omitted} />}
      <Before steps={steps.slice(0, before)} />
      <div class="buttons">
        <Button onClick={leave}>Back to results</Button>
      </div>
    </div>
  );
}
