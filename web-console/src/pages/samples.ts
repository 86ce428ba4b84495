/** Numbers of INFO over time. */

/** Numbers of one INFO. */
export interface Sample {
  /** Microseconds of the server's clock. */
  at: number;
  runId: string;
  calls: number;
  runs: number;
  keys: number;
  memory: number;
  clients: number;
}

/** The fields of INFO, whatever their section. */
export function fieldsOf(info: string): Map<string, string> {
  const lines = info.split(/\r?\n/).filter((line) => line.includes(":") && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1)];
    }),
  );
}

export function sampleOf(info: string): Sample {
  const fields = fieldsOf(info);
  const number = (name: string) => Number(fields.get(name) ?? 0);
  let keys = 0;
  for (const [name, value] of fields) {
    if (/^db\d+$/.test(name)) keys += Number(/keys=(\d+)/.exec(value)?.[1] ?? 0);
  }
  return {
    at: number("server_time_usec"),
    runId: fields.get("run_id") ?? "",
    calls: number("total_commands_processed"),
    runs: number("scripts_run"),
    keys,
    memory: number("used_memory"),
    clients: number("connected_clients"),
  };
}

/** How much a counter grew each second, between samples. Restarts of the server are left out. */
export function ratesOf(samples: Sample[], counter: "calls" | "runs"): number[] {
  return samples.slice(1).flatMap((now, at) => {
    const before = samples[at];
    const seconds = before ? (now.at - before.at) / 1e6 : 0;
    if (!before || before.runId !== now.runId || seconds <= 0) return [];
    return [Math.max(0, now[counter] - before[counter]) / seconds];
  });
}
