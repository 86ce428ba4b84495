/** The editor, which is fetched behind the rest of the page: until it is there the text is. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { EditorProps } from "./editor";

const loaded = signal<typeof import("./editor") | null>(null);

export function Editor(props: EditorProps) {
  useEffect(() => {
    if (loaded.value) return;
    void import("./editor").then((editor) => {
      loaded.value = editor;
    });
  }, []);
  const now = loaded.value;
  return now ? <now.Editor {...props} /> : <pre class="editor waits">{props.value}</pre>;
}
