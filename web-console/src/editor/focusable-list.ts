/** The list of completions scrolls, so it must be able to have the focus. */
import { ViewPlugin } from "@codemirror/view";

/** Takes the list into the order of tabs. In the editor, Tab indents for as long as the list is open. */
export const focusableList = ViewPlugin.define((view) => {
  // Lists are made after plugins are updated.
  const request = {
    key: "focusable-list",
    read: () => view.dom.querySelector(".cm-tooltip-autocomplete > ul"),
    write: (list: Element | null) => list?.setAttribute("tabindex", "0"),
  };
  return { update: () => view.requestMeasure(request) };
});
