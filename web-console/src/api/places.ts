/** Where keys are: shards of the server's own process, or store nodes. */
import { signal } from "@preact/signals";
import { ask } from "./http";
import type { Topology } from "./types";

/** Addresses of the store nodes; none if the data is in the server's own process. */
const nodes = signal<string[]>([]);

export async function loadPlaces(): Promise<void> {
  const told = await ask<Topology>("/v1/topology").catch(() => null);
  if (told) nodes.value = told.members.map((member) => member.address);
}

/** What the number of a place in a trace means. */
export function placeName(place: number): string {
  return nodes.value[place] ?? `shard ${place}`;
}
