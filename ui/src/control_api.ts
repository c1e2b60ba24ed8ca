// Requests of the pages Start a run, Streams and Browser grid.

import { request } from "./api";
import type * as doc from "./api_types";

export type {
  CheckedRun,
  Grid,
  GridSession,
  GridWorker,
  PlannedRun,
  ScenarioDetail,
  Stream,
  StreamPartition,
  StreamProcessor,
} from "./api_types";

const scenarioPath = (name: string, part = ""): string => `/api/v1/scenarios/${encodeURIComponent(name)}${part}`;

export const fetchScenarios = (): Promise<{ scenarios: string[] }> => request("GET", "/api/v1/scenarios");
export const fetchScenario = (name: string): Promise<doc.ScenarioDetail> => request("GET", scenarioPath(name));
export const checkScenario = (name: string, order: doc.StartOrder): Promise<doc.CheckedRun> =>
  request("POST", scenarioPath(name, "/check"), order);
export const startScenario = (name: string, order: doc.StartOrder): Promise<doc.StartedRun> =>
  request("POST", scenarioPath(name, "/start"), order);

export const fetchStreams = (): Promise<{ streams: doc.Stream[] }> => request("GET", "/api/v1/streams");
export const releasePartition = (processor: string, partition: number, skip: boolean): Promise<unknown> =>
  request("POST", `/api/v1/streams/${encodeURIComponent(processor)}/partitions/${Number(partition)}/release`, { skip });

export const fetchGrid = (): Promise<doc.Grid> => request("GET", "/api/v1/grid");
export const endSession = (id: string): Promise<unknown> => request("POST", `/api/v1/grid/sessions/${encodeURIComponent(id)}/end`, {});
export const drainGridWorker = (browser: string, name: string): Promise<unknown> =>
  request("POST", `/api/v1/grid/workers/${encodeURIComponent(browser)}/${encodeURIComponent(name)}/drain`, {});
