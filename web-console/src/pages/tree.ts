/** Keys as a tree: names are split at each ":". */
import { shown, type Text } from "../api/text";

export interface Leaf {
  /** The last part of the name. */
  name: string;
  key: Text;
}

export interface Branch {
  /** The part of the name that its keys have in common, with the ":" at the end. */
  name: string;
  /** The same with the names of the branches above. */
  path: string;
  /** How many keys it contains, at all depths. */
  count: number;
  branches: Branch[];
  leaves: Leaf[];
}

function branch(name: string, path: string): Branch {
  return { name, path, count: 0, branches: [], leaves: [] };
}

/** The tree of sorted keys; it has their order. */
export function treeOf(keys: Text[]): Branch {
  const root = branch("", "");
  const known = new Map<string, Branch>([["", root]]);
  for (const key of keys) {
    const parts = shown(key).split(":");
    const name = parts.pop() ?? "";
    let at = root;
    at.count += 1;
    for (const part of parts) {
      const path = `${at.path}${part}:`;
      let next = known.get(path);
      if (!next) {
        next = branch(`${part}:`, path);
        known.set(path, next);
        at.branches.push(next);
      }
      next.count += 1;
      at = next;
    }
    at.leaves.push({ name, key });
  }
  return { ...root, branches: root.branches.map(joined) };
}

/** Joins a branch with the one branch that is all it contains. */
function joined(one: Branch): Branch {
  const [only, ...more] = one.branches;
  if (only && more.length === 0 && one.leaves.length === 0) {
    return joined({ ...only, name: one.name + only.name });
  }
  return { ...one, branches: one.branches.map(joined) };
}
