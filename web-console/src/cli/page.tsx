/** The command line: single commands and their replies. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { database } from "../api/http";
import { CopyReply, FormChoice, ReplyBody } from "../run/reply-view";
import { Badge, Button, Empty, Notice } from "../ui/parts";
import { say } from "../ui/toast";
import { Browsing, forgetLines, readLines } from "./lines";
import { cancel, clear, type Exchange, exchanges, send, waiting } from "./session";

const typed = signal("");

/** Position in the history; null until an arrow key is pressed. */
let browsing: Browsing | null = null;

function onKey(event: KeyboardEvent): void {
  const steps = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!steps) return;
  event.preventDefault();
  browsing ??= new Browsing(readLines(), typed.value);
  typed.value = browsing.move(steps);
}

function submit(event: Event): void {
  event.preventDefault();
  if (waiting.value) return;
  const line = typed.value.trim();
  browsing = null;
  typed.value = "";
  void send(line);
}

function Line({ exchange }: { exchange: Exchange }) {
  const { line, db, reply, trouble } = exchange;
  return (
    <li class="exchange">
      <div class="exchange-line">
        <code>
          <span class="quiet">{db}&gt;</span> {line}
        </code>
        {reply && <CopyReply {...reply} />}
      </div>
      {reply && <ReplyBody {...reply} />}
      {trouble && <Notice sort="bad">{trouble}</Notice>}
      {!reply && !trouble && (
        <p class="quiet" role="status">
          <span class="spinner" aria-hidden="true" /> waiting for the reply
        </p>
      )}
    </li>
  );
}

function Prompt() {
  return (
    <form class="prompt" onSubmit={submit}>
      <span class="quiet" aria-hidden="true">
        {database.value}&gt;
      </span>
      <input
        aria-label="Command"
        placeholder={'SET greeting "hello world"'}
        value={typed.value}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        ref={(input) => {
          // A line of the history is edited from its end.
          if (browsing) input?.setSelectionRange(input.value.length, input.value.length);
        }}
        onInput={(event) => {
          browsing = null;
          typed.value = event.currentTarget.value;
        }}
        onKeyDown={onKey}
      />
      {waiting.value ? (
        <Button sort="danger" onClick={cancel}>
          Cancel
        </Button>
      ) : (
        <Button sort="primary" type="submit">
          Send
        </Button>
      )}
    </form>
  );
}

export function CommandLinePage() {
  const log = useRef<HTMLDivElement>(null);
  const all = exchanges.value;
  useEffect(() => {
    log.current?.scrollTo({ top: log.current.scrollHeight });
  }, [all]);
  return (
    <div class="page cli">
      <header class="page-head">
        <h1>Command line</h1>
        <Badge>db {database.value}</Badge>
        <span class="space" />
        <FormChoice />
        <Button onClick={clear}>Clear</Button>
        <Button
          onClick={() => {
            forgetLines();
            say("The history was removed.");
          }}
        >
          Clear history
        </Button>
      </header>
      <div class="cli-log" role="log" aria-label="Replies" tabIndex={0} ref={log}>
        {all.length === 0 ? (
          <Empty title="No commands yet">
            <p>
              Words are separated by spaces. Quotes allow spaces within a word, and <code>"\x00"</code> is a
              byte. ↑ and ↓ go through the history.
            </p>
          </Empty>
        ) : (
          <ol>
            {all.map((exchange) => (
              <Line key={exchange.id} exchange={exchange} />
            ))}
          </ol>
        )}
      </div>
      <Prompt />
      <p class="quiet">
        Each command is a request of its own, so commands that need a connection, such as MULTI and SUBSCRIBE,
        are refused. SELECT changes the database of the console. The history is stored in this browser only;
        lines that may contain a password are not stored.
      </p>
    </div>
  );
}
