/** The page where scripts are written and run. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Editor } from "../editor/lazy";
import { StepPanel } from "../step/panel";
import { Button, Notice } from "../ui/parts";
import { Controls } from "./controls";
import { ExamplesDialog, HistoryDialog, ShareDialog } from "./dialogs";
import { cancel, complaint, leaveSteps, progress, result, run } from "./execute";
import { ResultPanel } from "./result";
import { Rows } from "./rows";
import { tellAddress } from "./share";
import { args, keys, loads, script } from "./state";

const open = signal<"examples" | "history" | "share" | null>(null);

async function share(): Promise<void> {
  await tellAddress();
  open.value = "share";
}

function onKey(event: KeyboardEvent): void {
  const command = event.ctrlKey || event.metaKey;
  if (!command || event.key !== "Enter") return;
  event.preventDefault();
  event.stopPropagation();
  void run(event.altKey ? "step" : event.shiftKey ? "dry" : "run");
}

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);
const ctrl = isMac ? "⌘" : "Ctrl+";

function Toolbar() {
  return (
    <div class="toolbar">
      <Button sort="quiet" onClick={() => (open.value = "examples")}>
        Examples
      </Button>
      <Button sort="quiet" onClick={() => (open.value = "history")}>
        History
      </Button>
      <Button sort="quiet" onClick={() => void share()}>
        Share
      </Button>
      <span class="space" />
      <div class="buttons">
        {progress.value ? (
          <Button sort="danger" onClick={cancel}>
            Cancel
          </Button>
        ) : (
          <>
            <Button
              title={`Run it, roll it back, and show its variables at each call (${ctrl}Alt+Enter)`}
              onClick={() => void run("step")}
            >
              Step
            </Button>
            <Button
              title={`Run it, report what it would change, and roll it back (${ctrl}Shift+Enter)`}
              onClick={() => void run("dry")}
            >
              Dry run
            </Button>
            <Button sort="primary" title={`${ctrl}Enter`} onClick={() => void run("run")}>
              Run <kbd>{ctrl}⏎</kbd>
            </Button>
          </>
        )}
      </div>
    </div>
  );
}

export function Playground() {
  useEffect(() => {
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
  const stepped = !progress.value && result.value?.stepped ? result.value : null;
  return (
    <div class="playground">
      <h1 class="unseen">Playground</h1>
      <section class="work" aria-label="Script">
        <Toolbar />
        <Editor
          label="Script"
          value={script.value}
          version={loads.value}
          change={(text) => (script.value = text)}
        />
        <div class="inputs">
          <Rows title="Keys" one="Key" name="KEYS" rows={keys} kinds={["text", "hex"]} />
          <Rows
            title="Arguments"
            one="Argument"
            name="ARGV"
            rows={args}
            kinds={["text", "number", "json", "hex"]}
          />
          <Controls />
        </div>
        {complaint.value && <Notice sort="bad">{complaint.value}</Notice>}
      </section>
      <section class="outcome" aria-label="Result">
        {stepped ? <StepPanel key={stepped.waited} result={stepped} leave={leaveSteps} /> : <ResultPanel />}
      </section>
      {open.value === "examples" && <ExamplesDialog close={() => (open.value = null)} />}
      {open.value === "history" && <HistoryDialog close={() => (open.value = null)} />}
      {open.value === "share" && <ShareDialog close={() => (open.value = null)} />}
    </div>
  );
}
