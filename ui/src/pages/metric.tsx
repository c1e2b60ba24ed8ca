// One metric: its requests and times over the run, its distribution, and how its requests ended.

import type { JSX } from "preact";
import * as api from "../api";
import { bytes, count, percent, shorten, three, timeText, visible } from "../format";
import { Chart, type Line } from "../parts/chart";
import { PollProblem } from "../parts/poll_problem";
import { usePolled } from "../parts/polled";
import { Segments } from "../parts/segments";
import { useFlags } from "../parts/use_flags";
import { stepOf, withGaps } from "../parts/with_gaps";
import { setQuery, useRoute } from "../route";
import { store } from "../store";

const POLL_S = 2;
type Times = "response" | "service" | "wait";
const isTimes = (text: string | null): text is Times => text === "response" || text === "service" || text === "wait";

export default function Metric(): JSX.Element {
  const { query } = useRoute();
  const id = Number(query.get("id") ?? "0");
  const wanted = query.get("of");
  const times = isTimes(wanted) ? wanted : "response";
  const polled = usePolled(`${store.data.run} ${id}`, POLL_S, () => api.fetchMetric(id));
  const { value, problem } = polled;
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ?? "Loading…"}</p>;
  return (
    <>
      <PollProblem {...polled} />
      <div class="tools metric-head">
        <h2>{visible(shorten(value.name))}</h2>
        <a href="#/metrics">All metrics</a>
      </div>
      <Figures metric={value} />
      <Charts metric={value} />
      <section class="card" aria-labelledby="distribution-title">
        <header>
          <h2 id="distribution-title">Distribution</h2>
          <div class="right">
            <Segments
              label="Which time"
              value={times}
              options={[
                ["response", "Response"],
                ["service", "Service"],
                ["wait", "Wait"],
              ]}
              onChoose={(choice) => setQuery("of", choice === "response" ? null : choice)}
            />
          </div>
        </header>
        <Distribution distribution={value[times]} />
      </section>
      <Outcomes metric={value} />
    </>
  );
}

function Figures({ metric }: { metric: api.MetricDetail }): JSX.Element {
  // From the first to the last second with a request.
  const { t } = metric.seconds;
  const seconds = t.length === 0 ? 0 : (t.at(-1) ?? 0) - (t[0] ?? 0) + stepOf(t);
  const { response } = metric;
  const at = (wanted: number): number => response.percentiles.find(([p]) => p === wanted)?.[1] ?? 0;
  const figures = [
    ["Requests", count(metric.requests), `in ${count(seconds)} ${seconds === 1 ? "second" : "seconds"}`],
    ["Errors", `${percent(metric.requests ? metric.errors / metric.requests : 0)} %`, `${count(metric.errors)} requests`],
    ["p50 response", timeText(at(50)), `mean ${timeText(response.mean)}`],
    ["p99 response", timeText(at(99)), `highest ${timeText(response.max)}`],
    ["Received", bytes(metric.bytes_in), `sent ${bytes(metric.bytes_out)}`],
  ] as const;
  return (
    <dl class="card figures five" aria-label="The whole run">
      {figures.map(([name, value, detail]) => (
        <div class="figure" key={name}>
          <dt>{name}</dt>
          <dd class="value">{value}</dd>
          <dd class="detail">{detail}</dd>
        </div>
      ))}
    </dl>
  );
}

type Column = "requests" | "errors" | "p50" | "p95" | "p99";

/** The values of the seconds with a request, without the empty times of gaps. */
function series(metric: api.MetricDetail, places: (number | null)[], name: Column): Pick<Line, "at"> {
  const values = metric.seconds[name];
  return { at: (index) => values[places[index] ?? -1] ?? null };
}

function Charts({ metric }: { metric: api.MetricDetail }): JSX.Element {
  const flags = useFlags();
  const latest = metric.seconds.t.at(-1) ?? 0;
  const { times: seconds, places } = withGaps(metric.seconds.t);
  const shared = { generation: latest, times: seconds, flags };
  const requests: Line[] = [
    { label: "requests", color: "rate", filled: true, ...series(metric, places, "requests") },
    { label: "errors", color: "error-1", ...series(metric, places, "errors") },
  ];
  const times = (["p50", "p95", "p99"] as const).map((name): Line => ({ label: name, color: name, ...series(metric, places, name) }));
  return (
    <div class="charts">
      <Chart
        {...shared}
        title="Requests per second"
        lines={requests}
        format={(value) => `${three(value)}/s`}
        counts
        summary={() => `${count(metric.requests)} requests, ${count(metric.errors)} errors.`}
      />
      <Chart
        {...shared}
        title="Response time"
        lines={times}
        format={timeText}
        times_axis
        summary={() => `The highest response time is ${timeText(metric.response.max)}.`}
      />
    </div>
  );
}

const [WIDTH, HEIGHT] = [640, 140];

/** The counts of the buckets as bars. A bucket is 9 % wide, so the axis is logarithmic. */
function Distribution({ distribution }: { distribution: api.Distribution }): JSX.Element {
  const { buckets, percentiles } = distribution;
  const first = buckets[0]?.[0] ?? 0;
  const last = buckets.at(-1)?.[1] ?? 0;
  const most = Math.max(1, ...buckets.map(([, , n]) => n));
  const x = (us: number): number =>
    (Math.log(Math.max(us, 1) / Math.max(first, 1)) / Math.log(Math.max(last, 2) / Math.max(first, 1))) * WIDTH;
  if (buckets.length === 0) return <p class="empty">No request has ended yet.</p>;
  return (
    <div class="distribution">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Number of requests by time, from ${timeText(first)} to ${timeText(last)}, log axis`}
      >
        {buckets.map(([from, to, n]) => (
          <rect
            key={from}
            x={x(from)}
            width={Math.max(x(to) - x(from) - 0.6, 0.6)}
            y={HEIGHT - (n / most) * HEIGHT}
            height={(n / most) * HEIGHT}
          />
        ))}
      </svg>
      <p class="ends">
        <span>{timeText(first)}</span>
        <span class="soft">log axis; at most {count(most)} requests in a bucket</span>
        <span>{timeText(last)}</span>
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="Percentiles">
        <table>
          <thead>
            <tr>
              {percentiles.map(([p]) => (
                <th scope="col" class="number" key={p}>
                  p{p}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              {percentiles.map(([p, us]) => (
                <td class="number" key={p}>
                  {timeText(us)}
                </td>
              ))}
            </tr>
          </tbody>
        </table>
      </section>
    </div>
  );
}

function Outcomes({ metric }: { metric: api.MetricDetail }): JSX.Element {
  const outcomes = metric.outcomes.toSorted((a, b) => b.count - a.count);
  return (
    <section class="card" aria-labelledby="outcomes-title">
      <header>
        <h2 id="outcomes-title">How requests ended</h2>
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="Codes">
        <table>
          <thead>
            <tr>
              <th scope="col">Code</th>
              <th scope="col">Category</th>
              <th scope="col" class="number">
                Requests
              </th>
              <th scope="col" class="number">
                Share <span class="unit">%</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {outcomes.map((outcome) => (
              <tr key={`${outcome.category} ${outcome.code}`}>
                <th scope="row">
                  <code>{visible(outcome.code)}</code>
                </th>
                <td class={outcome.error ? "bad-text" : ""}>{outcome.category.replaceAll("_", " ")}</td>
                <td class="number">{count(outcome.count)}</td>
                <td class="number">{percent(metric.requests ? outcome.count / metric.requests : 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}
