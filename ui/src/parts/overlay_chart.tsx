// A small chart of two runs over each other: the base dashed, the new one solid.

import type { JSX } from "preact";

export type Point = readonly [x: number, y: number | null];

interface Props {
  title: string;
  base: readonly Point[];
  newer: readonly Point[];
  xTicks: readonly (readonly [x: number, text: string])[];
  xEnd: number;
  yText: (y: number) => string;
  /** Whether the values are on a log axis. */
  log?: boolean;
  /** For screen readers. */
  summary: string;
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [304, 170, 48, 36, 8, 24];

/** About the width of a digit. */
const DIGIT = 6;

/** The ticks whose texts do not touch the one before. */
function apart(ticks: Props["xTicks"], x: (n: number) => number): Props["xTicks"] {
  let free = -Infinity;
  return ticks.filter(([at, text]) => {
    const half = ((text.length + 1) * DIGIT) / 2;
    if (x(at) - half < free) return false;
    free = x(at) + half;
    return true;
  });
}

interface Axis {
  ticks: number[];
  /** From 0 at the bottom to 1 at the top. */
  place: (value: number) => number;
}

function linearAxis(highest: number): Axis {
  const step = roundAbove(highest / 4);
  const top = Math.ceil((highest / step) * 1.02) * step;
  return { ticks: Array.from({ length: Math.round(top / step) + 1 }, (_, index) => index * step), place: (value) => value / top };
}

function logAxis(lowest: number, highest: number): Axis {
  const [first, last] = [Math.floor(Math.log10(lowest)), Math.ceil(Math.log10(highest))];
  const [low, high] = [10 ** first, 10 ** last];
  const ticks = Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
  return { ticks, place: (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low) };
}

/** A round number at or above `n`. */
function roundAbove(n: number): number {
  const power = 10 ** Math.floor(Math.log10(n));
  return ([1, 2, 2.5, 5, 10].find((step) => step * power >= n * 0.999) ?? 10) * power;
}

function path(points: readonly Point[], x: (n: number) => number, y: (n: number) => number): string {
  let open = false;
  return points
    .map(([at, value]) => {
      if (value === null) {
        open = false;
        return "";
      }
      const command = open ? "L" : "M";
      open = true;
      return `${command}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    })
    .join("");
}

export function OverlayChart({ title, base, newer, xTicks, xEnd, yText, log = false, summary }: Props): JSX.Element {
  const values = [...base, ...newer].flatMap(([, y]) => y || []);
  const highest = Math.max(...values, 1e-9);
  const { ticks, place } = log ? logAxis(Math.min(...values), highest) : linearAxis(highest);
  const x = (n: number): number => LEFT + (n / xEnd) * (WIDTH - LEFT - RIGHT);
  const y = (n: number): number => HEIGHT - BOTTOM - place(n) * (HEIGHT - TOP - BOTTOM);
  const ends = [base, newer].map((points) => points.findLast(([, value]) => value !== null));
  const [baseEnd, newEnd] = ends.map((end) => (end ? y(end[1] ?? 0) + 4 : null));
  // Labels of equal ends would cover each other.
  const shift = baseEnd != null && newEnd != null && Math.abs(baseEnd - newEnd) < 12 ? (newEnd <= baseEnd ? 7 : -7) : 0;
  return (
    <section class="card chart-card" aria-label={title}>
      <header>
        <h2>
          {title}
          {log ? <span class="unit"> log axis</span> : null}
        </h2>
      </header>
      <svg class="overlay" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={summary}>
        {ticks.map((tick) => (
          <g key={tick}>
            <path class="grid" d={`M${LEFT} ${y(tick).toFixed(1)}H${WIDTH - RIGHT}`} />
            <text class="end" x={LEFT - 6} y={y(tick) + 4}>
              {yText(tick)}
            </text>
          </g>
        ))}
        {apart(xTicks, x).map(([at, text]) => (
          <text key={text} class="middle" x={x(at)} y={HEIGHT - 6}>
            {text}
          </text>
        ))}
        <path class="line base" d={path(base, x, y)} />
        <path class="line new" d={path(newer, x, y)} />
        {baseEnd == null ? null : (
          <text class="base" x={WIDTH - RIGHT + 6} y={baseEnd + shift}>
            base
          </text>
        )}
        {newEnd == null ? null : (
          <text class="new" x={WIDTH - RIGHT + 6} y={newEnd - shift}>
            new
          </text>
        )}
      </svg>
    </section>
  );
}
