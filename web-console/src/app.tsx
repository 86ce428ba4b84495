/** The frame around all pages. */
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { admitted, ask, database, online } from "./api/http";
import { shown } from "./api/text";
import { CommandLinePage } from "./cli/page";
import { FunctionsPage } from "./pages/functions";
import { KeysPage } from "./pages/keys";
import { MetricsPage } from "./pages/metrics";
import { ScriptsPage } from "./pages/scripts";
import { SlowLogPage } from "./pages/slow-log";
import { TopologyPage } from "./pages/topology";
import { Playground } from "./run/playground";
import { Login } from "./ui/login";
import { Notice } from "./ui/parts";
import { DATABASES, go, PAGES, type Page, page, type Route, route } from "./ui/route";
import { nextTheme, theme } from "./ui/theme";
import { Toast } from "./ui/toast";

const NAMES: Record<Page, string> = {
  playground: "Playground",
  scripts: "Scripts",
  functions: "Functions",
  keys: "Keys",
  "command-line": "Command line",
  "slow-log": "Slow log",
  metrics: "Metrics",
  topology: "Topology",
};

/** How often a server that is lost is looked for. */
const LOOK_MS = 2000;
/** How many characters of an unknown address are shown. */
const MOST_SHOWN = 200;

effect(() => {
  if (online.value) return;
  const timer = setInterval(() => void ask("/v1/topology").catch(() => undefined), LOOK_MS);
  return () => clearInterval(timer);
});

/** The title of the tab: what is shown comes first. */
function titleOf({ page, key, name }: Route): string {
  const shows = key === undefined ? name : shown(key);
  const parts = [shows, page === "missing" ? "Page not found" : NAMES[page], "Moonshard"];
  return parts.filter(Boolean).join(" – ");
}

effect(() => {
  document.title = titleOf(route.value);
});

/** Selects a database, and leaves the key of the one before. */
function chooseDatabase(db: number): void {
  database.value = db;
  if (page.value === "keys") go({ page: "keys", db });
}

function Missing() {
  // Shows the next unknown address, too.
  void route.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Page not found</h1>
      </header>
      <p>
        The console has no page at <code>{location.hash.slice(0, MOST_SHOWN)}</code>.
      </p>
      <p>
        <a href="#/playground">Go to the playground</a>
      </p>
    </div>
  );
}

function Head() {
  const nav = useRef<HTMLElement>(null);
  const now = page.value;
  // On narrow screens the links scroll.
  useEffect(() => {
    nav.current?.querySelector(`[href="#/${now}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [now]);
  return (
    <header class="head">
      <a class="brand" href="#/playground">
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
          <path class="moon" d="M20 3a13 13 0 1 0 9 18A11 11 0 0 1 20 3z" />
          <path class="shard" d="m22 8 5 4-2 7-5-5z" />
        </svg>
        <span>Moonshard</span>
      </a>
      <nav aria-label="Pages" ref={nav}>
        {PAGES.map((name) => (
          <a key={name} href={`#/${name}`} aria-current={now === name ? "page" : undefined}>
            {NAMES[name]}
          </a>
        ))}
        <a href="/docs/">Docs</a>
      </nav>
      <div class="head-right">
        <label class="db">
          <span>db</span>
          <select
            value={database.value}
            onChange={(event) => chooseDatabase(Number(event.currentTarget.value))}
          >
            {Array.from({ length: DATABASES }, (_, db) => (
              <option key={db} value={db}>
                {db}
              </option>
            ))}
          </select>
        </label>
        <span class={`state ${online.value && admitted.value ? "on" : "off"}`} role="status">
          {online.value ? (admitted.value ? "connected" : "not signed in") : "no answer"}
        </span>
        <button
          type="button"
          class="button quiet"
          aria-label={`Use ${nextTheme()} colours`}
          title={`Use ${nextTheme()} colours`}
          onClick={() => (theme.value = nextTheme())}
        >
          ◐
        </button>
      </div>
    </header>
  );
}

export function App() {
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        To the content
      </button>
      <Head />
      {!online.value && (
        <Notice sort="bad">
          The server does not answer. What you typed stays here; the page goes on when the server is back.
        </Notice>
      )}
      <main id="main" tabIndex={-1}>
        {page.value === "playground" && <Playground />}
        {page.value === "scripts" && <ScriptsPage />}
        {page.value === "functions" && <FunctionsPage />}
        {page.value === "keys" && <KeysPage />}
        {page.value === "command-line" && <CommandLinePage />}
        {page.value === "slow-log" && <SlowLogPage />}
        {page.value === "metrics" && <MetricsPage />}
        {page.value === "topology" && <TopologyPage />}
        {page.value === "missing" && <Missing />}
      </main>
      <Login />
      <Toast />
    </>
  );
}
