/** The editor. */
import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
  completionStatus,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentUnit } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { argumentHelp } from "./argument-help";
import { check } from "./check";
import { complete } from "./completion";
import { focusableList } from "./focusable-list";
import { language } from "./language";
import { type Mark, marks, reveal, runtimeMark, shownLine } from "./marks";
import { theme } from "./theme";
import { typing } from "./typing";

const setHalted = StateEffect.define<number | null>();
const halted = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(old, transaction) {
    let lines = old.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(setHalted)) continue;
      const number = effect.value;
      const line =
        number !== null && number <= transaction.state.doc.lines ? transaction.state.doc.line(number) : null;
      lines = line
        ? Decoration.set(Decoration.line({ class: "cm-halted" }).range(line.from))
        : Decoration.none;
    }
    return lines;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function diagnostic(state: EditorState, { line, message }: Mark): Diagnostic {
  const at = state.doc.line(Math.min(Math.max(line, 1), state.doc.lines));
  const from = at.from + (/^\s*/.exec(at.text)?.[0].length ?? 0);
  return { from: Math.min(from, at.to), to: at.to, severity: "error", message };
}

export interface EditorProps {
  value: string;
  /** Another one says that the value is not what was typed, but another text to be shown. */
  version?: number;
  change?: (text: string) => void;
  label: string;
}

export function Editor({ value, version, change, label }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(change);
  latest.current = change;

  useEffect(() => {
    if (!host.current) return;
    // Styles of a shadow root are objects, which the strict policy of the page lets pass.
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const writable = new Compartment();
    const editing = latest.current !== undefined;
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: value,
        extensions: [
          theme,
          lineNumbers(),
          highlightActiveLineGutter(),
          history(),
          drawSelection(),
          indentUnit.of("  "),
          bracketMatching(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          language,
          halted,
          typing,
          writable.of([EditorState.readOnly.of(!editing), EditorView.editable.of(true)]),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
          editing
            ? [
                lintGutter(),
                closeBrackets(),
                autocompletion({ override: [complete], icons: false }),
                focusableList,
                argumentHelp,
              ]
            : [],
          keymap.of([
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...searchKeymap,
            ...historyKeymap,
            ...completionKeymap,
          ]),
          // Tab indents only after Escape had its chance to give the key back to the page.
          keymap.of([
            { key: "Escape", run: (view) => completionStatus(view.state) === null && leave(view) },
            indentWithTab,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
    // The editor is made once; its text follows below.
  }, [label]);

  // Not for each value: one that comes back late would undo what was typed since.
  useEffect(() => {
    const now = view.current;
    if (now && now.state.doc.toString() !== value) {
      now.dispatch({ changes: { from: 0, to: now.state.doc.length, insert: value } });
    }
  }, [version]);

  useEffect(() => {
    if (latest.current) check(value);
  }, [value]);

  useSignalEffect(() => {
    const all: Mark[] = [...marks.value, ...(runtimeMark.value ? [runtimeMark.value] : [])];
    const now = view.current;
    if (now && latest.current)
      now.dispatch(
        setDiagnostics(
          now.state,
          all.map((mark) => diagnostic(now.state, mark)),
        ),
      );
  });

  useSignalEffect(() => {
    const line = shownLine.value;
    const now = view.current;
    if (now && latest.current) now.dispatch({ effects: setHalted.of(line) });
  });

  useSignalEffect(() => {
    const line = reveal.value;
    const now = view.current;
    if (line === null || !now || !latest.current) return;
    const at = now.state.doc.line(Math.min(Math.max(line, 1), now.state.doc.lines));
    now.dispatch({
      selection: { anchor: at.from },
      effects: EditorView.scrollIntoView(at.from, { y: "center" }),
    });
    now.focus();
    reveal.value = null;
  });

  return <div class="editor" ref={host} />;
}

/** Gives the keyboard back to the page: Tab goes on from the editor. */
function leave(view: EditorView): boolean {
  view.contentDOM.blur();
  return true;
}
