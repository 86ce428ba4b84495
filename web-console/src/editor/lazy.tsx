/** The editor, which is fetched behind the rest of the page: until it is there the text is. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { online } from "../api/http";
import type { EditorProps } from "./editor";

const loaded = signal<typeof import("./editor") | null>(null);

export function Editor(props: EditorProps) {
  const reachable = online.value;
  useEffect(() => {
    if (loaded.value || !reachable) return;
    import("./editor").then(
      (editor) => {
        loaded.value = editor;
      },
      // The server went away. It is asked again when it answers again.
      () => undefined,
    );
  }, [reachable]);
  const now = loaded.value;
  return now ? <now.Editor {...props} /> : <pre class="editor waits">{props.value}</pre>;
}
