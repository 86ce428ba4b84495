/** How it is run: mode, flags, budget. */
import { Choice } from "../ui/parts";
import { short } from "./numbers";
import { server } from "./server";
import { changes, flags, limits, type Mode, mode } from "./state";

const MODES: { id: Mode; name: string; title: string }[] = [
  {
    id: "atomic",
    name: "Atomic",
    title: "The keys are locked; other clients see all of its writes or none.",
  },
  {
    id: "read-only",
    name: "Read-only",
    title: "EVAL_RO: the keys are locked for reading, and a write is an error.",
  },
  {
    id: "async",
    name: "Async",
    title: "disable-atomicity: each call is executed separately, other clients run in between.",
  },
];

const FLAGS: { word: string; name: string; title: string }[] = [
  {
    word: "on-error=rollback",
    name: "roll back on error",
    title: "An error of the script rolls back its writes; otherwise they stay, as in Redis.",
  },
  {
    word: "undeclared-keys=reject",
    name: "declared keys only",
    title: "Access to a key that is not among KEYS is an error.",
  },
  { word: "allow-oom", name: "allow-oom", title: "The script can write even if memory is full." },
];

function toggle(word: string): void {
  flags.value = flags.value.includes(word)
    ? flags.value.filter((one) => one !== word)
    : [...flags.value, word];
}

export function Controls() {
  const { fuel, timeout, memory } = server.value;
  const budget = [
    { id: "fuel" as const, name: "Fuel", hint: fuel === null ? "" : short(fuel), mode: "numeric" as const },
    {
      id: "timeout" as const,
      name: "Time, ms",
      hint: timeout === null ? "" : String(timeout),
      mode: "numeric" as const,
    },
    { id: "memory" as const, name: "Memory", hint: memory ?? "", mode: "text" as const },
  ];
  return (
    <fieldset class="controls">
      <legend>Mode</legend>
      <Choice label="Mode" name="mode" all={MODES} now={mode.value} choose={(id) => (mode.value = id)} />
      <div class="flags">
        {FLAGS.map(({ word, name, title }) => (
          <label key={word} title={title}>
            <input type="checkbox" checked={flags.value.includes(word)} onChange={() => toggle(word)} />
            {name}
          </label>
        ))}
        <label title="The script is run twice with the same locks, to compare the values before and after; the first run is rolled back.">
          <input
            type="checkbox"
            checked={changes.value}
            disabled={mode.value !== "atomic"}
            onChange={() => {
              changes.value = !changes.value;
            }}
          />
          report changes
        </label>
      </div>
      <div class="budget">
        {budget.map(({ id, name, hint, mode }) => (
          <label key={id}>
            {name}
            <input
              value={limits.value[id]}
              placeholder={hint}
              inputMode={mode}
              onInput={(event) => (limits.value = { ...limits.value, [id]: event.currentTarget.value })}
            />
          </label>
        ))}
      </div>
    </fieldset>
  );
}
