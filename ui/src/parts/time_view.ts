// What all charts share: the visible part of the run, and the second under the cursor.

import { currentRoute, setQuery } from "../route";

export type Range = { from: number; to: number } | { last: number } | null;

/** Reads the range from the address: `range=60` (last seconds) or `range=120-180`. */
export function parseRange(text: string | null): Range {
  const part = text?.match(/^(\d+)-(\d+)$/);
  if (part) return { from: Number(part[1]), to: Number(part[2]) };
  return text && /^\d+$/.test(text) ? { last: Number(text) } : null;
}

/** The visible seconds of a run whose latest second is `latest`. */
export function visibleSeconds(range: Range, latest: number): [number, number] {
  if (range === null) return [0, Math.max(latest, 10)];
  if ("last" in range) return [Math.max(0, latest - range.last), Math.max(latest, range.last)];
  return [range.from, Math.max(range.to, range.from + 1)];
}

export const currentRange = (): Range => parseRange(currentRoute().query.get("range"));

export function zoomTo(from: number, to: number): void {
  setQuery("range", `${Math.max(0, Math.floor(from))}-${Math.ceil(to)}`);
}

export const showWholeRun = (): void => setQuery("range", null);
export const showLast = (seconds: number): void => setQuery("range", String(seconds));

/** The longest time between two drawings of a chart that gets data, in seconds. */
const SLOWEST_DRAWING_S = 10;

/** A chart is drawn again when its lines have moved this far. */
const PIXELS_PER_DRAWING = 2;

/**
 * Which drawing of the chart belongs to `last`, the latest second. A second that is narrower than a
 * pixel would not be seen, so a chart of an hour is drawn every few seconds.
 */
export function drawingOf(last: number, visible: number, pixels: number, turn: number): number {
  const seconds = Math.max(1, Math.min(SLOWEST_DRAWING_S, Math.floor((PIXELS_PER_DRAWING * visible) / Math.max(pixels, 1))));
  return Math.floor((last + (turn % seconds)) / seconds);
}
