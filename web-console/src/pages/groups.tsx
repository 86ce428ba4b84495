/** The groups of a cluster with replicas, and its processes. */
import type { Group, Member, Replica, StoreProcess } from "../api/types";
import { bytes, count } from "../run/numbers";
import { Badge, Notice } from "../ui/parts";
import { Fact } from "./fact";

/** What the slot map calls a group. */
export function ownerName({ name, leader }: Group): string {
  return leader === null ? `${name}, which has no leader` : `${name}, led by ${leader}`;
}

/** What a replica is, in words, and how well that is. */
function stateOf(replica: Replica): { sort: string; text: string } {
  switch (replica.state) {
    case "leader":
      return { sort: "good", text: "leads" };
    case "follower":
      return { sort: "", text: "follows" };
    case "learner":
      return { sort: "warn", text: "no vote yet" };
    case "waits_for_copy":
      return { sort: "warn", text: "waits for a copy" };
    case "missing":
      return replica.answers ? { sort: "warn", text: "not there" } : { sort: "bad", text: "does not answer" };
  }
}

function Lag({ entries }: { entries: number | null }) {
  if (entries === null) return null;
  if (entries === 0) return <Badge sort="good">caught up</Badge>;
  return <Badge sort="warn">{`${count(entries)} ${entries === 1 ? "entry" : "entries"} behind`}</Badge>;
}

function Replicas({ group }: { group: Group }) {
  return (
    <ul class="replicas" aria-label={`Replicas of ${group.name}`}>
      {group.replicas.map((replica) => {
        const { sort, text } = stateOf(replica);
        return (
          <li key={replica.process}>
            <span class="replica-on">{replica.address}</span>
            <Badge sort={sort}>{text}</Badge>
            {replica.leaves && <Badge sort="warn">moves away</Badge>}
            <Lag entries={replica.lag_entries} />
          </li>
        );
      })}
    </ul>
  );
}

function GroupCard({ group, at, member }: { group: Group; at: number; member: Member | undefined }) {
  return (
    <article class={group.leader === null ? "card trouble" : "card"} aria-label={`Group ${group.name}`}>
      <header>
        {member && <span class={`swatch node-${at % 6}`} aria-hidden="true" />}
        <h3>{group.name}</h3>
        {group.changing && <Badge sort="warn">members change</Badge>}
        <Badge sort={group.leader === null ? "bad" : "good"}>
          {group.leader === null ? "no leader" : "has a leader"}
        </Badge>
      </header>
      {group.leader === null && (
        <Notice sort="bad">
          {member
            ? "Requests for its slots wait, and fail after some seconds: a majority of its replicas has to run."
            : "Processes cannot join or leave: a majority of its replicas has to run."}
        </Notice>
      )}
      <dl class="facts">
        <Fact name="leader" value={group.leader ?? "none"} />
        <Fact name="term" value={group.term === null ? "unknown" : count(group.term)} />
        {member && <Fact name="slots" value={count(member.slot_count)} />}
        {member && <Fact name="keys" value={count(member.keys)} />}
        {member && <Fact name="memory" value={bytes(member.bytes)} />}
      </dl>
      <Replicas group={group} />
      <p class="quiet ranges">
        {member ? group.slots : "no slots: it keeps the list of processes and groups"}
      </p>
    </article>
  );
}

export function Groups({
  groups,
  members,
  replicas,
}: {
  groups: Group[];
  members: Member[];
  replicas: number | null;
}) {
  return (
    <section>
      <h2>Groups</h2>
      {replicas !== null && (
        <p class="quiet">Each group is to have {replicas === 1 ? "one replica" : `${replicas} replicas`}.</p>
      )}
      <div class="cards">
        {groups.map((group) => {
          const at = members.findIndex((member) => member.address === group.name);
          return <GroupCard key={group.name} group={group} at={at} member={members[at]} />;
        })}
      </div>
    </section>
  );
}

const COMES_OR_GOES = { joining: "joins", leaving: "leaves", lost: "has lost its data" };

function ProcessLine({
  process,
  groups,
  hasZone,
}: {
  process: StoreProcess;
  groups: Group[];
  hasZone: boolean;
}) {
  const its = (wanted: (replica: Replica) => boolean) =>
    groups
      .filter((group) => group.replicas.some((one) => one.process === process.id && wanted(one)))
      .map((group) => group.name)
      .join(", ");
  return (
    <tr>
      <td class="number">{process.id}</td>
      <td class="replica-on">{process.address}</td>
      {hasZone && <td>{process.zone || "unknown"}</td>}
      <td>
        <Badge sort={process.answers ? "good" : "bad"}>
          {process.answers ? "answers" : "does not answer"}
        </Badge>{" "}
        {process.state !== "active" && <Badge sort="warn">{COMES_OR_GOES[process.state]}</Badge>}
        {process.error && <p class="quiet">{process.error}</p>}
      </td>
      <td>{its((replica) => replica.leads) || "none"}</td>
      <td>{its(() => true) || "none"}</td>
    </tr>
  );
}

export function Processes({ processes, groups }: { processes: StoreProcess[]; groups: Group[] }) {
  const hasZone = processes.some((process) => process.zone !== "");
  return (
    <section>
      <h2>Processes</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Processes">
        <table class="list">
          <thead>
            <tr>
              <th class="number">Number</th>
              <th>Address</th>
              {hasZone && <th>Zone</th>}
              <th>State</th>
              <th>Leads</th>
              <th>Has replicas of</th>
            </tr>
          </thead>
          <tbody>
            {processes.map((process) => (
              <ProcessLine key={process.id} process={process} groups={groups} hasZone={hasZone} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
