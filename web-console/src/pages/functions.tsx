/** The libraries of functions: what they contain, their code, their deletion. */
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { command } from "../api/http";
import { shown, type Text } from "../api/text";
import { Editor } from "../editor/lazy";
import { bytes, count } from "../run/numbers";
import { Badge, Button, Dialog, Empty, Notice } from "../ui/parts";
import { addressOf, go, route } from "../ui/route";
import { attempt } from "../ui/toast";

interface Library {
  library_name: string;
  functions: { name: string; description: Text | null; flags: string[] }[];
  library_code: Text;
}

const libraries = signal<Library[] | null>(null);
/** Why they could not be loaded. */
const trouble = signal<string | null>(null);
/** The library whose deletion is to be confirmed. */
const deleting = signal<string | null>(null);

/** The one that the address names. */
const opened = computed(() => libraries.value?.find((one) => one.library_name === route.value.name));

async function refresh(): Promise<void> {
  try {
    const all = (await command(["FUNCTION", "LIST", "WITHCODE"])) as unknown as Library[];
    libraries.value = all.sort((a, b) => (a.library_name < b.library_name ? -1 : 1));
    trouble.value = null;
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error);
  }
}

const close = () => go({ page: "functions" });

async function remove(name: string): Promise<void> {
  deleting.value = null;
  if (!(await attempt(() => command(["FUNCTION", "DELETE", name]), "Deleted."))) return;
  if (route.value.name === name) go({ page: "functions" }, true);
  await refresh();
}

function sizeOf(code: Text): number {
  return typeof code === "string" ? new TextEncoder().encode(code).length : atob(code.base64).length;
}

function Line({ library }: { library: Library }) {
  const { library_name: name, functions, library_code: code } = library;
  return (
    <tr>
      <th scope="row">
        <a href={addressOf({ page: "functions", name })}>{name}</a>
      </th>
      <td>
        <code>{functions.map((one) => one.name).join(", ")}</code>
      </td>
      <td class="number">{bytes(sizeOf(code))}</td>
      <td class="actions">
        <Button sort="quiet" aria-label={`Delete ${name}`} onClick={() => (deleting.value = name)}>
          Delete
        </Button>
      </td>
    </tr>
  );
}

function Libraries({ all }: { all: Library[] }) {
  if (all.length === 0) {
    return (
      <Empty title="No libraries">
        <p>FUNCTION LOAD stores a library of functions; FCALL calls one of them by its name.</p>
      </Empty>
    );
  }
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Libraries">
      <table class="list">
        <thead>
          <tr>
            <th>Library</th>
            <th>Functions</th>
            <th class="number">Size</th>
            <th>
              <span class="unseen">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {all.map((library) => (
            <Line key={library.library_name} library={library} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Opened({ library }: { library: Library }) {
  const { library_name: name, functions, library_code: code } = library;
  return (
    <Dialog title={name} close={close} wide>
      <div class="opened">
        <Editor label="Code of the library" value={shown(code)} />
      </div>
      <ul class="functions">
        {functions.map((one) => (
          <li key={one.name}>
            <code>{one.name}</code>
            {one.flags.map((flag) => (
              <Badge key={flag}>{flag}</Badge>
            ))}
            {one.description !== null && <span class="quiet">{shown(one.description)}</span>}
          </li>
        ))}
      </ul>
      <div class="dialog-end">
        <Button sort="danger" onClick={() => (deleting.value = name)}>
          Delete
        </Button>
      </div>
    </Dialog>
  );
}

function Deleting({ name }: { name: string }) {
  return (
    <Dialog title="Delete this library?" close={() => (deleting.value = null)}>
      <p>
        FCALL of the functions of <code>{name}</code> fails until the library is loaded again.
      </p>
      <div class="dialog-end">
        <Button sort="danger" onClick={() => void remove(name)}>
          Delete
        </Button>
      </div>
    </Dialog>
  );
}

export function FunctionsPage() {
  useEffect(() => void refresh(), []);
  const all = libraries.value;
  const { name } = route.value;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Functions</h1>
        {all && <Badge>{count(all.length)}</Badge>}
        <span class="space" />
        <Button onClick={() => void refresh()}>Reload</Button>
      </header>
      {trouble.value && <Notice sort="bad">{trouble.value}</Notice>}
      {all && name !== undefined && !opened.value && (
        <Notice sort="warn">The server has no library {name}. It was deleted, or never loaded.</Notice>
      )}
      {all && <Libraries all={all} />}
      {opened.value && <Opened key={name} library={opened.value} />}
      {deleting.value !== null && <Deleting name={deleting.value} />}
    </div>
  );
}
