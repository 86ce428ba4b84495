/** Stepping: the next call, what is in the script's variables, and the calls so far. */
import { placeName } from "../api/places";
import { shown } from "../api/text";
import { TroubleView } from "../run/result";
import { Badge, Button, Notice } from "../ui/parts";
import { type Frame, ofLatin1, type Value } from "./protocol";
import { type Done, goOn, leave, next, pause, type Session, stepping, stop } from "./session";

function inWords(value: Value): string {
  if (value.t === "string") {
    const text = shown(ofLatin1(value.v ?? ""));
    const more = (value.n ?? 0) > (value.v ?? "").length ? "…" : "";
    return JSON.stringify(text) + more;
  }
  return value.v ?? value.t;
}

function ValueView({ value }: { value: Value }) {
  if (value.t !== "table") return <span class={`tree-value ${value.t}`}>{inWords(value)}</span>;
  if (!value.n) return <span class="tree-value">{"{}"}</span>;
  return (
    <details open={value.n <= 8}>
      <summary>table of {value.n}</summary>
      <ul class="tree">
        {(value.items ?? []).map(([key, item]) => (
          <li key={inWords(key)}>
            <span class="tree-name">{key.t === "string" ? shown(ofLatin1(key.v ?? "")) : inWords(key)}</span>{" "}
            <ValueView value={item} />
          </li>
        ))}
        {value.n > (value.items?.length ?? 0) && (
          <li class="quiet">{value.n - (value.items?.length ?? 0)} more</li>
        )}
      </ul>
    </details>
  );
}

function FrameView({ frame, first }: { frame: Frame; first: boolean }) {
  return (
    <section class="frame">
      <h2>
        {first ? "Variables" : "Called from"} <code>{frame.name}</code> line {frame.line}
      </h2>
      {frame.locals.length === 0 ? (
        <p class="quiet">No local variables yet.</p>
      ) : (
        <table class="locals">
          <tbody>
            {frame.locals.map(([name, value]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
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

function words(of: Done["words"]): string {
  return of
    .map((word, at) =>
      at === 0
        ? shown(word).toUpperCase()
        : /^[\w:{}.-]+$/.test(shown(word))
          ? shown(word)
          : JSON.stringify(shown(word)),
    )
    .join(" ");
}

function DoneView({ done }: { done: Done[] }) {
  if (done.length === 0) return null;
  return (
    <section>
      <h2>Calls so far</h2>
      <ol class="calls">
        {done.map((call, at) => (
          <li key={at}>
            <code class="call-words">{words(call.words)}</code>
            <span class="call-cost">
              {call.line !== null && `line ${call.line}`}
              {call.shard !== null && ` · ${placeName(call.shard)}`}
            </span>
            <code class={`call-reply ${call.error ? "bad" : ""}`}>
              {call.error ?? JSON.stringify(call.reply).slice(0, 200)}
            </code>
          </li>
        ))}
      </ol>
    </section>
  );
}

function NextCall({ session }: { session: Session }) {
  const { halt, state, runs } = session;
  if (state === "computing") {
    return (
      <p role="status">
        <span class="spinner" aria-hidden="true" /> The script computes; it comes to its next call, or you
        stop it.
      </p>
    );
  }
  if (!halt) return null;
  return (
    <div class="next-call" role="status">
      <span class="quiet">
        Halted in line {halt.line}, before <code>redis.{halt.how}</code>
      </span>
      <code class="call-words">{words(halt.words.map(ofLatin1))}</code>
      <div class="buttons">
        {runs ? (
          <Button onClick={pause}>Pause</Button>
        ) : (
          <>
            <Button sort="primary" disabled={state === "calling"} onClick={() => void next()}>
              Call it
            </Button>
            <Button disabled={state === "calling"} onClick={goOn}>
              Go on to the end
            </Button>
          </>
        )}
        <Button sort="danger" onClick={stop}>
          Stop
        </Button>
      </div>
    </div>
  );
}

export function StepPanel() {
  const session = stepping.value;
  if (!session) return null;
  const ended = session.state === "ended";
  return (
    <div class="step">
      <Notice sort="warn">
        <b>Stepping is not atomic.</b> The script runs in this browser; each call is executed on the server
        permanently, other clients run in between, and nothing is rolled back. The Lua version is 5.4:
        integral results of divisions are printed as
        <code> 5.0</code> by <code>..</code>, and <code>cmsgpack</code> and <code>struct</code> are missing.
      </Notice>
      {!ended && <NextCall session={session} />}
      {ended && (
        <div class="step-end">
          {session.value && (
            <p role="status">
              <Badge sort="good">ended</Badge> It returned <ValueView value={session.value} />
            </p>
          )}
          {session.trouble && <TroubleView trouble={session.trouble} />}
          {!session.value && !session.trouble && (
            <p role="status">
              <Badge sort="warn">stopped</Badge> What its calls wrote stays.
            </p>
          )}
          <Button onClick={leave}>Back to results</Button>
        </div>
      )}
      {session.halt?.frames.map((frame, at) => (
        <FrameView key={`${frame.name} ${frame.line}`} frame={frame} first={at === 0} />
      ))}
      {session.logs.length > 0 && <pre class="code">{session.logs.join("\n")}</pre>}
      <DoneView done={session.done} />
    </div>
  );
}
