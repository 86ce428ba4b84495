/** Server-sent events, read with `fetch` because EventSource cannot say who asks. */
import { request } from "./http";

export interface ServerEvent {
  kind: string;
  data: Record<string, unknown>;
}

/** Cuts a stream of text into events; what is incomplete waits for more. */
export class EventReader {
  #rest = "";

  read(text: string): ServerEvent[] {
    const blocks = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name: string) =>
        lines
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).trimStart())
          .join("\n");
      const data = field("data");
      if (data) events.push({ kind: field("event") || "message", data: JSON.parse(data) });
    }
    return events;
  }
}

/** Calls `tell` for each event until `signal` is aborted; a connection that is lost is made again. */
export async function listen(tell: (event: ServerEvent) => void, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const response = await request("/v1/events", { signal });
      const reader = response.body?.getReader();
      const decoder = new TextDecoder();
      const events = new EventReader();
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
        if (done) break;
        events.read(decoder.decode(value, { stream: true })).forEach(tell);
      }
    } catch {
      // Told by the state of the connection in the page's head.
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
