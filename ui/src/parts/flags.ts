// Events of the run as lettered flags: the same letters in every chart and in the list.

import type { EventKind, FleetEvent, Threshold } from "../feed/messages";

export type Tone = "plain" | "warn" | "bad";

export interface Flag {
  letter: string;
  t: number;
  text: string;
  kind: EventKind;
  tone: Tone;
}

/** Room for a letter and its circle. */
const LETTER_PX = 16;

/** Where the letters of flags stand, in pixels: beside their lines where those are too close for all letters. */
export function lettersApart(flags: readonly Flag[], x: (t: number) => number): number[] {
  let free = -Infinity;
  return flags.map(({ t }) => {
    const [line, place] = [x(t), Math.max(x(t), free)];
    // A letter that is far from its line would belong to another one.
    const at = place - line > 2 * LETTER_PX ? line : place;
    free = at + LETTER_PX;
    return at;
  });
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const TONES: Record<EventKind, Tone> = {
  joined: "plain",
  back: "plain",
  left: "warn",
  lost: "bad",
  unable: "bad",
  notice: "warn",
  leader: "warn",
  threshold: "bad",
  stopped: "bad",
  note: "plain",
  other: "warn",
};

/** Events of the fleet and breached thresholds, in order of time. */
export function flagsOf(events: readonly FleetEvent[], thresholds: readonly Threshold[]): Flag[] {
  const fleet = events.map(([t, text, kind]) => ({ t, text, kind, tone: TONES[kind] ?? "plain" }));
  const known = new Set(events.map(([, text]) => text));
  const breaches = thresholds
    .filter((threshold) => threshold.breached_at_s !== null)
    .map((threshold) => ({
      t: threshold.breached_at_s ?? 0,
      text: `threshold ${threshold.threshold} was breached`,
      kind: "threshold" as EventKind,
      tone: "bad" as Tone,
    }))
    .filter((breach) => !known.has(breach.text));
  const all = [...fleet, ...breaches].sort((a, b) => a.t - b.t);
  return all.map((flag, index) => ({ ...flag, letter: LETTERS[index % LETTERS.length] ?? "?" }));
}
