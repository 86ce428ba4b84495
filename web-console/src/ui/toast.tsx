/** A line that says what was done, and goes by itself. */
import { signal } from "@preact/signals";

const said = signal<{ text: string; bad: boolean } | null>(null);
let going: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, bad = false): void {
  said.value = { text, bad };
  clearTimeout(going);
  going = setTimeout(() => {
    said.value = null;
  }, 5000);
}

/** Says what went wrong with something that a button began. */
export async function attempt(what: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await what();
    if (done) say(done);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), true);
    return false;
  }
}

export function Toast() {
  return (
    <output class="toast-place" aria-live="polite">
      {said.value && <span class={`toast ${said.value.bad ? "bad" : ""}`}>{said.value.text}</span>}
    </output>
  );
}
