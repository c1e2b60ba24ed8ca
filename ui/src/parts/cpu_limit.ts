// Where the CPU use of a worker becomes its limit.

import type { Limit } from "./chart";

export const CPU_LIMIT_PERCENT = 90;

/** As a line in charts of CPU use. */
export const CPU_LIMIT: Limit = { label: "at its limit", value: CPU_LIMIT_PERCENT };
