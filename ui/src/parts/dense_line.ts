// Draws a line that has more points than the chart has pixels: one bar from the lowest to the highest
// value for each pixel. Stroking thousands of steep pieces costs ten times as much and looks the same.

import uPlot from "uplot";
import { placeOf } from "../feed/place";

const [DASH, PERIOD] = [5, 9];

export interface DenseStyle {
  stroke: string;
  width: number;
  dashed: boolean;
  /** The colour of the area below the line. */
  fill: string | null;
  /** Bars that start at zero. */
  bars: boolean;
}

const pixels = (plot: uPlot): number => Math.max(1, Math.round(plot.bbox.width / uPlot.pxRatio));

/** Whether `drawDense` draws the visible points. */
export function isDense(plot: uPlot): boolean {
  const { min, max } = plot.scales.x ?? {};
  if (min === undefined || max === undefined || min === null || max === null) return false;
  const [first, end] = visible(plot.data[0] as number[], min, max);
  return end - first > pixels(plot);
}

/** The indices of the times from `min` to `max`. */
const visible = (times: readonly number[], min: number, max: number): [number, number] => [
  placeOf(times, min),
  Math.min(placeOf(times, max) + 1, times.length),
];

export function drawDense(plot: uPlot, series: number, style: DenseStyle): void {
  const { ctx, bbox, data, scales } = plot;
  const [times, values] = [data[0] as number[], data[series] as (number | null)[]];
  const [min, max] = [scales.x?.min ?? 0, scales.x?.max ?? 1];
  const [columns, ratio] = [pixels(plot), uPlot.pxRatio];
  const [first, end] = visible(times, min, max);
  const bottom = bbox.top + bbox.height;
  const y = (value: number): number => Math.min(Math.max(Math.round(plot.valToPos(value, "y", true)), bbox.top), bottom);
  const thick = Math.max(1, Math.round(style.width * ratio));
  // One by one: an array would be made for each pixel.
  let column = -1;
  let low = Infinity;
  let high = -Infinity;
  let previous = Number.NaN;
  const draw = (): void => {
    if (column < 0 || low > high) return;
    const left = Math.round(bbox.left + column * ratio);
    const top = y(high);
    if (style.fill) {
      ctx.fillStyle = style.fill;
      ctx.fillRect(left, top, ratio, bottom - top);
    }
    if (style.dashed && column % PERIOD >= DASH) return;
    ctx.fillStyle = style.stroke;
    if (style.bars) ctx.fillRect(left, top, ratio, bottom - top);
    else ctx.fillRect(left, top - (thick >> 1), ratio, y(low) - top + thick);
  };
  for (let index = first; index < end; index += 1) {
    const value = values[index];
    const place = Math.min(columns - 1, Math.floor((((times[index] ?? 0) - min) / (max - min)) * columns));
    if (place !== column) {
      draw();
      column = place;
      // The bar begins where the one beside it ended, so that the line has no holes.
      const alone = Number.isNaN(previous) || style.bars;
      low = alone ? Infinity : previous;
      high = alone ? -Infinity : previous;
    }
    previous = value ?? Number.NaN;
    if (value === null || value === undefined) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  draw();
}
