// Two runs, or a run and the baseline: whether they differ by more than two equal runs would. The
// numbers are those of `squall compare`; the page only draws them.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { capitalized, clock, count, timeText, visible, withoutZeros } from "../format";
import { Icon } from "../parts/icons";
import { OverlayChart, type Point } from "../parts/overlay_chart";
import { Segments } from "../parts/segments";
import { currentRoute, go, setQuery, useRoute } from "../route";
import {
  ALL_RUNS,
  BASELINE,
  type ComparedRun,
  type Comparison,
  comparePath,
  compareQuery,
  dateText,
  fetchComparison,
  fetchRuns,
  type Overlay,
  type Row,
  type Run,
  type RunList,
  runChip,
} from "../runs";
import { useStoreOn } from "../store";
import { NoRuns } from "./history";

const DEFAULT_TOLERANCE = 5;

export default function Compare(): JSX.Element {
  const { query } = useRoute();
  const [base, newer] = [query.get("base") ?? "", query.get("new") ?? ""];
  const percent = Number(query.get("tolerance") ?? DEFAULT_TOLERANCE);
  const { access } = useStoreOn(({ access }) => access);
  const [list, setList] = useState<RunList | null>(null);
  const [found, setFound] = useState<Comparison | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const asked = base && newer ? compareQuery(base, newer, percent / 100) : "";
  useEffect(() => {
    fetchRuns("", "", ALL_RUNS).then(setList, (error: Error) => setProblem(error.message));
  }, [access]);
  useEffect(() => {
    let ended = false;
    setFound(null);
    setProblem(null);
    if (asked)
      fetchComparison(asked).then(
        (comparison) => ended || setFound(comparison),
        (error: Error) => ended || setProblem(error.message),
      );
    return () => {
      ended = true;
    };
  }, [asked, access]);
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
      // The `s` of `g s` goes to another page.
      if (event.key === "s" && !typing && !event.ctrlKey && !event.metaKey && !event.defaultPrevented) swap();
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, []);
  const runs = list?.runs ?? [];
  if (list?.folder === null) return <NoRuns kept={false} />;
  return (
    <>
      <div class="pickers">
        <Picker side="base" id={base} runs={runs} hasBaseline={list?.has_baseline === true} run={found?.base} />
        <button type="button" class="button square" aria-label="Swap base and new (s)" onClick={swap}>
          ⇄
        </button>
        <Picker side="new" id={newer} runs={runs} hasBaseline={false} run={found?.new} />
        <Verdict comparison={found} asked={asked} percent={percent} />
      </div>
      {problem ? (
        <p class="band bad" role="alert">
          {problem}
        </p>
      ) : null}
      {asked ? null : <p class="empty">Choose two runs. History lists them all; tick two there and press Compare.</p>}
      {found ? <Result comparison={found} /> : null}
    </>
  );
}

/** Leaves the other settings of the page as they are. */
function swap(): void {
  const { query } = currentRoute();
  const [base, newer] = [query.get("base"), query.get("new")];
  if (!base || !newer) return;
  query.set("base", newer);
  query.set("new", base);
  go(`compare?${query}`);
}

interface PickerProps {
  side: "base" | "new";
  id: string;
  runs: Run[];
  hasBaseline: boolean;
  run: ComparedRun | undefined;
}

function Picker({ side, id, runs, hasBaseline, run }: PickerProps): JSX.Element {
  const chip = run ? runChip(run) : null;
  const known = id === "" || id === BASELINE || runs.some((other) => other.id === id);
  return (
    <section class="card picker" aria-label={side === "base" ? "Base" : "New"}>
      <div>
        <span class={`side ${side}`}>{side === "base" ? "Base" : "New"}</span>
        {chip ? (
          <span class={`chip ${chip.tone}`}>
            <Icon name={chip.icon} small />
            {chip.text}
          </span>
        ) : null}
      </div>
      <select
        class="field"
        aria-label={side === "base" ? "The base run" : "The new run"}
        value={id}
        onChange={(event) => setQuery(side, event.currentTarget.value || null)}
      >
        <option value="">Choose a run</option>
        {hasBaseline || id === BASELINE ? <option value={BASELINE}>The baseline</option> : null}
        {known ? null : <option value={id}>{visible(id)}</option>}
        {runs.map((other) => (
          <option key={other.id} value={other.id}>
            {visible(other.name)}, {dateText(other.started_unix_ms)}
          </option>
        ))}
      </select>
      <p class="soft">
        {run
          ? `${dateText(run.started_unix_ms)} · ${visible(run.load)}${run.workers === null ? "" : ` · ${count(run.workers)} ${run.workers === 1 ? "worker" : "workers"}`}`
          : "–"}
      </p>
    </section>
  );
}

function Verdict({ comparison, asked, percent }: { comparison: Comparison | null; asked: string; percent: number }): JSX.Element {
  const view = comparison?.view;
  return (
    <section class={`card conclusion ${view?.tone ?? ""}`} aria-label="Verdict">
      {view ? <Icon name={view.tone === "good" ? "ok" : view.tone === "warn" ? "errors" : "no"} /> : null}
      <div>
        <h2>{view?.headline ?? "–"}</h2>
        <p>{view?.detail}</p>
        <p class="tools">
          <label>
            Tolerance{" "}
            <input
              class="field percent"
              type="number"
              min="0"
              max="1000"
              step="any"
              value={percent}
              onChange={(event) => setQuery("tolerance", event.currentTarget.value || null)}
            />{" "}
            %
          </label>
          {asked ? (
            <a class="button tiny" href={comparePath(asked, "/report")} download>
              <Icon name="download" small />
              Save as HTML
            </a>
          ) : null}
        </p>
      </div>
    </section>
  );
}

function Result({ comparison }: { comparison: Comparison }): JSX.Element {
  const { view } = comparison;
  return (
    <>
      {view.warnings.map((warning) => (
        <p class="band warn" key={warning}>
          <Icon name="errors" />
          <span>{visible(capitalized(warning))}</span>
        </p>
      ))}
      <div class="with-side">
        <Changes view={view} />
        <div class="side-charts">
          <SecondsChart
            title="p99 response, second by second"
            view={view}
            of={(run) => run.p99_ms}
            text={(ms) => withoutZeros(timeText(ms * 1000))}
          />
          <PercentileChart view={view} />
          <SecondsChart title="Requests per second" view={view} of={(run) => run.rate} text={(n) => withoutZeros(`${count(n)}`)} />
          <Facts view={view} />
        </div>
      </div>
      <p class="soft">{view.method}</p>
    </>
  );
}

const SIGNIFICANT = new Set<Row["verdict"]>(["improved", "regressed", "within_tolerance"]);

function Changes({ view }: { view: Comparison["view"] }): JSX.Element {
  const { query } = useRoute();
  const [show, filter] = [query.get("show") ?? "all", (query.get("filter") ?? "").toLowerCase()];
  const rows = view.rows.filter(
    (row) => (show === "all" || SIGNIFICANT.has(row.verdict)) && `${row.metric} ${row.statistic}`.toLowerCase().includes(filter),
  );
  const end = withoutZeros((view.axis_end * 100).toFixed(1));
  return (
    <section class="card" aria-labelledby="changes-title">
      <header>
        <h2 id="changes-title">What changed</h2>
        <Segments
          label="Which rows"
          value={show}
          options={[
            ["significant", "Significant"],
            ["all", "All"],
          ]}
          onChoose={(value) => setQuery("show", value === "all" ? null : value)}
        />
        <div class="right">
          <input
            id="filter"
            class="field"
            type="search"
            placeholder="Filter ( / )"
            aria-label="Filter rows"
            value={query.get("filter") ?? ""}
            onInput={(event) => setQuery("filter", event.currentTarget.value || null)}
          />
        </div>
      </header>
      {rows.length === 0 ? <p class="empty">No row to show.</p> : null}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="What changed">
        <table class="changes">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              <th scope="col">Statistic</th>
              <th scope="col" class="number wide">
                Base
              </th>
              <th scope="col" class="number wide">
                New
              </th>
              <th scope="col" class="number">
                Change
              </th>
              <th scope="col" class="interval">
                <span class="hidden-text">95 % interval, </span>
                <span>−{end} %</span> <span>0</span> <span>+{end} %</span>
              </th>
              <th scope="col" class="number wide">
                p
              </th>
              <th scope="col">Verdict</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
              <ChangeRow key={`${row.metric} ${row.statistic}`} row={row} first={rows[index - 1]?.metric !== row.metric} view={view} />
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

const TONES: Partial<Record<Row["verdict"], string>> = { regressed: "bad", improved: "good" };

function ChangeRow({ row, first, view }: { row: Row; first: boolean; view: Comparison["view"] }): JSX.Element {
  const tone = TONES[row.verdict] ?? "";
  return (
    <tr class={first ? "first" : ""}>
      <th scope="row" class="name">
        {first ? visible(row.metric) : <span class="hidden-text">{visible(row.metric)}</span>}
      </th>
      <td>{row.statistic}</td>
      <td class="number wide">{row.base}</td>
      <td class="number wide">{row.new}</td>
      <td class={`number ${tone}`}>{row.change}</td>
      <td class="interval">{row.range ? <Interval row={row} range={row.range} view={view} /> : <small>{row.interval}</small>}</td>
      <td class="number soft wide">{row.p}</td>
      <td class={tone || "soft"}>
        {tone ? <Icon name={tone === "bad" ? "no" : "ok"} small /> : null} {row.verdict_text}
      </td>
    </tr>
  );
}

const [WIDTH, HEIGHT] = [200, 22];

/** The interval against the tolerance band: a diamond is worse, a disc better, a ring otherwise. */
function Interval({ row, range, view }: { row: Row; range: [number, number, number]; view: Comparison["view"] }): JSX.Element {
  const end = view.axis_end;
  const x = (share: number): number => (0.5 + Math.max(-end, Math.min(end, share)) / end / 2) * WIDTH;
  const [low, middle, high] = range.map(x) as [number, number, number];
  const y = HEIGHT / 2;
  const tone = TONES[row.verdict] ?? "";
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${row.interval} %`}>
      <rect class="tolerance" x={x(-view.tolerance)} width={x(view.tolerance) - x(-view.tolerance)} height={HEIGHT} />
      <path class="zero-line" d={`M${WIDTH / 2} 0V${HEIGHT}`} />
      <path class={`range ${tone}`} d={`M${low} ${y}H${high}`} />
      {tone === "bad" ? (
        <path class="point bad" d={`M${middle} ${y - 5}l5 5-5 5-5-5z`} />
      ) : (
        <circle class={`point ${tone}`} cx={middle} cy={y} r={tone === "good" ? 4.5 : 3.5} />
      )}
    </svg>
  );
}

interface SecondsProps {
  title: string;
  view: Comparison["view"];
  of: (run: Overlay) => (number | null)[];
  text: (n: number) => string;
}

function SecondsChart({ title, view, of, text }: SecondsProps): JSX.Element {
  const line = (run: Overlay): Point[] => of(run).map((value, index) => [run.t_s[index] ?? 0, value]);
  const end = Math.max(view.base.t_s.at(-1) ?? 1, view.new.t_s.at(-1) ?? 1);
  const last = (run: Overlay): string => text(of(run).findLast((value) => value !== null) ?? 0);
  return (
    <OverlayChart
      title={title}
      base={line(view.base)}
      newer={line(view.new)}
      xEnd={end}
      xTicks={[0, 1, 2, 3].map((part) => [(end * part) / 3, clock(Math.round((end * part) / 3))] as const)}
      yText={text}
      summary={`${title}. Base ends at ${last(view.base)}, new at ${last(view.new)}.`}
    />
  );
}

/** Each tick with its label, which is without the sign so that neighbours do not touch. */
const NINES = [50, 90, 99, 99.9, 99.99, 99.999];
/** A log axis shows the small ones of times that span more than this; the saved page has the same. */
const LOG_RATIO = 30;
const nines = (percentile: number): number => -Math.log10(Math.max(1 - percentile / 100, 1e-6));

function PercentileChart({ view }: { view: Comparison["view"] }): JSX.Element {
  const line = (run: Overlay): Point[] => run.percentiles.map(([percentile, ms]) => [nines(percentile), ms]);
  const end = Math.max(1, ...[...line(view.base), ...line(view.new)].map(([at]) => at));
  const times = [...line(view.base), ...line(view.new)].flatMap(([, ms]) => ms || []);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  const last = (run: Overlay): string => timeText((run.percentiles.at(-1)?.[1] ?? 0) * 1000);
  return (
    <OverlayChart
      title="Latency by percentile"
      log={most / least > LOG_RATIO}
      base={line(view.base)}
      newer={line(view.new)}
      xEnd={end}
      xTicks={NINES.filter((tick) => nines(tick) <= end + 0.01).map((tick) => [nines(tick), `p${tick}`] as const)}
      yText={(ms) => withoutZeros(timeText(ms * 1000))}
      summary={`Latency by percentile. The highest shown is ${last(view.base)} for base and ${last(view.new)} for new.`}
    />
  );
}

function Facts({ view }: { view: Comparison["view"] }): JSX.Element {
  return (
    <section class="card" aria-labelledby="facts-title">
      <header>
        <h2 id="facts-title">What else differs</h2>
      </header>
      <table class="facts">
        <thead>
          <tr>
            <th scope="col">
              <span class="hidden-text">Fact</span>
            </th>
            <th scope="col">Base</th>
            <th scope="col">New</th>
          </tr>
        </thead>
        <tbody>
          {view.facts.map((fact) => (
            <tr key={fact.what} class={fact.differs ? "differs" : ""}>
              <th scope="row">{fact.what}</th>
              <td>{visible(fact.base)}</td>
              <td>{visible(fact.new)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
