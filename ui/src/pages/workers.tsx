// The workers: who makes which part of the load, and who needs a look.

import type { JSX } from "preact";
import { fetchFleet } from "../api";
import type { Worker } from "../feed/messages";
import { bytes, clock, count, short, timeText, UNKNOWN, visible } from "../format";
import { CPU_LIMIT_PERCENT } from "../parts/cpu_limit";
import { Drain } from "../parts/drain";
import { Events } from "../parts/events";
import { Icon, type IconName } from "../parts/icons";
import { usePolled } from "../parts/polled";
import { Segments } from "../parts/segments";
import { ForeignText } from "../parts/text";
import { useFlags } from "../parts/use_flags";
import { type Colors, Coordination, WorkerCharts } from "../parts/worker_charts";
import { setQuery, useRoute } from "../route";
import { store, useStore } from "../store";

const SHARES = 256;
const POLL_S = 5;
/** Looks from this order on need none. */
const FINE = 2;
/** A worker that takes part from later on has joined the run. */
const JOINED_LATE_S = 2;
/** More lines with a colour could not be told apart. */
const MOST_COLOURED = 6;

interface Look {
  order: number;
  text: string;
  tone: string;
  icon: IconName;
}

/** The latest second of a worker that works; nothing if the run has seconds after it. */
const latestOf = ({ state, second }: Worker): Worker["second"] =>
  state === "working" && second && second[0] >= store.data.lastSecond - 1 ? second : null;

function lookOf(worker: Worker, over: boolean): Look {
  if (worker.state === "lost" && !worker.present) return { order: 0, text: "Lost", tone: "bad", icon: "no" };
  if (worker.state === "unable") return { order: 0, text: "Cannot run it", tone: "bad", icon: "no" };
  if (!worker.present) return { order: 4, text: "Left", tone: "", icon: "dash" };
  if (worker.status !== "healthy") return { order: 1, text: "Leaving", tone: "warn", icon: "errors" };
  if ((worker.cpu_percent ?? 0) >= CPU_LIMIT_PERCENT) return { order: 1, text: "At its limit", tone: "warn", icon: "errors" };
  if (worker.state === "working" && !over) return { order: 2, text: "Working", tone: "good", icon: "ok" };
  return { order: 3, text: "Ready", tone: "good", icon: "ok" };
}

/** Colours of the lines of workers that need a look, and of those that joined later. */
function colorsOf(workers: readonly { worker: Worker; look: Look }[]): Colors {
  const colors = new Map<string, string>();
  for (const { worker, look } of workers) {
    const color =
      look.order < FINE ? (look.tone === "bad" ? "error-1" : "service") : (worker.joined_s ?? 0) > JOINED_LATE_S ? "rate" : null;
    if (color && colors.size < MOST_COLOURED && !colors.has(worker.id)) colors.set(worker.id, color);
  }
  return colors;
}

export default function Workers(): JSX.Element {
  const { fleet, state } = useStore();
  const flags = useFlags();
  const polled = usePolled(`fleet ${store.data.run}`, POLL_S, fetchFleet);
  const over = state?.phase === "IDLE";
  const workers = (fleet?.workers ?? []).map((worker) => ({ worker, look: lookOf(worker, over) }));
  workers.sort((a, b) => a.look.order - b.look.order || a.worker.id.localeCompare(b.worker.id, "en", { numeric: true }));
  const present = workers.filter(({ worker }) => worker.present).map(({ worker }) => worker);
  const onlyUnusual = useRoute().query.get("show") === "unusual";
  const unusual = workers.filter(({ look }) => look.order < FINE);
  return (
    <>
      {fleet ? <Summary workers={fleet.workers} over={over} /> : null}
      {fleet ? <Shares workers={present} /> : null}
      <div class="with-side">
        <div class="stack">
          <section class="card" aria-labelledby="workers-title">
            <header>
              <h2 id="workers-title">Workers</h2>
              <Segments
                label="Which workers"
                value={onlyUnusual ? "unusual" : "all"}
                options={[
                  ["all", "All"],
                  ["unusual", `Needs a look (${count(unusual.length)})`],
                ]}
                onChoose={(value) => setQuery("show", value === "all" ? null : value)}
              />
            </header>
            {workers.length === 0 ? (
              <p class="empty">{fleet ? "No worker reports to this fleet." : "Connecting…"}</p>
            ) : onlyUnusual && unusual.length === 0 ? (
              <p class="empty">No worker needs a look.</p>
            ) : (
              <WorkerTable
                workers={onlyUnusual ? unusual : workers}
                others={present.filter(({ status }) => status === "healthy").length - 1}
                over={over}
              />
            )}
          </section>
          <WorkerCharts polled={polled} colors={colorsOf(workers)} />
        </div>
        <div class="stack">
          <Events flags={flags} />
          <Coordination polled={polled} />
        </div>
      </div>
    </>
  );
}

function Summary({ workers, over }: { workers: Worker[]; over: boolean }): JSX.Element {
  const present = workers.filter((worker) => worker.present);
  const lost = workers.filter((worker) => worker.state === "lost" && !worker.present).length;
  const busiest = present.reduce<Worker | null>(
    (most, worker) => ((worker.cpu_percent ?? 0) > (most?.cpu_percent ?? -1) ? worker : most),
    null,
  );
  const lag = present.reduce<Worker | null>(
    (most, worker) => ((latestOf(worker)?.[4] ?? -1) > ((most && latestOf(most)?.[4]) ?? -1) ? worker : most),
    null,
  );
  const requests = present.reduce((sum, worker) => sum + (latestOf(worker)?.[1] ?? 0), 0);
  const highest = lag ? latestOf(lag)?.[4] : undefined;
  const missing = workers.reduce((sum, worker) => sum + worker.lost_at_most, 0);
  const threads = present.reduce((sum, worker) => sum + (worker.threads ?? 0), 0);
  const figures = [
    ["Workers", count(present.length), "", lost > 0 ? `${count(lost)} lost` : "none lost"],
    ["Requests per second", over ? UNKNOWN : count(requests), over ? "" : "/s", over ? "no run" : "in the latest second"],
    [
      "Busiest CPU",
      busiest ? short(busiest.cpu_percent ?? 0) : UNKNOWN,
      busiest ? " %" : "",
      busiest ? visible(busiest.id) + (threads > 0 ? `; ${count(threads)} threads in all` : "") : "",
    ],
    [
      "Highest lag p99",
      highest !== undefined && !over ? timeText(highest) : UNKNOWN,
      "",
      lag && !over ? visible(lag.id) : over ? "no run" : "no second yet",
    ],
    ["Unreported at most", count(missing), "", missing > 0 ? "requests of lost workers" : "nothing is missing"],
  ] as const;
  return (
    <dl class="card figures five" aria-label="The fleet">
      {figures.map(([name, value, unit, detail]) => (
        <div class="figure" key={name}>
          <dt>{name}</dt>
          <dd class="value">
            {value}
            <span class="unit">{unit}</span>
          </dd>
          <dd class="detail">{detail}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Each part is as wide as its number of shares. */
function setWidth(part: HTMLElement | null, shares: number): void {
  if (part) part.style.flexGrow = String(shares);
}

function Shares({ workers }: { workers: Worker[] }): JSX.Element {
  const holders = workers.filter((worker) => worker.shares > 0);
  const held = holders.reduce((sum, worker) => sum + worker.shares, 0);
  return (
    <section class="card" aria-labelledby="shares-title">
      <header>
        <h2 id="shares-title">Who makes the load</h2>
        <span class="soft">
          {count(Math.min(held, SHARES))} of {SHARES} shares of the load have a worker
        </span>
      </header>
      <ul class="shares">
        {holders.map(({ id, shares }) => (
          <li key={id} ref={(part) => setWidth(part, shares)} title={`${visible(id)}: ${shares} shares`}>
            <b>{visible(id)}</b> {shares}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface TableProps {
  workers: { worker: Worker; look: Look }[];
  /** How many workers can take over the load of one. */
  others: number;
  over: boolean;
}

const HEADS = ["Last heard", "Shares", "Users", "Requests/s", "CPU", "Memory", "Lag p99", "Waiting"] as const;

function WorkerTable({ workers, others, over }: TableProps): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class="scroll" tabIndex={0} aria-label="Workers">
      <table class="workers">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col">State</th>
            {HEADS.map((head) => (
              <th scope="col" class="number" key={head} title={head === "Waiting" ? "Reports that the worker has not sent yet" : undefined}>
                {head}
              </th>
            ))}
            <th scope="col">Action</th>
          </tr>
        </thead>
        <tbody>
          {workers.map(({ worker, look }) => (
            <tr key={`${worker.id} ${worker.joined_s} ${worker.present}`} class={worker.present ? "" : "gone"}>
              <th scope="row" class="name">
                {visible(worker.id)}
              </th>
              <td>
                <span class={`look ${look.tone}`}>
                  <Icon name={look.icon} small />
                  {look.text}
                </span>
                {worker.message ? (
                  <p class="message">
                    <ForeignText text={worker.message} />
                  </p>
                ) : null}
              </td>
              {worker.present ? <PresentCells worker={worker} over={over} others={others} /> : <GoneCells worker={worker} />}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function PresentCells({ worker, over, others }: { worker: Worker; over: boolean; others: number }): JSX.Element {
  const [, requests, users, , lag] = latestOf(worker) ?? [];
  const known = (value: number | undefined, format: (value: number) => string): string => (value === undefined ? UNKNOWN : format(value));
  const ofRun = (value: number | undefined, format: (value: number) => string): string => known(over ? undefined : value, format);
  const cells = [
    known(worker.age_s, (age) => `${short(age)} s`),
    count(worker.shares),
    ofRun(users, count),
    ofRun(requests, count),
    known(worker.cpu_percent, (cpu) => `${short(cpu)} %`),
    known(worker.rss_bytes, bytes),
    ofRun(lag, timeText),
    known(worker.waiting, count),
  ];
  const atLimit = (worker.cpu_percent ?? 0) >= CPU_LIMIT_PERCENT;
  return (
    <>
      {cells.map((text, place) => (
        <td key={HEADS[place]} data-head={HEADS[place]} class={HEADS[place] === "CPU" && atLimit ? "number warn-text" : "number"}>
          {text}
        </td>
      ))}
      <td>
        <Drain worker={worker} others={others} />
      </td>
    </>
  );
}

function GoneCells({ worker }: { worker: Worker }): JSX.Element {
  const since = worker.ended_s === null ? "" : `since ${clock(worker.ended_s)}; `;
  const missing = worker.lost_at_most > 0 ? `up to ${count(worker.lost_at_most)} requests are not reported` : "nothing of it is missing";
  return (
    <td colSpan={HEADS.length + 1}>
      {since}
      {missing}
    </td>
  );
}
