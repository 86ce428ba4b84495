/**
 * While a call is typed: the syntax of its command, with the present argument marked. It has a place of its own below the
 * text, because beside the cursor it would cover code.
 */
import { type EditorState, StateField } from "@codemirror/state";
import { type PanelConstructor, showPanel } from "@codemirror/view";
import { callAt, presentPart, syntaxParts } from "./call";
import { commandOf } from "./docs";

function help(state: EditorState): PanelConstructor | null {
  const { main } = state.selection;
  if (!main.empty) return null;
  const call = callAt(state.doc.toString(), main.head);
  if (!call || call.index === 0) return null;
  const found = commandOf(call.args);
  if (!found) return null;
  const parts = syntaxParts(found.doc.syntax);
  const present = call.index < found.depth ? -1 : presentPart(parts, call.args.slice(found.depth));
  return () => ({ dom: view(found.name, parts, present, found.doc.summary) });
}

function view(name: string, parts: string[], present: number, summary: string): HTMLElement {
  const dom = document.createElement("div");
  dom.className = "argument-help";
  const syntax = document.createElement("code");
  syntax.append(name.toUpperCase());
  for (const [at, part] of parts.entries()) {
    const one = document.createElement(at === present ? "strong" : "span");
    one.textContent = part;
    syntax.append(" ", one);
  }
  const about = document.createElement("span");
  about.textContent = summary;
  dom.append(syntax, about);
  return dom;
}

/** Shown from the first key that is pressed in the editor on. */
export const argumentHelp = StateField.define<PanelConstructor | null>({
  create: () => null,
  update(old, transaction) {
    if (!transaction.docChanged && !transaction.selection) return old;
    return help(transaction.state);
  },
  provide: (field) => showPanel.from(field),
});
