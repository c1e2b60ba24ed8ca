// Requests to the API. A refusal becomes an ApiError with the API's own message, which the page shows
// beside the field.

import type * as doc from "./api_types";

/** `Own`, unless it has a field that the OpenAPI document does not: `never` then fails to compile where it is used. */
type Checked<Own, Documented> = keyof Own extends keyof Documented ? Own : never;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The field of the request that the message is about. */
    readonly field: string | null = null,
  ) {
    super(message);
  }
}

export type Session = Checked<
  {
    sign_in_required: boolean;
    signed_in: boolean;
    /** The server shows a folder of results and has no fleet. */
    results_only: boolean;
    shows_streams: boolean;
    shows_grid: boolean;
    /** The command that adds a worker to the fleet. */
    worker_command?: string | null;
    version: string;
  },
  doc.Session
>;

export interface Changed {
  epoch: number;
  revision: number;
}

/** The event on the document after an answer that says that the session has ended. */
export const SIGNED_OUT = "squall-signed-out";

export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body !== undefined) init.body = JSON.stringify(body);
  const response = await fetch(path, init);
  const answer: unknown = await response.json().catch(() => null);
  if (response.ok) return answer as T;
  if (response.status === 401) document.dispatchEvent(new Event(SIGNED_OUT));
  const error = (answer as { error?: { message?: string; details?: { field?: string } } } | null)?.error;
  throw new ApiError(response.status, error?.message ?? `the server answered ${response.status}`, error?.details?.field);
}

export const fetchSession = (): Promise<Session> => request("GET", "/api/v1/session");
export const signIn = (token: string): Promise<Session> => request("POST", "/api/v1/sign-in", { token });

export const changeUsers = (users: number): Promise<Changed> => request("POST", "/api/v1/tests/current/scale", { users });
export const changeRate = (rate: number): Promise<Changed> => request("POST", "/api/v1/tests/current/rate", { rate });
export const pause = (): Promise<Changed> => request("POST", "/api/v1/tests/current/pause", {});
export const resume = (): Promise<Changed> => request("POST", "/api/v1/tests/current/resume", {});
export const stop = (abort: boolean): Promise<Changed> => request("POST", "/api/v1/tests/current/stop", { abort });

export const repeatTest = (epoch: number): Promise<unknown> => request("POST", `/api/v1/tests/${Number(epoch)}/again`, {});

export type Distribution = Checked<
  {
    min: number;
    mean: number;
    max: number;
    /** Percentile, microseconds. */
    percentiles: [number, number][];
    /** From, to, count; times are microseconds. */
    buckets: [number, number, number][];
  },
  doc.Distribution
>;

export type MetricDetail = Checked<
  {
    run: string;
    id: number;
    name: string;
    requests: number;
    errors: number;
    bytes_in: number;
    bytes_out: number;
    seconds: Record<"t" | "requests" | "errors" | "p50" | "p95" | "p99", number[]>;
    response: Distribution;
    service: Distribution;
    wait: Distribution;
    outcomes: { category: string; code: string; error: boolean; count: number }[];
  },
  doc.MetricDetail
>;

export type ProbeLook = Checked<
  {
    ts_ms: number;
    status: boolean;
    value: unknown;
    /** Milliseconds. */
    time: number;
    error_type: string | null;
    error_message: string | null;
    errors?: number;
  },
  doc.LookEvent["data"] & doc.Look
>;

export type Probe = Checked<
  {
    probe_name: string;
    aggregate: { window_s: number; successes: number; errors: number };
    latest: ProbeLook | null;
    events: { event_id: string; data: ProbeLook }[] | null;
  },
  doc.Probe
>;

export type Pool = Checked<
  {
    resource_name: string;
    count: number;
    available: number;
    held: number;
    waiting: number;
  },
  doc.Resource
>;

export type PoolItem = { resource_id: string; held?: { worker: string; epoch: number } } & Record<string, unknown>;

export type { Fleet as FleetHistory, WorkerLine } from "./api_types";
export const fetchFleet = (): Promise<doc.Fleet> => request("GET", "/api/v1/fleet");

export const fetchMetric = (id: number): Promise<MetricDetail> => request("GET", `/api/v1/tests/current/metrics/${Number(id)}`);
export const fetchProbes = (): Promise<{ generated_at: number; probes: Probe[] }> => request("GET", "/probes?count=1000");
export const fetchResources = (): Promise<{ resources: Pool[]; refused?: Record<string, string> }> => request("GET", "/resources");
export const fetchItems = (pool: string, count: number): Promise<{ total: number; count: number; items: PoolItem[] }> =>
  request("GET", `/resources/${encodeURIComponent(pool)}/items?count=${count}`);
export const addResources = (name: string, count: number): Promise<{ resource_name: string; count: number }> =>
  request("POST", "/create_resource", { name, count });
export const addNote = (text: string, t_s: number): Promise<unknown> => request("POST", "/api/v1/tests/current/notes", { text, t_s });
export const drainWorker = (id: string): Promise<unknown> => request("POST", `/api/v1/workers/${encodeURIComponent(id)}/drain`, {});

export type Schema = Record<string, unknown>;
export interface Answer {
  $ref?: string;
  description?: string;
  content?: Record<string, { schema?: Schema }>;
}
export interface Operation {
  summary?: string;
  description?: string;
  parameters?: { name: string; in: string; required?: boolean; description?: string }[];
  requestBody?: { content?: Record<string, { schema?: Schema }> };
  responses: Record<string, Answer>;
}
export interface ApiDocument {
  info: { title: string };
  paths: Record<string, Record<string, Operation | undefined>>;
  components: { schemas: Record<string, Schema>; responses: Record<string, Answer> };
}
export const fetchApiDocument = (): Promise<ApiDocument> => request("GET", "/openapi.json");
