// The order in which the lines of a chart are listed.

import type { Line } from "./chart";

/** Bars are drawn from the highest sum down, so that the first one is the last line. */
export const listed = (lines: readonly Line[]): readonly Line[] => (lines[0]?.bars ? lines.toReversed() : lines);
