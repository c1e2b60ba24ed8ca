// The charts below the table of Live: virtual users, what the generator was able to do, and bytes. They
// load after the first paint.

import type { JSX } from "preact";
import { bytes, count, timeText } from "../format";
import { Chart, type Line } from "../parts/chart";
import { column, describe } from "../parts/columns";
import { CPU_LIMIT } from "../parts/cpu_limit";
import type { Flag } from "../parts/flags";
import { useMeasurements } from "../store";

interface ChartProps {
  flags: readonly Flag[];
}

export function GeneratorCharts({ flags }: ChartProps): JSX.Element {
  return (
    <div class="charts">
      <UsersChart flags={flags} />
      <GeneratorChart flags={flags} />
      <CpuChart flags={flags} />
      <StartProblemsChart flags={flags} />
      <BytesChart flags={flags} />
    </div>
  );
}

function UsersChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const lines: Line[] = [
    { label: "users", color: "users", ...column("users") },
    { label: "busy", color: "target", dashed: true, ...column("busy") },
  ];
  return (
    <Chart
      generation={data.generation}
      counts
      title="Virtual users"
      times={data.times}
      lines={lines}
      format={count}
      flags={flags}
      summary={() => describe("users", "users", count)}
    />
  );
}

function GeneratorChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const lines: Line[] = [{ label: "lag p99", color: "service", ...column("lag_p99") }];
  return (
    <Chart
      generation={data.generation}
      title="Schedule lag"
      times={data.times}
      lines={lines}
      format={timeText}
      flags={flags}
      summary={() => describe("lag p99", "lag_p99", timeText)}
    />
  );
}

function CpuChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const format = (value: number): string => `${count(value)} %`;
  const lines: Line[] = [{ label: "busiest worker", color: "users", at: (index) => data.cpu[index] }];
  const latest = data.cpu.at(-1);
  const summary = (): string =>
    latest === null || latest === undefined
      ? "The CPU use of the busiest worker is not known."
      : `The busiest worker uses ${format(latest)} of its CPU.`;
  return (
    <Chart
      generation={data.generation}
      counts
      title="Generator CPU"
      times={data.times}
      lines={lines}
      format={format}
      flags={flags}
      limits={[CPU_LIMIT]}
      summary={summary}
    />
  );
}

/** Starts that the generator made late or not at all. */
function StartProblemsChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const lines: Line[] = [
    { label: "late", color: "service", ...column("late") },
    { label: "dropped", color: "error-1", ...column("dropped") },
  ];
  return (
    <Chart
      generation={data.generation}
      counts
      title="Late and dropped starts"
      times={data.times}
      lines={lines}
      format={count}
      flags={flags}
      summary={() => describe("dropped starts", "dropped", count)}
    />
  );
}

function BytesChart({ flags }: ChartProps): JSX.Element {
  const { data } = useMeasurements();
  const format = (value: number): string => `${bytes(value)}/s`;
  const lines: Line[] = [
    { label: "received", color: "rate", ...column("bytes_in") },
    { label: "sent", color: "users", ...column("bytes_out") },
  ];
  return (
    <Chart
      generation={data.generation}
      title="Bytes"
      times={data.times}
      lines={lines}
      format={format}
      flags={flags}
      summary={() => describe("received", "bytes_in", format)}
    />
  );
}
