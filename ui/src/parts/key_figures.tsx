// Six key figures of the last 10 s, with the whole run in small below them.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Figures } from "../feed/messages";
import { count, levelText, percent, short, three, time, timeText, UNKNOWN, visible } from "../format";
import { store, useMeasurements } from "../store";
import { CPU_LIMIT_PERCENT } from "./cpu_limit";
import { levelAt } from "./profile";
import { Spark } from "./spark";

const SPARK_S = 60;
/** Seconds between two drawings of a trend: it moves by a pixel each second. */
const SPARK_STEP_S = 5;

interface Figure {
  name: string;
  value: string;
  unit?: string;
  detail: JSX.Element | string;
  column?: string;
  tone?: string;
  bad?: boolean;
}

export function KeyFigures(): JSX.Element {
  const { data, state } = useMeasurements();
  const figures = data.figures;
  const over = state?.result !== null && state?.result !== undefined;
  // After the end the latest seconds say nothing about the run.
  const shown = over ? figures?.total : (figures?.last ?? figures?.total);
  const list = shown && figures && data.times.length > 0 ? figureList(shown, figures.total, over) : emptyFigures();
  return (
    <dl class="card figures" aria-label={over ? "Key figures of the whole run" : "Key figures of the last 10 seconds"}>
      {list.map((figure) => (
        <div class="figure" key={figure.name}>
          <dt>{figure.name}</dt>
          <dd class={figure.bad ? "value bad" : "value"}>
            {figure.value}
            {figure.unit ? <span class="unit">{figure.unit}</span> : null}
          </dd>
          <dd class="detail">{figure.detail}</dd>
          {figure.column ? (
            <dd class="trend">
              <Trend column={figure.column} tone={figure.tone ?? "accent"} label={`${figure.name}, the last minute`} />
            </dd>
          ) : null}
        </div>
      ))}
    </dl>
  );
}

function Trend({ column, tone, label }: { column: string; tone: string; label: string }): JSX.Element {
  const { data } = store;
  // Each in its own second.
  const step = Math.floor((data.lastSecond + column.length) / SPARK_STEP_S);
  return useMemo(() => {
    const values = data.column(column).slice(-SPARK_S);
    // A second without requests has no time, which is not a time of 0.
    return <Spark values={/^p/.test(column) ? values.filter(Boolean) : values} tone={tone} label={label} />;
  }, [data, data.generation, data.times.length < SPARK_STEP_S ? data.version : step, label]);
}

function emptyFigures(): Figure[] {
  const names = ["Requests per second", "Users", "Errors", "p50 response", "p99 response", "Generator lag p99"];
  return names.map((name) => ({ name, value: UNKNOWN, detail: "no second is closed yet" }));
}

function figureList(shown: Figures, total: Figures, over: boolean): Figure[] {
  const { data } = store;
  const whole = (text: string): string => (over ? "the whole run" : `whole run ${text}`);
  // Without requests there is no time, which is not a time of 0.
  const timeOf = (us: number): [string, string] => (shown.requests > 0 ? time(us) : [UNKNOWN, ""]);
  const [p50, p50Unit] = timeOf(shown.p50);
  const [p99, p99Unit] = timeOf(shown.p99);
  return [
    {
      name: "Requests per second",
      value: three(shown.rate),
      unit: "/s",
      detail: databaseRates(shown) ?? askedFor(total, over),
      column: "requests",
      tone: "rate",
    },
    {
      name: over ? "Users, peak" : "Users",
      value: count(over ? (data.figures?.peak_users ?? 0) : (data.column("users").at(-1) ?? 0)),
      detail: over ? "the whole run" : usersDetail(),
      column: "users",
      tone: "users",
    },
    {
      name: "Errors",
      value: percent(shown.error_rate),
      unit: " %",
      detail: over
        ? `${count(total.errors)} of ${count(total.requests)}`
        : `whole run ${percent(total.error_rate)} %, ${count(total.errors)}`,
      column: "errors",
      tone: "error-1",
    },
    { name: "p50 response", value: p50, unit: ` ${p50Unit}`, detail: whole(timeText(total.p50)), column: "p50", tone: "p50" },
    { name: "p99 response", value: p99, unit: ` ${p99Unit}`, detail: whole(timeText(total.p99)), column: "p99", tone: "p99" },
    generatorFigure(over),
  ];
}

/** One operation of `squall cql user` can read or write many rows. */
function databaseRates({ rows_rate, partitions_rate }: Figures): string | null {
  return rows_rate ? `${three(rows_rate)} rows/s, ${three(partitions_rate ?? 0)} partitions/s` : null;
}

function askedFor(total: Figures, over: boolean): string {
  const plan = store.state?.plan;
  if (over || plan?.driven_by !== "rate") return `${count(total.requests)} in all`;
  const level = levelAt(plan.stages, store.data.lastSecond);
  return level === null ? `${count(total.requests)} in all` : `asked for ${levelText(level)} starts/s`;
}

function usersDetail(): string {
  const { data, state } = store;
  const busy = data.column("busy").at(-1) ?? 0;
  const most =
    state?.plan?.driven_by === "rate" ? `${count(state.plan.max_users)} at most` : `peak ${count(data.figures?.peak_users ?? 0)}`;
  return `${count(busy)} busy; ${most}`;
}

function generatorFigure(over: boolean): Figure {
  const { data, fleet } = store;
  const lag = over ? (data.figures?.lag_p99 ?? 0) : (data.column("lag_p99").at(-1) ?? 0);
  const [value, unit] = time(lag);
  // What the workers do after the end is not about the run.
  const workers = over ? [] : (fleet?.workers ?? []).filter((worker) => worker.present);
  const limited = workers.filter((worker) => (worker.cpu_percent ?? 0) >= CPU_LIMIT_PERCENT).map((worker) => visible(worker.id));
  const highest = Math.max(0, ...workers.map((worker) => worker.cpu_percent ?? 0));
  const dropped = data.figures?.dropped ?? 0;
  const parts = [workers.length > 0 ? `CPU ${short(highest)} %` : "", dropped > 0 ? `${count(dropped)} starts dropped` : ""].filter(
    Boolean,
  );
  const bad = (data.figures?.saturated_because.length ?? 0) > 0;
  return {
    name: "Generator lag p99",
    value,
    unit: ` ${unit}`,
    bad,
    detail: limited.length > 0 ? <span class="warn-text">{limited.join(", ")} at the limit</span> : parts.join("; ") || "no start dropped",
  };
}
