/** What the editor is to show on which lines. */
import { signal } from "@preact/signals";

export interface Mark {
  line: number;
  message: string;
}

/** Found while it is typed. */
export const marks = signal<Mark[]>([]);
/** Found by running it. */
export const runtimeMark = signal<Mark | null>(null);
/** Where a script that is stepped through makes its call. */
export const shownLine = signal<number | null>(null);
/** A line to go to. */
export const reveal = signal<number | null>(null);
