/** What is known of a run that is looked at call by call. */
import { shown } from "../api/text";
import type { LuaValue, Step } from "../api/types";

/** Places at which a run can be looked at, as the number of steps before each: before its calls, and at its end. */
export function placesOf(steps: Step[]): number[] {
  return [...steps.keys()].filter((at) => "call" in (steps[at] as Step)).concat(steps.length);
}

/** A value of Lua that is no table, in a line. */
export function inWords(value: LuaValue): string {
  switch (value.type) {
    case "string":
      return JSON.stringify(shown(value.value)) + (value.length > 128 ? `… (${value.length} bytes)` : "");
    case "number":
    case "boolean":
      return String(value.value);
    case "table":
      return value.count === null ? "large table" : `table of ${value.count}`;
    default:
      return value.type;
  }
}
