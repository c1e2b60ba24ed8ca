// The planned load of a run that has not started, as the server computed it.

import type { JSX } from "preact";
import type { PlannedRun } from "../control_api";
import { count, length, levelText } from "../format";
import { peakLevel } from "./profile";

const [WIDTH, HEIGHT] = [600, 90];

export function ProfileShape({ plan }: { plan: PlannedRun }): JSX.Element {
  const stages = plan.stages as [number, number, number][];
  const peak = peakLevel(stages);
  const duration = Math.max(plan.duration_s, 0.001);
  const y = (level: number): string => (HEIGHT - 1 - (level / peak) * (HEIGHT - 8)).toFixed(1);
  let start = 0;
  const points = stages.flatMap(([seconds, from, to]) => {
    const [left, right] = [(start / duration) * WIDTH, ((start + seconds) / duration) * WIDTH];
    start += seconds;
    return [`${left.toFixed(1)} ${y(from)}`, `${right.toFixed(1)} ${y(to)}`];
  });
  const top = plan.driven_by === "rate" ? `${levelText(peak)}/s` : `${count(peak)} ${peak === 1 ? "user" : "users"}`;
  return (
    <figure class="shape">
      <figcaption>{top} at most</figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Planned load: up to ${top}, ${length(duration)}`}
      >
        <path d={`M0 ${HEIGHT - 1}L${points.join("L")}L${WIDTH} ${HEIGHT - 1}z`} />
      </svg>
      <div class="ends">
        <span>0</span>
        <span>{length(duration)}</span>
      </div>
    </figure>
  );
}
