/** A draft as the fragment of an address. Fragments are never sent, so what is shared is known to its readers only. */
import { effect } from "@preact/signals";
import { say } from "../ui/toast";
import { type Draft, draft, load, readDraft } from "./state";

/** Where drafts begin in a fragment. */
const MARK = "#s=";
const UNREADABLE = "The address contains no readable script; part of it may be missing.";

async function through(
  bytes: BlobPart,
  stream: CompressionStream | DecompressionStream,
): Promise<Uint8Array> {
  const piped = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

export async function toFragment(draft: Draft): Promise<string> {
  const small = await through(JSON.stringify(draft), new CompressionStream("deflate-raw"));
  let binary = "";
  for (const byte of small) binary += String.fromCharCode(byte);
  return MARK + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The draft of a fragment; null if it has none that can be read. */
export async function ofFragment(fragment: string): Promise<Draft | null> {
  if (!fragment.startsWith(MARK)) return null;
  try {
    const binary = atob(fragment.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/"));
    const small = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    const bytes = await through(small, new DecompressionStream("deflate-raw"));
    return readDraft(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return null;
  }
}

/** What the address says, as long as it says something. */
let told = "";

/** Says in the address what is shown, so that a reload shows it again. */
export async function tellAddress(): Promise<void> {
  const now = draft.value;
  const fragment = await toFragment(now);
  told = JSON.stringify(now);
  history.replaceState(null, "", `/${fragment}`);
}

/** Shows nothing else than what the address says: once it is changed, the address is the plain one again. */
export function followDraft(): void {
  told = JSON.stringify(draft.peek());
  effect(() => {
    const now = JSON.stringify(draft.value);
    if (now !== told && location.hash.startsWith(MARK)) history.replaceState(null, "", "/");
  });
  addEventListener("hashchange", () => void open());
}

/** The draft in the address, if there is one; a message if it cannot be read. */
export async function sharedDraft(): Promise<Draft | null> {
  const shared = await ofFragment(location.hash);
  if (!shared && location.hash.startsWith(MARK)) say(UNREADABLE, true);
  return shared;
}

/** Shows the draft of an address that was opened in this tab. */
async function open(): Promise<void> {
  const shared = await sharedDraft();
  const text = JSON.stringify(shared);
  // Loading it again would move the cursor.
  if (!shared || text === JSON.stringify(draft.peek())) return;
  told = text;
  load(shared);
  say("This script was shared with you.");
}
