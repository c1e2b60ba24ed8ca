// The probes of the run: the latest value of each, how old it is, and its values over the run.

import type { JSX } from "preact";
import * as api from "../api";
import { count, three, timeText, visible } from "../format";
import { Chart, type Values } from "../parts/chart";
import { PollProblem } from "../parts/poll_problem";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { useFlags } from "../parts/use_flags";
import { store } from "../store";

const POLL_S = 2;

const figure = (value: number): string => (Number.isInteger(value) ? count(value) : three(value));

export default function Probes(): JSX.Element {
  const polled = usePolled("probes", POLL_S, api.fetchProbes);
  const { value, problem } = polled;
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ?? "Loading…"}</p>;
  if (value.probes.length === 0)
    return (
      <section class="card start">
        <h2>No probes</h2>
        <p>
          A probe looks at something beside the load, such as the length of a queue, once per interval. A Python scenario declares one with{" "}
          <code>@probe</code>.
        </p>
      </section>
    );
  return (
    <>
      <PollProblem {...polled} />
      <div class="charts">
        {value.probes.map((probe) => (
          <ProbeCard key={probe.probe_name} probe={probe} now={value.generated_at * 1000 + Date.now() - polled.at} />
        ))}
      </div>
    </>
  );
}

const latestText = (value: unknown): string => (value === null ? "no value" : typeof value === "number" ? figure(value) : String(value));

function ProbeCard({ probe, now }: { probe: api.Probe; now: number }): JSX.Element {
  const flags = useFlags();
  const events = probe.events ?? [];
  const started = store.state?.plan?.started_ms ?? 0;
  const times = events.map(({ data }) => Math.round((data.ts_ms - started) / 1000));
  const numbers: Values = events.map(({ data }) => (data.status && typeof data.value === "number" ? data.value : null));
  const times_us: Values = events.map(({ data }) => data.time * 1000);
  const failed: Values = events.map(({ data }) => (data.status ? null : (data.errors ?? 1)));
  const hasNumbers = numbers.some((value) => value !== null);
  // A failure is marked over the whole height, whatever the values are.
  const top = Math.max(0, ...(hasNumbers ? numbers : times_us).map((value) => value ?? 0)) || 1;
  const markedAt = (index: number): number | null => (failed[index] === null ? null : top);
  const { latest, aggregate } = probe;
  return (
    <div>
      <Chart
        title={visible(probe.probe_name)}
        generation={times.at(-1) ?? 0}
        times={times}
        flags={flags}
        format={hasNumbers ? figure : timeText}
        lines={[
          { label: "failures", color: "error-1", bars: true, format: count, at: (index) => failed[index], drawnAt: markedAt },
          hasNumbers
            ? { label: "value", color: "rate", at: (index) => numbers[index] }
            : { label: "time", color: "p50", at: (index) => times_us[index] },
        ]}
        summary={() => `${aggregate.successes} successes and ${aggregate.errors} errors in the last ${aggregate.window_s} seconds.`}
      />
      <p class="probe-latest">
        {latest === null ? (
          "It has not looked yet."
        ) : (
          <>
            {latest.status ? (
              <>
                Latest:{" "}
                <b>
                  <ForeignText text={latestText(latest.value)} />
                </b>{" "}
                in {timeText(latest.time * 1000)}
              </>
            ) : (
              <span class="bad-text">
                Failed: <ForeignText text={`${latest.error_type ?? "error"}: ${latest.error_message ?? ""}`} />
              </span>
            )}
            , {count(Math.max(0, Math.round((now - latest.ts_ms) / 1000)))} s ago · {count(aggregate.errors)} failed in the last{" "}
            {aggregate.window_s} s
          </>
        )}
      </p>
    </div>
  );
}
