// The flags of the charts and the rows of the events list highlight each other. It listens to the whole page and
// marks the event under the pointer; it changes nothing else.

import uPlot from "uplot";
import { clock, shorten, visible } from "../format";
import { store } from "../store";
import { SYNC } from "./chart";
import { type Flag, flagsOf, lettersApart } from "./flags";

/** A flag is as wide as its letter's circle. */
const REACH_PX = 8;
const MARK = "flag-mark";

/** The marked event by its place among all, and the chart under the pointer. */
let marked: { place: number; plot: uPlot | null } | null = null;

const currentFlags = (): Flag[] => flagsOf(store.data.events, store.data.thresholds);

function draw(): void {
  for (const old of document.querySelectorAll(`.${MARK}`)) old.remove();
  for (const row of document.querySelectorAll(".events .marked")) row.classList.remove("marked");
  const flags = currentFlags();
  const flag = marked ? flags[marked.place] : undefined;
  if (!marked || !flag) return;
  for (const plot of uPlot.sync(SYNC).plots) {
    const left = plot.valToPos(flag.t, "x");
    if (left < 0 || left > plot.over.clientWidth) continue;
    const mark = document.createElement("div");
    mark.className = `${MARK} ${flag.tone}`;
    mark.style.left = `${left}px`;
    if (plot === marked.plot) {
      const text = document.createElement("span");
      text.textContent = `${clock(flag.t)} ${visible(shorten(flag.text))}`;
      if (left > plot.over.clientWidth / 2) text.className = "before";
      mark.append(text);
    }
    plot.over.append(mark);
  }
  // The list has the latest event first.
  document.querySelectorAll(".events > li")[flags.length - 1 - marked.place]?.classList.add("marked");
}

function mark(place: number | null, plot: uPlot | null): void {
  if (place === (marked?.place ?? null) && plot === (marked?.plot ?? null)) return;
  marked = place === null ? null : { place, plot };
  draw();
}

/** The flag of the chart under the pointer. */
function flagAt(plot: uPlot, { clientX, clientY }: PointerEvent): number | null {
  const { left, top } = plot.over.getBoundingClientRect();
  const flags = currentFlags();
  const ofLine = (t: number): number => plot.valToPos(t, "x");
  // Above the plot are the letters, in it the lines.
  const places = clientY < top ? lettersApart(flags, ofLine) : flags.map(({ t }) => ofLine(t));
  const distances = places.map((place) => Math.abs(place - (clientX - left)));
  const nearest = Math.min(...distances);
  return nearest <= REACH_PX ? distances.indexOf(nearest) : null;
}

document.addEventListener("pointermove", (event) => {
  const { target } = event;
  if (!(target instanceof Element)) return;
  const row = target.closest(".events > li");
  if (row) {
    const rows = [...document.querySelectorAll(".events > li")];
    mark(rows.length - 1 - rows.indexOf(row), null);
    return;
  }
  const root = target.closest(".uplot");
  const plot = root ? uPlot.sync(SYNC).plots.find((plot) => plot.root === root) : undefined;
  mark(plot ? flagAt(plot, event) : null, plot ?? null);
});
// A mark follows its flag when the charts move.
store.subscribe(() => {
  if (marked) draw();
});
