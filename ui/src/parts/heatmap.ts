// The latency heatmap as a bitmap: one column per point, one row per bucket. A new second adds one
// column; the bitmap is drawn anew only if the scale of the colours changes.

import type uPlot from "uplot";
import type { RunData } from "../feed/run_data";
import { color } from "./theme";

type Color = [red: number, green: number, blue: number];

const BLACK: Color = [0, 0, 0];
const ROOM = 1024;
const STOPS = 4;
/** Shades from no request to the most in a second. */
const LEVELS = 256;

export class HeatBitmap {
  private canvas = document.createElement("canvas");
  private heats = -1;
  private drawn = 0;
  private theme = "";
  /** Where points begin to be another distance apart: a snapshot of a long run joins seconds. */
  private starts: number[] = [];
  /** Pixels by level. */
  private palette: Uint32Array = new Uint32Array(0);
  /** The highest count of a bucket in one second; 0 until the bitmap is drawn. */
  most = 0;
  low = Infinity;
  high = 0;

  /** Draws what has been added to `data`. */
  update(data: RunData): void {
    const theme = color("heat-0");
    let [most, low, high] = [this.most, this.low, this.high];
    const from = data.heats === this.heats ? this.drawn : 0;
    if (from === 0) {
      [most, low, high] = [1, Infinity, 0];
      this.starts = [0];
    }
    for (let index = from; index < data.times.length; index += 1) {
      this.follow(data.times, index);
      const column = data.heat[index] ?? [];
      for (let place = 0; place < column.length; place += 2) {
        most = Math.max(most, column[place + 1] ?? 0);
        low = Math.min(low, column[place] ?? low);
        high = Math.max(high, column[place] ?? high);
      }
    }
    const fits = data.times.length <= this.canvas.width && low >= this.low && high <= this.high && most <= this.most;
    if (from > 0 && fits && theme === this.theme) {
      this.paint(data, from);
      return;
    }
    // Some room above, so that not every new peak draws the bitmap anew.
    this.most = most > this.most || from === 0 ? Math.ceil(most * 1.25) : this.most;
    [this.low, this.high] = [low, high];
    this.canvas.width = Math.ceil((data.times.length + 1) / ROOM) * ROOM;
    this.canvas.height = Math.max(1, high - low + 1);
    this.theme = theme;
    this.palette = makePalette();
    this.heats = data.heats;
    this.paint(data, 0);
  }

  private follow(times: readonly number[], index: number): void {
    const step = (at: number): number => (times[at] ?? 0) - (times[at - 1] ?? 0);
    if (index - 1 > (this.starts.at(-1) ?? 0) && step(index) !== step(index - 1)) this.starts.push(index);
  }

  private paint(data: RunData, from: number): void {
    this.drawn = data.times.length;
    const width = this.drawn - from;
    const context = this.canvas.getContext("2d");
    if (width <= 0 || !context || this.high < this.low) return;
    const image = context.createImageData(width, this.canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const scale = (LEVELS - 1) / Math.log(this.most + 1);
    for (let index = from; index < this.drawn; index += 1) {
      const column = data.heat[index];
      for (let place = 0; column && place < column.length; place += 2) {
        const row = this.high - (column[place] ?? 0);
        const level = Math.min(Math.log((column[place + 1] ?? 0) + 1) * scale, LEVELS - 1);
        pixels[row * width + index - from] = this.palette[Math.round(level)] ?? 0;
      }
    }
    context.putImageData(image, from, 0);
  }

  /** Copies the bitmap into a plot whose y axis is in microseconds. */
  draw(plot: uPlot, times: readonly number[], bucketNs: readonly number[]): void {
    if (times.length === 0 || this.high < this.low) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.imageSmoothingEnabled = false;
    const y = (ns: number | undefined): number => plot.valToPos(Math.max((ns ?? 0) / 1000, 0.001), "y", true);
    for (const [place, first] of this.starts.entries()) {
      const last = (this.starts[place + 1] ?? this.drawn) - 1;
      const step = last > first ? ((times[last] ?? 0) - (times[first] ?? 0)) / (last - first) : 1;
      const left = plot.valToPos((times[first] ?? 0) - step, "x", true);
      const right = plot.valToPos(times[last] ?? 0, "x", true);
      for (let bucket = this.low; bucket <= this.high; bucket += 1) {
        const top = Math.round(y(bucketNs[bucket + 1] ?? (bucketNs[bucket] ?? 0) * 1.1));
        const bottom = Math.round(y(bucketNs[bucket]));
        ctx.drawImage(this.canvas, first, this.high - bucket, last - first + 1, 1, left, top, right - left, bottom - top);
      }
    }
    ctx.restore();
  }
}

/** The shades as pixels of a canvas, which have their bytes in the order red, green, blue, opacity. */
function makePalette(): Uint32Array {
  const stops = Array.from({ length: STOPS }, (_, stop) => parseColor(color(`heat-${stop}`)));
  const bytes = new Uint8ClampedArray(LEVELS * 4);
  for (let level = 0; level < LEVELS; level += 1) {
    const place = (level / (LEVELS - 1)) * (STOPS - 1);
    const stop = Math.min(Math.floor(place), STOPS - 2);
    const [low, high] = [stops[stop] ?? BLACK, stops[stop + 1] ?? BLACK];
    const mix = (part: 0 | 1 | 2): number => low[part] + (high[part] - low[part]) * (place - stop);
    bytes.set([mix(0), mix(1), mix(2), 255], level * 4);
  }
  return new Uint32Array(bytes.buffer);
}

function parseColor(text: string): Color {
  const value = Number.parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
