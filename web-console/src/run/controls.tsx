/** How it is run: mode, flags, budget. */
import { Choice } from "../ui/parts";
import { short } from "./numbers";
import { server } from "./server";
import { changes, flags, limits, type Mode, mode } from "./state";

const MODES: { id: Mode; name: string; title: string }[] = [
  { id: "atomic", name: "Atomic", title: "Its keys are locked; others see all of it or nothing." },
  { id: "read-only", name: "Read-only", title: "EVAL_RO: shared locks, and a write is an error." },
  {
    id: "async",
    name: "Async",
    title: "disable-atomicity: each call is one of its own, others run between.",
  },
];

const FLAGS: { word: string; name: string; title: string }[] = [
  {
    word: "on-error=rollback",
    name: "undo on error",
    title: "An error of the script undoes its writes; else they stay, as in Redis.",
  },
  {
    word: "undeclared-keys=reject",
    name: "declared keys only",
    title: "A key that is not among KEYS is an error.",
  },
  { word: "allow-oom", name: "allow-oom", title: "It may write although memory is full." },
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
      <legend>How it runs</legend>
      <Choice label="Mode" name="mode" all={MODES} now={mode.value} choose={(id) => (mode.value = id)} />
      <div class="flags">
        {FLAGS.map(({ word, name, title }) => (
          <label key={word} title={title}>
            <input type="checkbox" checked={flags.value.includes(word)} onChange={() => toggle(word)} />
            {name}
          </label>
        ))}
        <label title="What was there before is found by running it twice under its locks: the first time is taken back.">
          <input
            type="checkbox"
            checked={changes.value}
            disabled={mode.value !== "atomic"}
            onChange={() => {
              changes.value = !changes.value;
            }}
          />
          tell changes
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
