// The planned load over time, drawn as the server sent it: linear stages.

import type { Plan } from "../feed/messages";
import { count, length, levelText } from "../format";

type Stages = Plan["stages"];

/** The planned level at `t` seconds; null after the end. */
export function levelAt(stages: Stages, t: number): number | null {
  let start = 0;
  for (const [duration, from, to] of stages) {
    if (t <= start + duration) return duration === 0 ? to : from + ((to - from) * (t - start)) / duration;
    start += duration;
  }
  return null;
}

export const peakLevel = (stages: Stages): number => Math.max(1, ...stages.flatMap(([, from, to]) => [from, to]));

/** The load in words: `open load · up to 1,500/s for 10 min`. */
export function loadText(
  plan: Pick<Plan, "model" | "driven_by" | "stages" | "duration_s" | "iterations"> & Partial<Pick<Plan, "until_stopped">>,
): string {
  const peak = peakLevel(plan.stages);
  const level = plan.driven_by === "rate" ? `${levelText(peak)}/s` : `${count(peak)} ${peak === 1 ? "user" : "users"}`;
  const changes = plan.stages.some(([, from, to]) => from !== peak || to !== peak);
  const limit = plan.iterations === null ? "" : `, ${count(plan.iterations)} iterations`;
  const long = plan.until_stopped ? "until it is stopped" : `for ${length(plan.duration_s)}`;
  return `${plan.model} load · ${changes ? "up to " : ""}${level} ${long}${limit}`;
}
