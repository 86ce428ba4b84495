/** While a call is typed: the syntax of its command, with the present argument marked. */
import { type EditorState, StateField } from "@codemirror/state";
import { type EditorView, showTooltip, type Tooltip, type TooltipView } from "@codemirror/view";
import { callAt, syntaxParts } from "./call";
import { commandOf } from "./docs";

function tooltip(state: EditorState): Tooltip | null {
  const { main } = state.selection;
  if (!main.empty) return null;
  const call = callAt(state.doc.toString(), main.head);
  if (!call || call.index === 0) return null;
  const found = commandOf(call.args);
  if (!found) return null;
  const parts = syntaxParts(found.doc.syntax);
  const present = Math.min(call.index - found.depth, parts.length - 1);
  return {
    pos: call.stringFrom ?? main.head,
    above: true,
    create: () => view(found.name, parts, present, found.doc.summary),
  };
}

function view(name: string, parts: string[], present: number, summary: string): TooltipView {
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
  return { dom };
}

/** Shown from the first key that is pressed in the editor on. */
export const argumentHelp = StateField.define<Tooltip | null>({
  create: () => null,
  update(old, transaction) {
    if (!transaction.docChanged && !transaction.selection) return old;
    return tooltip(transaction.state);
  },
  provide: (field) => showTooltip.from(field),
});

/** For Escape: whether there was something to hide. */
export function hasHelp(view: EditorView): boolean {
  return view.state.field(argumentHelp, false) != null;
}
