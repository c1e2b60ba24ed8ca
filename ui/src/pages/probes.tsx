// The probes of the run: the latest value of each, how old it is, and its values over the run.

import type { JSX } from "preact";
import * as api from "../api";
import { count, shorten, timeText, visible } from "../format";
import { Chart, type Values } from "../parts/chart";
import { PollProblem } from "../parts/poll_problem";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { useFlags } from "../parts/use_flags";
import { store } from "../store";

const POLL_S = 2;

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

function ProbeCard({ probe, now }: { probe: api.Probe; now: number }): JSX.Element {
  const flags = useFlags();
  const events = probe.events ?? [];
  const started = store.state?.plan?.started_ms ?? 0;
  const times = events.map(({ data }) => Math.round((data.ts_ms - started) / 1000));
  const numbers: Values = events.map(({ data }) => (data.status && typeof data.value === "number" ? data.value : null));
  const failed: Values = events.map(({ data }) => (data.status ? null : (data.errors ?? 1)));
  const hasNumbers = numbers.some((value) => value !== null);
  const { latest, aggregate } = probe;
  return (
    <div>
      <Chart
        title={visible(shorten(probe.probe_name))}
        generation={times.at(-1) ?? 0}
        times={times}
        flags={flags}
        format={(value) => count(value)}
        lines={[
          hasNumbers
            ? { label: "value", color: "rate", at: (index) => numbers[index] }
            : { label: "time", color: "p50", at: (index) => events[index]?.data.time },
          { label: "failures", color: "error-1", bars: true, at: (index) => failed[index] },
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
                Latest: <b>{visible(shorten(latest.value === null ? "no value" : String(latest.value)))}</b> in{" "}
                {timeText(latest.time * 1000)}
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
