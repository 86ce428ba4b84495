/** The editor's looks, in the colours of the page. It lives in a shadow root, so that no style is ever inline. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const looks = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--ink-3)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 6px 0 12px", minWidth: "34px" },
  ".cm-activeLine": { backgroundColor: "var(--line-active)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--selection)",
  },
  ".cm-matchingBracket": { backgroundColor: "var(--selection) !important", outline: "none" },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    boxShadow: "var(--shadow)",
    fontFamily: "var(--sans)",
    fontSize: "12px",
    maxWidth: "min(480px, 92vw)",
  },
  // What helps to type is in the way of all else.
  "&:not(.cm-focused) .cm-tooltip-autocomplete, &:not(.cm-focused) .argument-help": { display: "none" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "15em" },
  ".cm-tooltip-autocomplete > ul > li": { padding: "3px 8px", color: "var(--ink)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--accent)",
    color: "var(--on-accent)",
  },
  ".cm-completionDetail": {
    color: "inherit",
    opacity: "0.85",
    fontStyle: "normal",
    marginLeft: "10px",
    fontSize: "11px",
  },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionInfo": { padding: "8px 10px", maxWidth: "340px" },
  ".about-syntax, .argument-help code": {
    fontFamily: "var(--mono)",
    fontSize: "12px",
    overflowWrap: "anywhere",
  },
  ".about-summary": { margin: "6px 0" },
  ".about-more": { color: "var(--ink-2)" },
  ".argument-help": {
    padding: "6px 12px",
    display: "grid",
    gap: "2px",
    color: "var(--ink-2)",
    fontFamily: "var(--sans)",
    fontSize: "12px",
  },
  ".argument-help strong": {
    color: "var(--accent-ink)",
    textDecoration: "underline",
    textUnderlineOffset: "3px",
  },
  ".cm-diagnostic": { borderLeftWidth: "3px", padding: "5px 10px", fontFamily: "var(--sans)" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--bad)",
    textUnderlineOffset: "4px",
  },
  ".cm-lint-marker-error": {
    content: '""',
    width: "10px",
    height: "10px",
    margin: "5px 2px",
    borderRadius: "50%",
    backgroundColor: "var(--bad)",
  },
  ".cm-gutter-lint": { width: "16px" },
  ".cm-halted": { backgroundColor: "var(--halted)", boxShadow: "inset 3px 0 var(--warn)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--ink)" },
  ".cm-panels-bottom": { borderTop: "none" },
  ".cm-panels-bottom > *": { borderTop: "1px solid var(--line)" },
  ".cm-panel.cm-search": { padding: "6px 30px 6px 12px", fontFamily: "var(--sans)" },
  ".cm-panel.cm-search [name=close]": { color: "var(--ink)", fontSize: "18px", right: "8px", top: "4px" },
  ".cm-textfield, .cm-button": {
    border: "1px solid var(--line-strong)",
    borderRadius: "5px",
    color: "var(--ink)",
    backgroundColor: "var(--surface)",
    backgroundImage: "none",
    fontSize: "12px",
    padding: "3px 8px",
  },
  ".cm-button:active": { backgroundImage: "none" },
  ".cm-panel.cm-search label": { fontSize: "12px" },
  ".cm-searchMatch": { backgroundColor: "var(--halted)" },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.atom], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.standard(tags.variableName), tags.standard(tags.name)], color: "var(--code-builtin)" },
]);

export const theme = [looks, syntaxHighlighting(colours)];
