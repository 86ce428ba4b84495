/** A small picture of numbers over time, with no axes. */

const WIDTH = 240;
const HEIGHT = 44;
/** Room for the width of the line. */
const EDGE = 2;

interface Props {
  name: string;
  values: number[];
  /** How many values the width is for; fewer fill its right side. */
  room: number;
  show: (value: number) => string;
}

/** The corners of the line: the highest value is at the top, zero at the bottom. */
export function cornersOf(values: number[], room: number): [number, number][] {
  const most = Math.max(...values, 1e-9);
  const step = WIDTH / Math.max(room - 1, 1);
  const first = WIDTH - (values.length - 1) * step;
  const height = HEIGHT - 2 * EDGE;
  return values.map((value, at) => [first + at * step, EDGE + height * (1 - value / most)]);
}

export function Sparkline({ name, values, room, show }: Props) {
  const corners = cornersOf(values.slice(-room), room);
  const line = corners.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const last = values.at(-1);
  const told =
    last === undefined ? "no values yet" : `now ${show(last)}, at most ${show(Math.max(...values))}`;
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${name}: ${told}`}
    >
      {corners.length > 1 && (
        <>
          <polygon points={`${corners[0]?.[0]},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} />
          <polyline points={line} />
        </>
      )}
    </svg>
  );
}
