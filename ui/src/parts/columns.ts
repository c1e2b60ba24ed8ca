// Columns of the run's seconds as lines of charts and in words.

import { clock } from "../format";
import { store } from "../store";
import type { Line } from "./chart";

/** The lowest, the highest and the latest value of a column in words. */
export function describe(name: string, column: string, format: (value: number) => string): string {
  const { data } = store;
  const [low, high] = data.extremes(column);
  const latest = data.column(column).at(-1);
  if (latest === undefined) return `${name}: no second is closed yet.`;
  return `${name}: ${format(latest)} at ${clock(data.lastSecond)}, between ${format(low)} and ${format(high)} since the start.`;
}

export function column(name: string): Pick<Line, "at"> {
  const values = store.data.column(name);
  return { at: (index) => values[index] };
}
