// A small line without axes: the trend of a figure.

import type { JSX } from "preact";

// Ten units per pixel, because whole numbers are written fastest.
const [WIDTH, HEIGHT] = [840, 200];

interface Props {
  values: readonly number[];
  /** A CSS class that sets the colour. */
  tone: string;
  label: string;
}

export function Spark({ values, tone, label }: Props): JSX.Element | null {
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const step = WIDTH / (values.length - 1);
  const point = (value: number, index: number): string =>
    `${Math.round(index * step)} ${Math.round(HEIGHT - 10 - ((value - low) / span) * (HEIGHT - 20))}`;
  return (
    <svg class={`spark ${tone}`} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={`M${values.map(point).join("L")}`} />
    </svg>
  );
}
