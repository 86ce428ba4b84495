/**
 * Types over a selection. The browser would join the selected lines itself and keep their looks in `style` attributes, which
 * the policy of the page refuses.
 */
import { EditorView } from "@codemirror/view";

export const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { state } = view;
    const { from, to, empty } = state.selection.main;
    const text = event.data;
    if (event.inputType !== "insertText" || text === null || empty || view.composing) return false;
    if (state.readOnly) return true;
    const insert = () =>
      state.update(state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    const handlers = state.facet(EditorView.inputHandler);
    if (!handlers.some((handler) => handler(view, from, to, text, insert))) view.dispatch(insert());
    return true;
  },
});
