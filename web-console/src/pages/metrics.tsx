/** What the server does now: numbers and their last two minutes. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { command } from "../api/http";
import { bytes, count, short } from "../run/numbers";
import { Notice } from "../ui/parts";
import { Sparkline } from "../ui/sparkline";
import { ratesOf, type Sample, sampleOf } from "./samples";

const EACH_MS = 1000;
/** Samples that are kept: two minutes. */
const MOST = 121;
/** After a longer gap the pictures start again. */
const GAP_MS = 5000;

const samples = signal<Sample[]>([]);
const trouble = signal<string | null>(null);
let last = 0;

async function look(): Promise<void> {
  try {
    const now = sampleOf(String(await command(["INFO"])));
    if (performance.now() - last > GAP_MS) samples.value = [];
    last = performance.now();
    samples.value = [...samples.value, now].slice(-MOST);
    trouble.value = null;
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error);
  }
}

/** Asks each second while the page is visible. */
function follow(): () => void {
  let asking = false;
  const ask = () => {
    if (asking || document.hidden) return;
    asking = true;
    void look().finally(() => {
      asking = false;
    });
  };
  ask();
  const timer = setInterval(ask, EACH_MS);
  document.addEventListener("visibilitychange", ask);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", ask);
  };
}

const rate = (value: number) => (value < 10 ? value.toFixed(1) : short(Math.round(value)));

function Figure({ name, values, show }: { name: string; values: number[]; show: (value: number) => string }) {
  const now = values.at(-1);
  return (
    <article class="card figure">
      <header>
        <h2>{name}</h2>
        <span class="figure-now">{now === undefined ? "…" : show(now)}</span>
      </header>
      <Sparkline name={name} values={values} room={MOST - 1} show={show} />
      <p class="quiet">{values.length > 0 ? `at most ${show(Math.max(...values))}` : "no values yet"}</p>
    </article>
  );
}

export function MetricsPage() {
  useEffect(follow, []);
  const all = samples.value;
  const of = (name: "keys" | "memory" | "clients") => all.map((sample) => sample[name]);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Metrics</h1>
      </header>
      {trouble.value && <Notice sort="bad">{trouble.value}</Notice>}
      <div class="cards">
        <Figure name="Calls per second" values={ratesOf(all, "calls")} show={rate} />
        <Figure name="Script runs per second" values={ratesOf(all, "runs")} show={rate} />
        <Figure name="Keys" values={of("keys")} show={count} />
        <Figure name="Memory" values={of("memory")} show={bytes} />
        <Figure name="Connected clients" values={of("clients")} show={count} />
      </div>
      <p class="quiet">
        The last two minutes, from INFO, which this page calls each second while it is visible. Calls are
        commands of clients, without those of scripts; keys are those of all databases. For more, and for
        longer, let Prometheus read <a href="/metrics">/metrics</a>.
      </p>
    </div>
  );
}
