/** Small parts that all pages are made of. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Button({
  sort = "plain",
  children,
  ...rest
}: { sort?: "plain" | "primary" | "danger" | "quiet" } & JSX.IntrinsicElements["button"]) {
  return (
    <button type="button" {...rest} class={`button ${sort} ${rest.class ?? ""}`}>
      {children}
    </button>
  );
}

interface TabsProps<T extends string> {
  label: string;
  all: { id: T; name: ComponentChildren }[];
  now: T;
  choose: (id: T) => void;
  /** Id of what the tabs change. */
  panel: string;
}

/** Tabs, moved along with the arrow keys. */
export function Tabs<T extends string>({ label, all, now, choose, panel }: TabsProps<T>) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = all.findIndex((tab) => tab.id === now);
    const next = all[(at + step + all.length) % all.length];
    if (!next) return;
    choose(next.id);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
    event.preventDefault();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {all.map(({ id, name }) => (
        <button
          key={id}
          type="button"
          role="tab"
          data-tab={id}
          aria-selected={id === now}
          aria-controls={panel}
          tabIndex={id === now ? 0 : -1}
          onClick={() => choose(id)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  name: string;
  all: { id: T; name: string; title?: string }[];
  now: T;
  choose: (id: T) => void;
}

/** One of a few, all of them visible. */
export function Choice<T extends string>({ label, name, all, now, choose }: ChoiceProps<T>) {
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {all.map((one) => (
        <label key={one.id} title={one.title}>
          <input type="radio" name={name} checked={one.id === now} onChange={() => choose(one.id)} />
          <span>{one.name}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface DialogProps {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

/** A dialog in front of everything; Escape closes it. */
export function Dialog({ title, close, children, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  const outside = (event: MouseEvent) => {
    if (event.target === element.current) close();
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape and the button do for the keyboard what this does for the mouse
    <dialog ref={element} class={wide ? "wide" : ""} aria-label={title} onClose={close} onClick={outside}>
      <div class="dialog-body">
        <header>
          <h2>{title}</h2>
          <Button sort="quiet" aria-label="Close" onClick={close}>
            ✕
          </Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function Notice({ sort, children }: { sort: "bad" | "warn" | "info"; children: ComponentChildren }) {
  return (
    <div class={`notice ${sort}`} role={sort === "bad" ? "alert" : "status"}>
      {children}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Badge({ sort = "", children }: { sort?: string; children: ComponentChildren }) {
  return <span class={`badge ${sort}`}>{children}</span>;
}

/** A bar with its number. `part` is of one. */
export function Meter({
  name,
  part,
  text,
  title,
}: {
  name: string;
  part: number;
  text: string;
  title?: string;
}) {
  const percent = Math.round(Math.min(1, Math.max(0, part)) * 1000) / 10;
  return (
    <div class="meter" title={title}>
      <span class="meter-name">{name}</span>
      <span
        class="meter-bar"
        role="meter"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent}
        aria-valuetext={text}
      >
        <span class={percent > 85 ? "full" : ""} style={{ width: `${percent}%` }} />
      </span>
      <span class="meter-text">{text}</span>
    </div>
  );
}

/** Puts a text where it can be pasted from. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
