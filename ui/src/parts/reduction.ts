// The points of a chart that its pixels can show. Of several points for each pixel, the lowest and the
// highest of each line stay. It continues what it has reduced already, because an hour has thousands of points.

import { placeOf } from "../feed/place";
import type { Line, Values } from "./chart";

/** Up to this number of points for each pixel all of them are drawn. */
const MOST_PER_PIXEL = 2;

export interface Points {
  times: number[];
  values: Values[];
}

const drawnAt = (line: Line, index: number): number | null => (line.drawnAt ?? line.at)(index) ?? null;

export class Reduction {
  private key = "";
  private read = 0;
  private points: Points = { times: [], values: [] };

  /** The points from `from` to `to`, for that many pixels. Another `source` has other lines or other values. */
  update(source: string, times: readonly number[], lines: readonly Line[], [from, to]: [number, number], pixels: number): Points {
    // One more on each side, so that lines reach the edges.
    const first = Math.max(0, placeOf(times, from) - 1);
    const end = Math.min(times.length, placeOf(times, to) + 2);
    const shown = times.slice(first, end);
    if (shown.length <= MOST_PER_PIXEL * pixels)
      return { times: shown, values: lines.map((line) => shown.map((_, index) => drawnAt(line, first + index))) };
    const step = Math.ceil(shown.length / pixels);
    const key = `${source} ${step}`;
    if (key !== this.key) {
      this.key = key;
      this.read = 0;
      this.points = { times: [], values: lines.map(() => []) };
    }
    for (; this.read < times.length; this.read += 1) this.add(times[this.read] ?? 0, lines, Math.floor(this.read / step) * 2);
    return this.points;
  }

  /** Each pixel has two places: the lowest value at its first time, the highest at its last one. */
  private add(t: number, lines: readonly Line[], place: number): void {
    const { times, values } = this.points;
    times[place] ??= t;
    times[place + 1] = t;
    for (const [index, line] of lines.entries()) {
      const [value, known] = [drawnAt(line, this.read), values[index] ?? []];
      const [low, high] = [known[place] ?? value, known[place + 1] ?? value];
      known[place] = value === null || low === null ? low : Math.min(low, value);
      known[place + 1] = value === null || high === null ? high : Math.max(high, value);
    }
  }
}
