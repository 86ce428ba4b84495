/** Numbers for people. */

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** `1 call`, `2 calls`. */
export function counted(value: number, one: string): string {
  return `${count(value)} ${one}${value === 1 ? "" : "s"}`;
}

/** `1.2 M`; below ten thousand as it is. */
export function short(value: number): string {
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ] as const) {
    if (value >= size) return `${trim(value / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return count(value);
}

function trim(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

export function bytes(value: number): string {
  for (const [size, unit] of [
    [2 ** 30, "GB"],
    [2 ** 20, "MB"],
    [2 ** 10, "KB"],
  ] as const) {
    if (value >= size) return `${trim(value / size)} ${unit}`;
  }
  return `${value} B`;
}

export function micros(value: number): string {
  if (value >= 1e6) return `${trim(value / 1e6)} s`;
  if (value >= 1e3) return `${trim(value / 1e3)} ms`;
  return `${Math.round(value)} µs`;
}

/** Milliseconds in the largest unit that fits: `3 d`. */
export function lifetime(ms: number): string {
  for (const [size, unit] of [
    [86_400e3, "d"],
    [3_600e3, "h"],
    [60e3, "min"],
  ] as const) {
    if (ms >= size) return `${count(Math.floor(ms / size))} ${unit}`;
  }
  return ms > 0 ? `${Math.ceil(ms / 1000)} s` : "expired";
}
