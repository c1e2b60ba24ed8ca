// CPU use and schedule lag of each worker over the run: workers that need a look have a colour, the others are
// grey. The server kept the values; this draws them.

import type { JSX } from "preact";
import type { FleetHistory, WorkerLine } from "../api";
import { count, shorten, timeText, UNKNOWN, visible } from "../format";
import { store } from "../store";
import { Chart, type Line, type Values } from "./chart";
import { CPU_LIMIT } from "./cpu_limit";
import type { Polled } from "./polled";
import { useFlags } from "./use_flags";

/** Grey lines have a name at their end and in the legend if there are at most this many workers. */
const NAMED = 4;
const LIMITS = [CPU_LIMIT];
const QUIET = "others";

/** The colour of each worker's line; workers without one are grey. */
export type Colors = ReadonlyMap<string, string>;

const percentText = (value: number): string => `${count(value)} %`;

interface Props {
  polled: Polled<FleetHistory>;
}

export function WorkerCharts({ polled: { value, at }, colors }: Props & { colors: Colors }): JSX.Element | null {
  const flags = useFlags();
  if (!value || value.t.length === 0) return null;
  const quiet = value.workers.filter(({ id }) => !colors.has(id)).length;
  const line =
    (column: (worker: WorkerLine) => Values) =>
    (worker: WorkerLine): Line => {
      const values = column(worker);
      const color = colors.get(worker.id) ?? QUIET;
      const unnamed = color === QUIET && value.workers.length > NAMED;
      return { label: visible(shorten(worker.id)), color, unnamed, width: color === QUIET ? 1 : 1.75, at: (index) => values[index] };
    };
  // Grey lines first, so that they are below the others.
  const workers = value.workers.toSorted((a, b) => Number(colors.has(a.id)) - Number(colors.has(b.id)));
  const shared = { generation: at, flags, unit: quiet > 0 && value.workers.length > NAMED ? `${count(quiet)} in grey` : "" };
  const cpu = (worker: WorkerLine): Values => worker.cpu_percent;
  const lag = (worker: WorkerLine): Values => worker.lag_p99;
  /** The times up to the latest with a value, and the highest value there. */
  const latest = (column: (worker: WorkerLine) => Values): { times: number[]; most: number } => {
    const last = Math.max(...value.workers.map((worker) => column(worker).findLastIndex((point) => point !== null)));
    return { times: value.t.slice(0, last + 1), most: Math.max(0, ...value.workers.map((worker) => column(worker)[last] ?? 0)) };
  };
  const [cpuNow, lagNow] = [latest(cpu), latest(lag)];
  return (
    <div class="charts">
      <Chart
        {...shared}
        title="CPU by worker"
        times={cpuNow.times}
        lines={workers.map(line(cpu))}
        limits={LIMITS}
        counts
        format={percentText}
        summary={() => `The busiest of ${value.workers.length} workers uses ${percentText(cpuNow.most)} of its CPU.`}
      />
      <Chart
        {...shared}
        title="Schedule lag p99 by worker"
        times={lagNow.times}
        lines={workers.map(line(lag))}
        format={timeText}
        summary={() => `The highest schedule lag of ${value.workers.length} workers is ${timeText(lagNow.most)}.`}
      />
    </div>
  );
}

/** Who leads, and whether the store and the reports of the workers keep up. */
export function Coordination({ polled: { value } }: Props): JSX.Element {
  const waiting = (store.fleet?.workers ?? []).reduce((sum, worker) => sum + (worker.waiting ?? 0), 0);
  const { state } = store;
  const facts: [string, string][] = [
    ["Leader", value ? visible(shorten(value.leader ?? "none")) : UNKNOWN],
    ["Orchestrators", value ? count(value.orchestrators) : UNKNOWN],
    ["Store", state?.store_up ? "answers" : "does not answer"],
    ["Deltas waiting", count(waiting)],
    ["Run", state?.epoch ? String(state.epoch) : "none yet"],
  ];
  return (
    <section class="card" aria-labelledby="coordination-title">
      <header>
        <h2 id="coordination-title">Coordination</h2>
      </header>
      <dl class="pairs">
        {facts.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
