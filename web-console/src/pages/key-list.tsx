/** The keys that were found, as a list or as a tree. */
import { effect, signal } from "@preact/signals";
import { idOf, shown, type Text } from "../api/text";
import { count, lifetime } from "../run/numbers";
import { Choice } from "../ui/parts";
import { keyAddress } from "../ui/route";
import { chosen } from "./key";
import { marks } from "./key-marks";
import { type Branch, treeOf } from "./tree";

type Form = "list" | "tree";

const KEPT = "moonshard.keys";

const form = signal<Form>(localStorage.getItem(KEPT) === "tree" ? "tree" : "list");

effect(() => localStorage.setItem(KEPT, form.value));

/** Branches by their paths: whether the user opened (true) or closed (false) them. */
const opened = signal<ReadonlyMap<string, boolean>>(new Map());

export function FormChoice() {
  return (
    <Choice
      label="Form of the list"
      name="keys-form"
      all={[
        { id: "list", name: "List" },
        { id: "tree", name: "Tree", title: "Names are cut at each colon" },
      ]}
      now={form.value}
      choose={(id) => (form.value = id)}
    />
  );
}

function Key({ at, name }: { at: Text; name: string }) {
  const mark = marks.value.get(idOf(at));
  const isChosen = chosen.value !== null && idOf(chosen.value) === idOf(at);
  const full = shown(at) || '""';
  return (
    <li class="key-line">
      <a href={keyAddress(at)} aria-label={full} title={full} aria-current={isChosen ? "true" : undefined}>
        {name || '""'}
      </a>
      {mark && (
        <span class="key-mark">
          {mark.until !== null && (
            <span title="Time until it expires">{lifetime(mark.until - Date.now())}</span>
          )}
          {mark.type}
        </span>
      )}
    </li>
  );
}

function Inside({ of }: { of: Branch }) {
  return (
    <>
      {of.branches.map((branch) => (
        <BranchLine key={branch.path} branch={branch} />
      ))}
      {of.leaves.map(({ key, name }) => (
        <Key key={idOf(key)} at={key} name={name} />
      ))}
    </>
  );
}

function BranchLine({ branch }: { branch: Branch }) {
  const { name, path } = branch;
  // Until the user decides, the branches above the chosen key are open.
  const leads = chosen.value !== null && shown(chosen.value).startsWith(path);
  const isOpen = opened.value.get(path) ?? leads;
  return (
    <li>
      <button
        type="button"
        aria-expanded={isOpen}
        onClick={() => (opened.value = new Map(opened.value).set(path, !isOpen))}
      >
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {name}{" "}
        <span class="key-mark">{count(branch.count)}</span>
      </button>
      {isOpen && (
        <ul>
          <Inside of={branch} />
        </ul>
      )}
    </li>
  );
}

export function KeyList({ keys, busy }: { keys: Text[]; busy: boolean }) {
  return (
    <ul class="key-list" aria-label="Keys" aria-busy={busy}>
      {form.value === "tree" ? (
        <Inside of={treeOf(keys)} />
      ) : (
        keys.map((key) => <Key key={idOf(key)} at={key} name={shown(key)} />)
      )}
    </ul>
  );
}
