// Made from crates/squall-web/src/openapi.json by scripts/ui-types. Do not edit.

export type AddNote = {
  text: string;
  t_s?: number | null;
};

export type Added = {
  requested: number;
  added: PlacedUser[];
  skipped_existing: string[];
  alive_workers: string[];
  aborted: boolean;
  spawn_interval_ms: number;
};

export type Aggregate = {
  window_s: number;
  requests: number;
  errors: number;
  error_rate: number;
  rps: number;
  latency_avg_ms: number;
  latency_median_ms: number;
  latency_p95_ms: number;
  latency_p99_ms: number;
  result_code_counts: Record<string, number>;
  result_category_counts: Record<string, number>;
  fatal_count: number;
  top_result_codes: {
    result_code?: string;
    count?: number;
  }[];
};

export type ChangeUsers = {
  target_users?: number;
  users?: number;
  spawn_interval_ms?: number;
};

export type Changed = {
  epoch: number;
  target_users: number;
  current_users: number;
  spawn_interval_ms: number;
  action: "noop" | "add" | "remove";
  result: {
    requested?: number;
  } | Added | Removed;
};

export type CheckedRun = {
  description: string;
  command: string;
  plan: PlannedRun;
};

export type Comparison = {
  base?: Record<string, unknown>;
  new?: Record<string, unknown>;
  comparison?: Record<string, unknown>;
  view?: Record<string, unknown>;
};

export type Current = {
  state?: "IDLE" | "PREPARING" | "RUNNING" | "STOPPING";
  epoch?: number;
  revision?: number;
  elapsed_s?: number | null;
  measured_s?: number | null;
  planned_s?: number | null;
  name?: string | null;
  target?: string | null;
  driven_by?: "users" | "rate" | null;
  level?: number;
  resumes_at?: number | null;
  paused?: boolean;
  stop?: null | {
    reason?: string;
    abort?: boolean;
    message?: string | null;
  };
  workers?: {
    alive?: number;
    ready?: number;
  };
  live?: Record<string, unknown> | null;
  verdict?: "passed" | "threshold_breached" | "target_unreachable" | "nothing_measured" | "schedule_missed" | "interrupted" | null;
  exit_code?: number | null;
  thresholds?: Record<string, unknown>[] | null;
  accounting?: Record<string, unknown> | null;
  fleet?: Record<string, unknown> | null;
};

export type Distribution = {
  min: number;
  mean: number;
  max: number;
  percentiles: number[][];
  buckets: number[][];
};

export type Error = {
  error: {
    code: string;
    message: string;
    details: Record<string, unknown>;
  };
};

export type Fleet = {
  leader: string | null;
  orchestrators: number;
  run: string | null;
  t: number[];
  workers: WorkerLine[];
};

export type Grid = {
  slots: {
    all: number;
    used: number;
    free: number;
    closed: number;
  };
  waiting: Record<string, number>;
  queue_oldest_ms: Record<string, number>;
  servers: string[];
  workers: GridWorker[];
  sessions: GridSession[];
};

export type GridSession = {
  id: string;
  worker: string;
  server: string;
  key: string;
  age_s: number;
  state: "pending" | "running" | "detached" | "ending";
};

export type GridWorker = {
  browser: string;
  name: string;
  version: string;
  slots: number;
  active: number;
  lifetime: number;
  max_lifetime: number | null;
  state: "available" | "draining" | "unreachable";
};

export type History = {
  generated_at: number;
  range: string;
  from_ts: number | null;
  duration_ms: number;
  points: {
    ts?: number;
    users?: number;
    metrics?: Record<string, {
      rps?: number;
      latency_avg_ms?: number;
      latency_median_ms?: number;
      latency_p95_ms?: number;
      latency_p99_ms?: number;
    }>;
  }[];
  count: number;
};

export type InitParams = {
  configured?: boolean;
  scenario_path?: string | null;
  vu_class?: string | null;
  params?: ({
    name?: string;
    kind?: string;
    required?: boolean;
    annotation?: string | null;
    default?: unknown;
  })[];
  accepts_arbitrary_kwargs?: boolean;
};

export type Items = {
  resource_name: string;
  total: number;
  count: number;
  items: {
    resource_id: string;
    held?: {
      worker?: string;
      epoch?: number;
    };
  }[];
};

export type Look = {
  ts_ms: number;
  status: boolean;
  value: number | null;
  time: number;
  error_type: string | null;
  error_message: string | null;
};

export type LookEvent = {
  event_id: string;
  data: {
    ts_ms?: number;
    status?: boolean;
    value?: number | null;
    time?: number;
    error_type?: string | null;
    error_message?: string | null;
    name?: string;
    calls?: number;
    errors?: number;
  };
};

export type MetricDetail = {
  run: string;
  id: number;
  name: string;
  requests: number;
  errors: number;
  bytes_in: number;
  bytes_out: number;
  seconds: {
    t: number[];
    requests: number[];
    errors: number[];
    p50: number[];
    p95: number[];
    p99: number[];
  };
  response: Distribution;
  service: Distribution;
  wait: Distribution;
  outcomes: {
    category: string;
    code: string;
    error: boolean;
    count: number;
  }[];
};

export type Metrics = {
  generated_at: number;
  epoch: number | null;
  lag: {
    detected?: boolean;
    metrics_with_backlog?: string[];
    dropped_subscriber_messages?: number;
  };
  metrics: ({
    metric_id?: string;
    last_event_id?: string | null;
    aggregate?: Aggregate;
    aggregate_total?: Aggregate;
    events?: {
      event_id?: string;
      data?: Record<string, unknown>;
    }[] | null;
  })[];
  count: number;
  include_events: boolean;
};

export type NewTest = {
  bundle: Record<string, unknown>;
  params?: Record<string, unknown>;
};

export type Nothing = Record<string, never>;

export type PlacedUser = {
  user_id: string;
  worker_id: string | null;
};

export type PlannedRun = {
  name: string;
  target: string;
  model: "open" | "closed";
  driven_by: "rate" | "users";
  stages: number[][];
  duration_s: number;
  iterations: number | null;
  thresholds: string[];
};

export type Probe = {
  probe_name: string;
  last_event_id: string | null;
  aggregate: {
    window_s?: number;
    successes?: number;
    errors?: number;
    last_ts_ms?: number | null;
    last_status?: boolean | null;
    last_value?: number | null;
  };
  latest: Look | null;
  events: LookEvent[] | null;
};

export type Rate = {
  rate: number;
};

export type Readiness = {
  ready?: boolean;
  alive_workers?: number;
};

export type Ready = {
  ready: boolean;
  state: "IDLE" | "PREPARING" | "RUNNING" | "STOPPING";
  epoch: number;
  alive_workers: number;
  workers: string[];
  workers_status: Worker[];
};

export type ReleasePartition = {
  skip?: boolean;
};

export type Removed = {
  requested: number;
  removed: PlacedUser[];
  skipped_missing: string[];
};

export type Resource = {
  resource_name?: string;
  count?: number;
  available?: number;
  held?: number;
  waiting?: number;
};

export type Run = {
  id?: string;
  name?: string;
  target?: string;
  started?: string;
  started_unix_ms?: number;
  load?: string;
  active_s?: number;
  verdict?: "passed" | "threshold_breached" | "target_unreachable" | "nothing_measured" | "schedule_missed" | "interrupted";
  exit_code?: number;
  requests?: number;
  rate?: number;
  errors?: number;
  error_rate?: number;
  p50_ms?: number;
  p99_ms?: number;
  breached_thresholds?: number;
  workers?: number | null;
  version?: string;
  bytes?: number;
  note?: string;
  can_start?: boolean;
};

export type RunNote = {
  note: string;
};

export type Runs = {
  folder?: string | null;
  limit_bytes?: number;
  used_bytes?: number;
  has_baseline?: boolean;
  total?: number;
  matching?: number;
  runs?: Run[];
  skipped?: {
    file?: string;
    reason?: string;
  }[];
};

export type Scale = {
  users: number;
};

export type ScenarioDetail = {
  name: string;
  params: ScenarioParam[];
  accepts_any_param: boolean;
  target: string | null;
  plan: PlannedRun;
};

export type ScenarioParam = {
  name: string;
  kind: string;
  required: boolean;
  annotation: string | null;
  default: unknown;
};

export type Session = {
  sign_in_required: boolean;
  signed_in: boolean;
  version: string;
  results_only?: boolean;
  shows_streams?: boolean;
  shows_grid?: boolean;
  worker_command?: string | null;
};

export type SignIn = {
  token: string;
};

export type StartOrder = {
  target?: string | null;
  users?: string | null;
  rate?: string | null;
  duration?: string | null;
  ramp_up?: string | null;
  thresholds?: string[];
  params?: Record<string, unknown>;
};

export type StartTest = {
  target_users?: number;
  users?: number;
  init_params?: Record<string, unknown>;
  params?: Record<string, unknown>;
  spawn_interval_ms?: number;
};

export type Started = {
  epoch: number;
  target_users: number;
  init_params: Record<string, unknown>;
  spawn_interval_ms: number;
  prepare_result: {
    created?: Record<string, number>;
    target_users?: number;
    scenario_resources?: string[];
    mode?: "manual";
    resources?: Record<string, number>;
    ready_workers?: string[];
  };
  add_result: Added;
  start_result: Told;
};

export type StartedRun = {
  epoch: number;
  command: string | null;
};

export type Stock = {
  name?: string;
  resource_name?: string;
  count: number;
  payload?: Record<string, unknown>;
};

export type Stop = {
  abort?: boolean;
};

export type Stream = {
  stream: string;
  partitions: number;
  events: number;
  processors: StreamProcessor[];
};

export type StreamPartition = {
  partition: number;
  waiting: number;
  pending: number;
  owner: string | null;
  quarantine: unknown;
};

export type StreamProcessor = {
  name: string;
  processor: string;
  waiting: number;
  pending: number;
  processed: number | null;
  rate: number | null;
  workers: string[];
  partitions: StreamPartition[];
};

export type Told = {
  workers: string[];
  delivered: number;
};

export type Worker = {
  worker_id?: string;
  status?: string;
  last_heartbeat?: number;
  heartbeat_age_s?: number | null;
  cpu_percent?: number;
  process_ram_bytes?: number;
  total_ram_bytes?: number;
  memory_percent?: number;
  shares?: number;
  users_count?: number;
  active_users_count?: number;
};

export type WorkerLine = {
  id: string;
  cpu_percent: (number | null)[];
  lag_p99: (number | null)[];
};
