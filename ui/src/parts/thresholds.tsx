// The thresholds with their margin; breached ones come first.

import type { JSX } from "preact";
import type { Threshold } from "../feed/messages";
import { clock, count, percent, three, timeText, UNKNOWN, visible } from "../format";
import { useMeasurements } from "../store";
import { Icon } from "./icons";

function valueText({ value, unit }: Threshold): string {
  if (value === null) return UNKNOWN;
  switch (unit) {
    case "ms":
      return timeText(value * 1000);
    case "fraction":
      return `${percent(value)} %`;
    case "per_s":
      return `${three(value)}/s`;
    case "count":
      return count(value);
    case "layout_shift":
      return value.toFixed(3);
  }
}

type Verdict = "good" | "bad" | "unknown";

function verdictOf(threshold: Threshold): Verdict {
  if (threshold.breached_at_s !== null) return "bad";
  if (threshold.value === null) return "unknown";
  return threshold.passed ? "good" : "bad";
}

const ORDER: Verdict[] = ["bad", "unknown", "good"];
const ICONS = { good: "ok", bad: "no", unknown: "dash" } as const;

export function Thresholds(): JSX.Element | null {
  const { data } = useMeasurements();
  const sorted = data.thresholds.map((threshold) => ({ threshold, verdict: verdictOf(threshold) }));
  sorted.sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));
  if (sorted.length === 0) return null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <ul class="thresholds" aria-label="Thresholds" tabIndex={0}>
      {sorted.map(({ threshold, verdict }) => (
        <li class={`threshold ${verdict}`} key={`${threshold.threshold} ${verdict}`}>
          <Icon name={ICONS[verdict]} />
          <code>{visible(threshold.threshold)}</code>
          <b>{valueText(threshold)}</b>
          <Meter threshold={threshold} />
          <span class={verdict === "bad" ? "" : "hidden-text"}>{words(threshold, verdict)}</span>
        </li>
      ))}
    </ul>
  );
}

function words({ breached_at_s }: Threshold, verdict: Verdict): string {
  if (breached_at_s !== null) return `breached at ${clock(breached_at_s)}`;
  return { good: "holds", bad: "does not hold", unknown: "no measurement yet" }[verdict];
}

/** How much of the limit is used. */
function Meter({ threshold: { value, limit } }: { threshold: Threshold }): JSX.Element | null {
  if (value === null || limit <= 0) return null;
  const used = Math.min(1, value / limit);
  return (
    <svg class="meter" viewBox="0 0 54 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="54" height="6" rx="3" />
      <rect class="used" width={54 * used} height="6" rx="3" />
    </svg>
  );
}
