/** What the server is made of: its process, the store nodes or groups of replicas, and which slots they have. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask } from "../api/http";
import type { Member, Topology } from "../api/types";
import { bytes, count } from "../run/numbers";
import { Badge, Notice } from "../ui/parts";
import { Fact } from "./fact";
import { Groups, ownerName, Processes } from "./groups";
import { rangesOf, SLOTS, slotOf } from "./slots";

const topology = signal<Topology | null>(null);
const key = signal("");

const LOOK_MS = 2000;

function follow(): () => void {
  const look = () =>
    void ask<Topology>("/v1/topology")
      .then((told) => {
        topology.value = told;
      })
      .catch(() => undefined);
  look();
  const timer = setInterval(look, LOOK_MS);
  return () => clearInterval(timer);
}

interface Owner {
  name: string;
  ranges: [number, number][];
}

function SlotMap({ owners }: { owners: Owner[] }) {
  const wanted = key.value === "" ? null : slotOf(new TextEncoder().encode(key.value));
  const part = (slots: number) => `${(slots / SLOTS) * 100}%`;
  const inside = (ranges: Owner["ranges"]) =>
    wanted !== null && ranges.some(([from, to]) => wanted >= from && wanted <= to);
  const at = owners.findIndex((owner) => inside(owner.ranges));
  return (
    <section>
      <h2>Slots</h2>
      <div
        class="slots"
        role="img"
        aria-label={owners.map(({ name, ranges }) => `${name}: ${ranges.join(", ")}`).join("; ")}
      >
        {owners.flatMap((owner, index) =>
          owner.ranges.map(([from, to]) => (
            <span
              key={from}
              class={`slot-run node-${index % 6}`}
              style={{ left: part(from), width: part(to - from + 1) }}
              title={`${owner.name}: ${from}–${to}`}
            />
          )),
        )}
        {wanted !== null && <span class="slot-mark" style={{ left: part(wanted + 0.5) }} />}
      </div>
      <div class="slot-scale" aria-hidden="true">
        <span>0</span>
        <span>4096</span>
        <span>8192</span>
        <span>12288</span>
        <span>16383</span>
      </div>
      <label class="find-slot">
        Where is the key
        <input
          value={key.value}
          placeholder="user:{42}"
          onInput={(event) => (key.value = event.currentTarget.value)}
        />
        <span role="status">
          {wanted !== null && `slot ${wanted}${at >= 0 ? `, ${owners[at]?.name}` : ", no node owns it"}`}
        </span>
      </label>
    </section>
  );
}

function Members({ members }: { members: Member[] }) {
  const most = Math.max(...members.map((member) => member.epoch));
  return (
    <section>
      <h2>Store nodes</h2>
      <div class="cards">
        {members.map((member, at) => (
          <article class="card" key={member.address}>
            <header>
              <span class={`swatch node-${at % 6}`} aria-hidden="true" />
              <h3>{member.address}</h3>
              <Badge sort={member.reachable ? "good" : "bad"}>
                {member.reachable ? "reachable" : "lost"}
              </Badge>
            </header>
            {member.error && <Notice sort="bad">{member.error}</Notice>}
            <dl class="facts">
              <Fact name="slots" value={count(member.slot_count)} />
              <Fact name="keys" value={count(member.keys)} />
              <Fact name="memory" value={bytes(member.bytes)} />
              <Fact name="journal lag" value={count(member.lag)} />
              <Fact
                name="map"
                value={member.epoch === most ? `${member.epoch}, newest` : `${member.epoch}, behind`}
              />
            </dl>
            <p class="quiet ranges">{member.slots || "no slots"}</p>
          </article>
        ))}
      </div>
    </section>
  );
}

/** Who has which slots, in the order of the colours. */
function ownersOf({ members, groups }: Topology): Owner[] {
  if (members.length === 0) return [{ name: "this server", ranges: [[0, SLOTS - 1]] }];
  return members.map(({ address, slots }) => {
    const group = groups?.find(({ name }) => name === address);
    return { name: group ? ownerName(group) : address, ranges: rangesOf(slots) };
  });
}

export function TopologyPage() {
  useEffect(follow, []);
  const now = topology.value;
  const node = now?.nodes[0];
  return (
    <div class="page">
      <header class="page-head">
        <h1>Topology</h1>
      </header>
      {now && node && (
        <>
          <section>
            <h2>{now.mode === "embedded" ? "This server holds the data" : "This gateway"}</h2>
            <dl class="facts">
              <Fact name="version" value={node.version} />
              <Fact name="Redis protocol" value={node.resp} />
              <Fact name="threads" value={count(node.threads)} />
              {node.shards !== null && <Fact name="shards" value={count(node.shards)} />}
              <Fact name="keys" value={count(node.keys)} />
              <Fact name="memory of keys" value={bytes(node.bytes)} />
              {now.epoch !== null && <Fact name="slot map" value={`epoch ${now.epoch}`} />}
              <Fact name="run id" value={node.id.slice(0, 12)} />
            </dl>
          </section>
          <SlotMap owners={ownersOf(now)} />
          {now.groups && now.processes && (
            <>
              <Groups groups={now.groups} members={now.members} replicas={now.replicas} />
              <Processes processes={now.processes} groups={now.groups} />
            </>
          )}
          {now.members.length > 0 && !now.groups && <Members members={now.members} />}
          {now.members.length === 0 && (
            <p class="quiet">
              All data is in this process, spread over {node.shards} shards that are locked one by one. With
              store nodes (the parameter <code>stores</code>) each has a part of the slots.
            </p>
          )}
        </>
      )}
    </div>
  );
}
