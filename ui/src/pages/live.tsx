// The page of the run under way: key figures, thresholds, charts, the busiest metrics, events.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Threshold } from "../feed/messages";
import { count, three, timeText, UNKNOWN } from "../format";
import { Chart, type Limit, type Line } from "../parts/chart";
import { column, describe } from "../parts/columns";
import { Events } from "../parts/events";
import type { Flag } from "../parts/flags";
import { HeatBitmap } from "../parts/heatmap";
import { KeyFigures } from "../parts/key_figures";
import { LiveText } from "../parts/live_text";
import { MetricsTable } from "../parts/metrics_table";
import { Panel } from "../parts/panel";
import { levelAt } from "../parts/profile";
import { Segments } from "../parts/segments";
import { Thresholds } from "../parts/thresholds";
import { showLast, showWholeRun } from "../parts/time_view";
import { useFlags } from "../parts/use_flags";
import { setQuery, useRoute } from "../route";
import { store, useMeasurements, useStoreOn } from "../store";
import { Empty } from "./empty";

const BRIEF_ROWS = 9;

export default function Live(): JSX.Element {
  const { state } = useStoreOn(({ state }) => String(Boolean(state?.plan)));
  const flags = useFlags();
  const parts = useParts(5, Boolean(state?.plan));
  if (!state?.plan) return <Empty />;
  return (
    <>
      <KeyFigures />
      <div class="threshold-row">
        <Thresholds />
        <RangeChoice />
      </div>
      <div class="charts">
        {parts > 1 ? <StartsChart flags={flags} /> : null}
        {parts > 1 ? <TimesChart flags={flags} /> : null}
        {parts > 2 ? <HeatChart flags={flags} /> : null}
        {parts > 2 ? <ErrorsChart flags={flags} /> : null}
      </div>
      {parts > 3 ? (
        <div class="with-side">
          <MetricsTable brief={BRIEF_ROWS} />
          <Events flags={flags} />
        </div>
      ) : null}
      {parts > 4 ? <Panel show={({ GeneratorCharts }) => <GeneratorCharts flags={flags} />} /> : null}
    </>
  );
}

/** One more in each frame, up to `most`: a page that is rendered at once holds the browser up for long. */
function useParts(most: number, ready: boolean): number {
  const [parts, setParts] = useState(1);
  useEffect(() => {
    if (!ready || parts >= most) return;
    const frame = requestAnimationFrame(() => setParts(parts + 1));
    return () => cancelAnimationFrame(frame);
  }, [parts, ready]);
  return parts;
}

function RangeChoice(): JSX.Element {
  const range = useRoute().query.get("range");
  return (
    <div class="range">
      <Segments
        label="Visible part of the run"
        value={range ?? "run"}
        options={[
          ["run", "Whole run"],
          ["300", "5 min"],
          ["60", "1 min"],
        ]}
        onChoose={(value) => (value === "run" ? showWholeRun() : showLast(Number(value)))}
      />
    </div>
  );
}

interface ChartProps {
  flags: readonly Flag[];
}

function StartsChart({ flags }: ChartProps): JSX.Element {
  const { data, state } = useMeasurements();
  const plan = state?.plan;
  const open = plan?.driven_by === "rate";
  const started: Line = {
    label: open ? "started" : "requests",
    color: "rate",
    filled: true,
    ...column(open ? "iterations" : "requests"),
  };
  const lines = [started];
  if (open && plan) {
    const at = (index: number): number | null => levelAt(plan.stages, (data.times[index] ?? 0) - 0.5);
    lines.push({ label: "asked for", color: "target", dashed: true, at });
  }
  const format = (value: number): string => `${three(value)}/s`;
  return (
    <Chart
      generation={data.generation}
      title={open ? "Starts per second" : "Requests per second"}
      times={data.times}
      lines={lines}
      format={format}
      flags={flags}
      summary={() => describe(started.label, open ? "iterations" : "requests", format)}
    />
  );
}

const PERCENTILES = ["p50", "p95", "p99"] as const;

/** Limits of thresholds on response or service times of all requests. */
function timeLimits(thresholds: readonly Threshold[], service: boolean): Limit[] {
  const fits = ({ unit, metric, statistic }: Threshold): boolean =>
    unit === "ms" && !metric && statistic.startsWith("service_") === service;
  return thresholds.filter(fits).map(({ threshold, limit }) => ({ label: threshold, value: limit * 1000 }));
}

function TimesChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const service = useRoute().query.get("times") === "service";
  const lines = PERCENTILES.map((name): Line => ({ label: name, color: name, ...timeColumn(service ? `service_${name}` : name) }));
  const choice = useMemo(
    () => (
      <Segments
        label="Response or service time"
        value={service ? "service" : "response"}
        options={[
          ["response", "Response"],
          ["service", "Service"],
        ]}
        onChoose={(value) => setQuery("times", value === "service" ? value : null)}
      />
    ),
    [service],
  );
  return (
    <Chart
      generation={data.generation}
      title={service ? "Service time" : "Response time"}
      times={data.times}
      lines={lines}
      format={timeText}
      flags={flags}
      limits={timeLimits(data.thresholds, service)}
      times_axis
      controls={choice}
      summary={() => describe("p99", service ? "service_p99" : "p99", timeText)}
    />
  );
}

/** A second without requests has no times, so its line has a gap. */
function timeColumn(name: string): Pick<Line, "at"> {
  const [requests, values] = [store.data.column("requests"), store.data.column(name)];
  return { at: (index) => (requests[index] === 0 ? null : (values[index] ?? null)) };
}

function HeatChart({ flags }: ChartProps): JSX.Element {
  const { data, hello } = useMeasurements();
  const heat = useMemo(() => new HeatBitmap(), []);
  const bounds = hello?.bucket_ns ?? [];
  const lines = (["p50", "p99"] as const).flatMap((label): Line[] => {
    const line = { label, ...timeColumn(label) };
    return [
      { ...line, color: "surface", width: 4, casing: true, unnamed: true },
      { ...line, color: "heat-line", width: 1.75, dashed: label === "p99" },
    ];
  });
  // Called when the chart is drawn, and only then does the bitmap need the latest seconds.
  const scaleRange = (): [number, number] => {
    heat.update(data);
    const low = Math.max((bounds[heat.low] ?? 1000) / 1000, 0.001);
    const high = (bounds[heat.high + 1] ?? 1_000_000) / 1000;
    return low < high ? [low, high * 1.2] : [1000, 1_000_000];
  };
  const scale = useMemo(
    () => (
      <span class="scale">
        1 <i /> <LiveText text={() => `${heat.low <= heat.high ? count(heat.most) : UNKNOWN} in a second`} />
      </span>
    ),
    [],
  );
  return (
    <Chart
      generation={data.heats}
      title="Where the times fell"
      times={data.times}
      lines={lines}
      format={timeText}
      flags={flags}
      times_axis
      controls={scale}
      scaleRange={scaleRange}
      paint={(plot) => heat.draw(plot, data.times, bounds)}
      summary={() => "Distribution of the response times of each second; the table of percentiles has the numbers."}
    />
  );
}

const CODES = 3;
/** Stands for all further codes. */
const OTHER = "other";

export function ErrorsChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const lines = errorLines();
  const format = (value: number): string => count(value);
  return (
    <Chart
      generation={data.generation}
      counts
      title="Errors per second"
      times={data.times}
      lines={lines}
      format={format}
      flags={flags}
      summary={() => describe("errors", "errors", format)}
    />
  );
}

/** The most frequent codes as stacked bars: the highest sum is drawn first. */
function errorLines(): Line[] {
  const { data } = store;
  const codes = [...data.failureTotals].sort((a, b) => b[1] - a[1]).map(([code]) => code);
  if (codes.length === 0) {
    const { at } = column("errors");
    return [{ label: "errors", color: "error-1", bars: true, drawnAt: (second) => at(second) || null, at }];
  }
  const named = codes.slice(0, CODES);
  const labels = codes.length > CODES ? [...named, OTHER] : named;
  const line = (label: string, index: number): Line => ({
    label,
    color: label === OTHER ? "others" : `error-${index + 1}`,
    bars: true,
    drawnAt: (second) => stackedErrors(named, index, second),
    at: (second) => errorsUpTo(named, index, second) - errorsUpTo(named, index - 1, second),
  });
  return labels.map(line).reverse();
}

/** Errors of a second with one of the first `index + 1` codes; with an index beyond them, all errors. */
function errorsUpTo(named: string[], index: number, second: number): number {
  const { data } = store;
  const failures = data.failures.get(data.times[second] ?? -1) ?? [];
  let sum = 0;
  for (const [code, n] of failures) {
    const place = named.indexOf(code);
    if ((place === -1 ? named.length : place) <= index) sum += n;
  }
  return sum;
}

/** The top of the bar of a code; null without errors of that code. */
function stackedErrors(named: string[], index: number, second: number): number | null {
  const top = errorsUpTo(named, index, second);
  return top === errorsUpTo(named, index - 1, second) ? null : top;
}
