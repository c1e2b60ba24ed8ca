// The messages of /api/v1/live, schema squall.live/5. Times are microseconds unless the name says
// otherwise. crates/squall-web/src/live.rs writes them, and its golden files show each.

export const SCHEMA = "squall.live/5";

export interface Hello {
  type: "hello";
  schema: string;
  version: string;
  columns: string[];
  table_columns: string[];
  bucket_ns: number[];
}

export interface Plan {
  name: string;
  target: string;
  model: "open" | "closed";
  driven_by: "users" | "rate";
  /** Seconds, level at the start, level at the end. */
  stages: [number, number, number][];
  duration_s: number;
  warm_up_s: number;
  iterations: number | null;
  max_users: number;
  started_ms: number;
  /** Whether it has no end of its own, as tests that the API of vikhry starts. */
  until_stopped: boolean;
}

export interface Result {
  verdict: string;
  lines: string[];
  exit_code: number;
  stop: string;
  elapsed_s: number;
  saturated_because: string[];
  /** The id of the run in the history. */
  saved_as: string | null;
}

export type Phase = "IDLE" | "PREPARING" | "RUNNING" | "STOPPING";

export interface State {
  type: "state";
  /** Without the store, the rest is what the server read last; nothing if it has read none. */
  store_up: boolean;
  phase?: Phase;
  epoch?: number;
  revision?: number;
  run?: string | null;
  paused?: boolean;
  stop?: { reason: string; abort: boolean; message: string | null } | null;
  plan?: Plan | null;
  result?: Result | null;
}

export interface Figures {
  seconds: number;
  requests: number;
  errors: number;
  rate: number;
  error_rate: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
  service_p50: number;
  service_p95: number;
  service_p99: number;
  /** Of `squall cql user` only. */
  partitions_rate: number | null;
  rows_rate: number | null;
}

export interface KeyFigures {
  last: Figures | null;
  total: Figures;
  peak_users: number;
  lag_p99: number;
  dropped: number;
  late: number;
  iterations: number;
  /** Why the generator is the limit. */
  saturated_because: string[];
}

export interface Threshold {
  threshold: string;
  metric?: string | null;
  statistic: string;
  unit: "ms" | "fraction" | "per_s" | "count" | "layout_shift";
  limit: number;
  value: number | null;
  passed: boolean;
  breached_at_s: number | null;
}

/** Id, name, kind. */
export type MetricName = [number, string, "request" | "group" | "custom"];
/** Code, count. */
export type Failure = [string, number];
export type EventKind = "joined" | "back" | "left" | "lost" | "unable" | "notice" | "leader" | "threshold" | "stopped" | "note" | "other";
/** Seconds from the start, text, kind, and the worker, orchestrator or threshold that it is about. */
export type FleetEvent = [number, string, EventKind, string | null];

/** Metric, category, code, message, count. */
export type ErrorMessage = [number | null, string, string, string, number];
/**
 * Metric, category, code, count, first and last second if they are known, some of the workers that had it, and
 * the number of these workers; none for a run without a fleet.
 */
export type ErrorOutcome = [number, string, string, number, number | null, number | null, string[], number];

/** The figures of some metrics: with many metrics, the parts of a table arrive one after the other. */
export interface TablePart {
  /** This part is about the metrics whose id + 1, divided by the second number, leaves the first one. */
  part: [place: number, parts: number];
  window_s: number;
  /** Columns as in `hello.table_columns`; all requests have the id -1. */
  total: number[][];
  window: number[][];
  messages: ErrorMessage[];
  outcomes: ErrorOutcome[];
}

export interface Snapshot {
  type: "snapshot";
  run: string | null;
  finished: boolean;
  elapsed_s: number;
  since: number;
  step_s: number;
  metrics: MetricName[];
  seconds: number[][];
  /** CPU use of the busiest worker in percent, for each of the seconds; null where it is not known. */
  cpu: (number | null)[];
  failures: [number, Failure[]][];
  /** Metrics in the latest second: id, requests, p99, id, requests, p99, … */
  latest: number[];
  figures: KeyFigures;
  thresholds: Threshold[];
  events: FleetEvent[];
  table: TablePart;
}

/** A part of what a snapshot shows. */
export interface History {
  type: "history";
  run: string;
  /** Second, and its column of the heatmap. */
  heat?: [number, number[]][];
  /** Metric, seconds of the latest minute, p99. */
  trends?: [number, number[], number[]][];
}

export interface Second {
  type: "second";
  run: string;
  elapsed_s: number;
  row: number[];
  cpu: number | null;
  failures: Failure[];
  heat: number[];
  new_metrics: MetricName[];
  /** Id, requests, p99, id, requests, p99, … */
  metrics: number[];
  figures: KeyFigures;
  thresholds: Threshold[];
}

export interface TableMessage extends TablePart {
  type: "table";
  run: string;
}

export interface EventMessage {
  type: "event";
  run: string;
  event: FleetEvent;
}

export interface Worker {
  id: string;
  present: boolean;
  status?: string;
  age_s?: number;
  shares: number;
  cpu_percent?: number;
  rss_bytes?: number;
  threads?: number;
  revision?: number;
  waiting?: number;
  message?: string;
  state: "working" | "finished" | "left" | "lost" | "unable" | null;
  joined_s: number | null;
  ended_s: number | null;
  lost_at_most: number;
  /** Second, requests, users, busy, lag p99. */
  second: [number, number, number, number, number] | null;
}

export interface Fleet {
  type: "fleet";
  revision: number;
  workers: Worker[];
}

export interface Alive {
  type: "alive";
  elapsed_s: number | null;
}

export type Message = Hello | State | Snapshot | History | Second | TableMessage | EventMessage | Fleet | Alive;
