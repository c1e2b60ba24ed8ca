// Requests of the pages History and Compare.

import { request } from "./api";
import { type Chip, verdictChip } from "./format";

export interface Run {
  id: string;
  name: string;
  target: string;
  started: string;
  started_unix_ms: number;
  load: string;
  active_s: number;
  verdict: string;
  requests: number;
  errors: number;
  error_rate: number;
  p99_ms: number;
  breached_thresholds: number;
  workers: number | null;
  note: string;
  /** Whether the server has what it needs to start the run again. */
  can_start: boolean;
}

export interface RunList {
  /** Null if the server keeps no runs. */
  folder: string | null;
  limit_bytes?: number;
  used_bytes?: number;
  has_baseline?: boolean;
  total: number;
  matching?: number;
  runs: Run[];
  skipped: { file: string; reason: string }[];
}

/** Stands for the id of the baseline. */
export const BASELINE = ".baseline";

/** One of the two compared runs. */
export type ComparedRun = Pick<
  Run,
  "id" | "name" | "target" | "started_unix_ms" | "load" | "active_s" | "verdict" | "breached_thresholds" | "workers" | "note"
>;

export interface Row {
  metric: string;
  statistic: string;
  base: string;
  new: string;
  change: string;
  interval: string;
  p: string;
  range: [low: number, middle: number, high: number] | null;
  verdict: "not_enough_data" | "no_significant_change" | "within_tolerance" | "improved" | "regressed";
  verdict_text: string;
}

export interface Overlay {
  t_s: number[];
  rate: number[];
  p99_ms: (number | null)[];
  percentiles: [percentile: number, ms: number][];
}

export interface Comparison {
  base: ComparedRun;
  new: ComparedRun;
  view: {
    tone: "good" | "bad" | "warn";
    headline: string;
    detail: string;
    warnings: string[];
    method: string;
    tolerance: number;
    axis_end: number;
    rows: Row[];
    facts: { what: string; base: string; new: string; differs: boolean }[];
    base: Overlay;
    new: Overlay;
  };
}

export const runPath = (id: string, part = ""): string => `/api/v1/runs/${encodeURIComponent(id)}${part}`;

/** Runs of one answer, unless all are asked for. */
export const SOME_RUNS = 200;
export const ALL_RUNS = 10_000;

export function fetchRuns(search: string, verdict: string, count: number): Promise<RunList> {
  const query = new URLSearchParams({ search, count: String(count) });
  if (verdict) query.set("verdict", verdict);
  return request("GET", `/api/v1/runs?${query}`);
}

export const setNote = (id: string, note: string): Promise<Run> => request("POST", runPath(id, "/note"), { note });
export const repeatRun = (id: string): Promise<unknown> => request("POST", runPath(id, "/again"), {});
export const deleteRun = (id: string): Promise<unknown> => request("DELETE", runPath(id));

export const compareQuery = (base: string, newer: string, tolerance: number): string =>
  new URLSearchParams({ base, new: newer, tolerance: String(tolerance) }).toString();
/** `query` is one of `compareQuery`, which encodes ids. */
export const comparePath = (query: string, part = ""): string => `/api/v1/compare${part}?${query}`;
export const fetchComparison = (query: string): Promise<Comparison> => request("GET", comparePath(query));

const DAY_AND_TIME = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } as const;
const THIS_YEAR = new Intl.DateTimeFormat("en-GB", DAY_AND_TIME);
const OTHER_YEAR = new Intl.DateTimeFormat("en-GB", { ...DAY_AND_TIME, year: "numeric" });
/** With the year unless it is this one. */
export function dateText(unixMs: number): string {
  const isThisYear = new Date(unixMs).getFullYear() === new Date().getFullYear();
  return (isThisYear ? THIS_YEAR : OTHER_YEAR).format(unixMs);
}

/** The verdict on a run, with the number of breached thresholds. */
export function runChip({ verdict, breached_thresholds: breached }: Pick<Run, "verdict" | "breached_thresholds">): Chip {
  const chip = verdictChip(verdict);
  if (verdict !== "threshold_breached") return chip;
  return { ...chip, text: `${breached} ${breached === 1 ? "threshold" : "thresholds"} breached` };
}
