// What a chart shows over its lines: warm-up, missing data, limits, flags and the names of the lines. It draws on the
// canvas of the plot and keeps nothing.

import uPlot from "uplot";
import { store } from "../store";
import type { Limit, Props } from "./chart";
import { type Flag, lettersApart, type Tone } from "./flags";
import { color, font } from "./theme";

const TONES: Record<Tone, string> = { plain: "ink-3", warn: "warn", bad: "bad" };

/** Warm-up, missing data, limits, flags and end labels. */
export function drawOver(plot: uPlot, props: Props): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const x = (t: number): number => plot.valToPos(t, "x", true);
  ctx.save();
  ctx.font = font(600, 11 * ratio);
  const warmUp = store.state?.plan?.warm_up_s ?? 0;
  if (warmUp > 0) shade(plot, x(0), x(warmUp), `${color("ink-3")}18`);
  const last = props.times.at(-1) ?? 0;
  if (store.stale) hatch(plot, x(last), bbox.left + bbox.width);
  for (const limit of props.limits ?? []) drawLimit(plot, limit);
  const places = lettersApart(props.flags, (t) => x(t) / uPlot.pxRatio);
  for (const [index, flag] of props.flags.entries()) drawFlag(plot, flag, x(flag.t), (places[index] ?? 0) * uPlot.pxRatio);
  drawEndLabels(plot, props);
  ctx.restore();
}

function shade(plot: uPlot, from: number, to: number, style: string): void {
  const { ctx, bbox } = plot;
  const [left, right] = [Math.max(from, bbox.left), Math.min(to, bbox.left + bbox.width)];
  if (right <= left) return;
  ctx.fillStyle = style;
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
}

/** The open end of a chart whose data no longer arrives. */
function hatch(plot: uPlot, from: number, to: number): void {
  const { ctx, bbox } = plot;
  const left = Math.max(from, bbox.left);
  if (to <= left) return;
  shade(plot, left, to, color("warn-soft"));
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, bbox.top, to - left, bbox.height);
  ctx.clip();
  ctx.setLineDash([]);
  ctx.lineWidth = uPlot.pxRatio;
  ctx.strokeStyle = color("warn");
  ctx.globalAlpha = 0.5;
  ctx.beginPath();
  for (let at = left - bbox.height; at < to; at += 8 * uPlot.pxRatio) {
    ctx.moveTo(at, bbox.top + bbox.height);
    ctx.lineTo(at + bbox.height, bbox.top);
  }
  ctx.stroke();
  ctx.restore();
}

function drawLimit(plot: uPlot, limit: Limit): void {
  const { ctx, bbox } = plot;
  const y = plot.valToPos(limit.value, "y", true);
  if (!(y >= bbox.top && y <= bbox.top + bbox.height)) return;
  ctx.strokeStyle = color("bad");
  ctx.fillStyle = color("bad");
  ctx.lineWidth = 1.25 * uPlot.pxRatio;
  ctx.setLineDash([6 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.fillText(limit.label, bbox.left + 6 * uPlot.pxRatio, y - 2 * uPlot.pxRatio);
}

function drawFlag(plot: uPlot, flag: Flag, x: number, letterAt: number): void {
  const { ctx, bbox } = plot;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  const ratio = uPlot.pxRatio;
  const [radius, middle] = [7 * ratio, bbox.top - 9 * ratio];
  ctx.strokeStyle = ctx.fillStyle = color(TONES[flag.tone]);
  ctx.lineWidth = ratio;
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top - 2 * ratio);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.arc(letterAt, middle, radius, 0, 2 * Math.PI);
  ctx.save();
  ctx.fillStyle = flag.tone === "plain" ? color("surface") : color(`${TONES[flag.tone]}-soft`);
  ctx.fill();
  ctx.restore();
  ctx.stroke();
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = font(700, 9.5 * ratio);
  ctx.fillText(flag.letter, letterAt, middle + 0.5 * ratio);
}

/** Names at the end of the lines, moved apart where they would overlap. */
function drawEndLabels(plot: uPlot, props: Props): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const lines = props.lines.filter((line) => !line.bars && !line.unnamed && props.lines.length > 1);
  const ends = lines.flatMap((line) => {
    const values = plot.data[props.lines.indexOf(line) + 1] ?? [];
    const index = values.findLastIndex((value) => value !== null && value !== undefined);
    const [t, value] = [plot.data[0][index], values[index]];
    if (t === undefined || value === null || value === undefined) return [];
    const [x, y] = [plot.valToPos(t, "x", true), plot.valToPos(value, "y", true)];
    return x >= bbox.left && x <= bbox.left + bbox.width + 1 ? [{ line, x, y }] : [];
  });
  ends.sort((a, b) => a.y - b.y);
  ctx.font = font(600, 11 * ratio);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 3 * ratio;
  ctx.lineJoin = "round";
  let free = -Infinity;
  for (const { line, x, y } of ends) {
    const place = Math.max(y, free);
    free = place + 12 * ratio;
    ctx.strokeStyle = color("surface");
    ctx.strokeText(line.label, x + 5 * ratio, place);
    ctx.fillStyle = color(line.color);
    ctx.fillText(line.label, x + 5 * ratio, place);
  }
}
