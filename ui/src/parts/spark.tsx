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
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const step = WIDTH / (values.length - 1);
  let path = "M";
  for (let index = 0; index < values.length; index += 1) {
    const y = HEIGHT - 10 - (((values[index] ?? low) - low) / span) * (HEIGHT - 20);
    path += `${index === 0 ? "" : "L"}${Math.round(index * step)} ${Math.round(y)}`;
  }
  return (
    <svg class={`spark ${tone}`} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} />
    </svg>
  );
}
