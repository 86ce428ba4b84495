/** Numbers for people. */

export function count(value: number): string {
  return value.toLocaleString("en-US");
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
