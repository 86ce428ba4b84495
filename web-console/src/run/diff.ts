/** What changed, element by element, as far as the first elements tell. */
import { idOf, shown, type Text } from "../api/text";
import type { Preview, Write } from "../api/types";

export type Sort = "same" | "added" | "removed" | "changed";

export interface Line {
  sort: Sort;
  /** Field of a hash, member of a sorted set; else nothing. */
  label: string | null;
  before: string | null;
  after: string | null;
}

export interface Changed {
  what: "created" | "deleted" | "changed" | "touched";
  lines: Line[];
  /** In words: type, expiry, mark. */
  notes: string[];
  /** Elements that are not shown. */
  unseen: number;
}

function pairsOf(preview: Preview | null): Map<string, [Text, Text]> {
  const pairs = new Map<string, [Text, Text]>();
  const elements = preview?.elements ?? [];
  for (let at = 0; at + 1 < elements.length; at += 2) {
    const [name, value] = [elements[at] ?? "", elements[at + 1] ?? ""];
    pairs.set(idOf(name), [name, value]);
  }
  return pairs;
}

function diffPairs(before: Preview | null, after: Preview | null): Line[] {
  const [old, now] = [pairsOf(before), pairsOf(after)];
  const names = new Set([...old.keys(), ...now.keys()]);
  return [...names].map((name) => {
    const [was, is] = [old.get(name), now.get(name)];
    const label = shown((is ?? was)?.[0] ?? "");
    return line(label, was && shown(was[1]), is && shown(is[1]));
  });
}

function line(label: string | null, was: string | undefined, is: string | undefined): Line {
  const sort: Sort =
    was === undefined ? "added" : is === undefined ? "removed" : was === is ? "same" : "changed";
  return { sort, label, before: was ?? null, after: is ?? null };
}

function diffSets(before: Preview | null, after: Preview | null): Line[] {
  const [old, now] = [before?.elements ?? [], after?.elements ?? []].map((of) => of.map(shown)) as [
    string[],
    string[],
  ];
  const all = [...new Set([...old, ...now])];
  return all.map((member) =>
    line(null, old.includes(member) ? member : undefined, now.includes(member) ? member : undefined),
  );
}

/** The longest common subsequence says what stayed. */
export function diffLists(old: string[], now: string[]): Line[] {
  const longest = Array.from({ length: old.length + 1 }, () => new Array<number>(now.length + 1).fill(0));
  const at = (i: number, j: number) => longest[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const row = longest[i];
      if (row) row[j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push(line(null, old[i++], now[j++]));
    } else if (i < old.length && (j >= now.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push(line(null, old[i++], undefined));
    } else {
      lines.push(line(null, undefined, now[j++]));
    }
  }
  return lines;
}

function linesOf(before: Preview | null, after: Preview | null): Line[] {
  const type = (after ?? before)?.type;
  switch (type) {
    case "hash":
    case "zset":
      return diffPairs(before, after);
    case "set":
      return diffSets(before, after);
    case "list":
      return diffLists((before?.elements ?? []).map(shown), (after?.elements ?? []).map(shown));
    case "string":
    case "ReJSON-RL": {
      const text = (of: Preview | null) => (of ? shown(of.elements[0] ?? "") : undefined);
      return [line(null, text(before), text(after))];
    }
    default:
      return [];
  }
}

function expiry(at: number | null): string {
  return at === null ? "never" : new Date(at).toLocaleString();
}

export function diffOf({ before, after }: Write): Changed {
  const kept = before && after && before.type === after.type;
  const lines =
    before && after && !kept ? [...linesOf(before, null), ...linesOf(null, after)] : linesOf(before, after);
  const notes: string[] = [];
  if (before && after) {
    if (before.type !== after.type) notes.push(`type ${before.type} → ${after.type}`);
    if (before.length !== after.length) notes.push(`length ${before.length} → ${after.length}`);
    if (before.expire_at_ms !== after.expire_at_ms)
      notes.push(`expires ${expiry(before.expire_at_ms)} → ${expiry(after.expire_at_ms)}`);
    if (before.sticky !== after.sticky) notes.push(after.sticky ? "becomes sticky" : "is no longer sticky");
  } else if (after) {
    if (after.expire_at_ms !== null) notes.push(`expires ${expiry(after.expire_at_ms)}`);
    if (after.sticky) notes.push("sticky");
  }
  const same = lines.every((one) => one.sort === "same") && notes.length === 0;
  const what = !before ? "created" : !after ? "deleted" : same ? "touched" : "changed";
  const seen = (of: Preview | null) => {
    if (!of || of.type === "string" || of.type === "ReJSON-RL" || of.type === "database") return 0;
    const each = of.type === "hash" || of.type === "zset" ? 2 : 1;
    return Math.max(0, of.length - of.elements.length / each);
  };
  return { what, lines, notes, unseen: Math.max(seen(before), seen(after)) };
}
