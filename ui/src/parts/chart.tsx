// One chart over the time of the run: a uPlot with the page's colours, event flags, end labels and
// limits. It draws what it is given and computes nothing. All charts share cursor and time range.

import { Component, type JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { placeOf } from "../feed/place";
import { clock, tickTime, timeText, UNKNOWN, withoutZeros } from "../format";
import { setQuery, useRoute } from "../route";
import { store } from "../store";
import { drawOver } from "./chart_overlay";
import { type DenseStyle, drawDense, isDense } from "./dense_line";
import type { Flag } from "./flags";
import { forget, withinFrame } from "./frame_budget";
import { Icon } from "./icons";
import { listed } from "./listed";
import { LiveText } from "./live_text";
import { logRange, logTicks } from "./log_axis";
import { Panel } from "./panel";
import { type Points, Reduction } from "./reduction";
import { color, font, onTheme } from "./theme";
import { currentRange, drawingOf, showWholeRun, visibleSeconds, zoomTo } from "./time_view";

const HEIGHT = 196;
const DEFAULT_WIDTH = 400;
export const SYNC = "run";
/** Room for the names at the end of the lines; equal in all charts, so that their times are aligned. */
const LABEL_ROOM = 76;
const VALUES_ROOM = 58;
const AXES_WIDTH = LABEL_ROOM + VALUES_ROOM;
/** A log axis helps from this ratio between the highest and the lowest value on. */
const LOG_RATIO = 20;

/** Seconds between two sentences about a chart. */
const SUMMARY_S = 10;

const COUNT_STEPS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

export type Values = (number | null)[];

export interface Line {
  label: string;
  /** A CSS variable. */
  color: string;
  /** The value of a point. */
  at: (index: number) => number | null | undefined;
  /** In place of the chart's format. */
  format?: (value: number) => string;
  /** Where it is drawn, if that is not its value. */
  drawnAt?: (index: number) => number | null;
  dashed?: boolean;
  /** Filled down to the axis. */
  filled?: boolean;
  /** Bars instead of a line; later ones are drawn over earlier ones. */
  bars?: boolean;
  width?: number;
  /** One of many: without a name at its end and in the legend. */
  unnamed?: boolean;
  /** The edge of another line, which sets it off from what is below it. */
  casing?: boolean;
}

export interface Limit {
  label: string;
  value: number;
}

export interface Props {
  /** Changes when the values are other ones, and not only more. */
  generation: number;
  title: string;
  unit?: string;
  times: readonly number[];
  lines: Line[];
  format: (value: number) => string;
  flags: readonly Flag[];
  limits?: Limit[];
  /** Times differ by powers: a log axis if the values do. */
  times_axis?: boolean;
  /** Values are whole numbers, so the axis has no parts of one. */
  counts?: boolean;
  controls?: JSX.Element;
  /** Says in words what the chart shows, for screen readers. Asked for seldom, because nobody reads it each second. */
  summary: () => string;
  /** Draws below the lines, for the heatmap. */
  paint?: (plot: uPlot) => void;
  scaleRange?: () => [number, number];
}

function usesLog(props: Props, values: Values[]): boolean {
  if (props.scaleRange) return true;
  if (!props.times_axis) return false;
  let [low, high] = [Infinity, 0];
  for (const line of values)
    for (const value of line) {
      if (value === null || value <= 0) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  return high / low >= LOG_RATIO;
}

/** What a chart shows until it is drawn again. */
interface Drawn extends Points {
  from: number;
  to: number;
  log: boolean;
}

/** Each chart has its own turn, so that slow charts are not all drawn in the same second. */
let nextTurn = 0;

/** What the chart on the page knows, and its component between two renderings. */
interface View {
  props: Props;
  inView: boolean;
  asTable: boolean;
  width: number;
  turn: number;
}

const namesOf = (lines: readonly Line[]): string => lines.map((line) => line.label + line.color).join();

/** Which drawing of the chart is due, and the seconds that it shows. */
function dueDrawing({ width, turn }: View, { times }: Props): { drawing: number; from: number; to: number } {
  const last = times.at(-1) ?? 0;
  const [from, end] = visibleSeconds(currentRange(), last);
  // Room for the time of which nothing is known.
  const to = store.stale && end === last ? last + (last - from) / 10 : end;
  return { drawing: drawingOf(last, to - from, width, turn), from, to };
}

/** Changes when the chart must be rendered again. Its figures follow the data without that. */
const stateOf = (view: View, props: Props): string =>
  `${dueDrawing(view, props).drawing} ${props.generation} ${props.times.length > 0} ${props.title} ${namesOf(props.lines)} ${store.stale} ${props.limits?.length}`;

/** A chart out of view stays as it is until it comes into view. */
export class Chart extends Component<Props> {
  private readonly view: View = { props: this.props, inView: true, asTable: false, width: DEFAULT_WIDTH, turn: nextTurn++ };
  private rendered = { props: this.props, state: "" };

  override shouldComponentUpdate(next: Props): boolean {
    const { view, rendered } = this;
    view.props = next;
    const { controls, flags } = rendered.props;
    return view.inView && (view.asTable || next.controls !== controls || next.flags !== flags || stateOf(view, next) !== rendered.state);
  }

  override render(): JSX.Element {
    this.view.props = this.props;
    this.rendered = { props: this.props, state: stateOf(this.view, this.props) };
    return <ChartCard {...this.props} view={this.view} />;
  }
}

/** The line that is shown alone, by the title of its chart; in the address as `only=Title:label`. */
function onlyOf(query: URLSearchParams, title: string): string | null {
  const text = query.get("only");
  return text?.startsWith(`${title}:`) ? text.slice(title.length + 1) : null;
}

function ChartCard({ view, ...all }: Props & { view: View }): JSX.Element {
  const { query } = useRoute();
  const only = onlyOf(query, all.title);
  const known = all.lines.some((line) => line.label === only);
  const props = known ? { ...all, lines: all.lines.filter((line) => line.label === only) } : all;
  const choose = (label: string): void => setQuery("only", label === only ? null : `${all.title}:${label}`);
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [theme, setTheme] = useState(0);
  const [cursor, setCursor] = useState<number | null>(null);
  const [asTable, setAsTable] = useState(false);
  const [reduction] = useState(() => new Reduction());
  const rangeText = query.get("range");
  const lines = namesOf(props.lines);
  const seen = useInView(holder, asTable);
  const inView = seen || asTable;
  [view.inView, view.asTable] = [inView, asTable];
  const last = props.times.at(-1) ?? 0;
  const { drawing, from, to } = dueDrawing(view, props);
  const drawn = useRef<Drawn>({ times: [], values: [], from, to, log: false });
  useMemo(
    () => {
      if (!inView) return;
      const source = `${props.generation} ${lines} ${props.title}`;
      const points = reduction.update(source, props.times, props.lines, [from, to], view.width - AXES_WIDTH);
      drawn.current = { ...points, from, to, log: usesLog(props, points.values) };
    },
    // A chart out of view is drawn when it comes into view.
    [inView, inView ? drawing : 0, lines, rangeText, props.generation, props.times.length === 0, store.stale],
  );
  const data = drawn.current;
  const { log } = data;
  // A chart with other lines or another kind of axis is another chart.
  const shape = `${lines}|${log}|${theme}`;

  useEffect(() => onTheme(() => setTheme((n) => n + 1)), []);

  useLayoutEffect(() => {
    const element = holder.current;
    if (!element) return;
    const resize = new ResizeObserver(() => {
      if (element.clientWidth === 0) return;
      view.width = element.clientWidth;
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      forget(holder);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, asTable]);

  useLayoutEffect(() => {
    if (!inView) return;
    withinFrame(holder, plot.current === null, () => {
      const element = holder.current;
      if (!element) return;
      plot.current ??= create(element, latest, data, setCursor);
      const shown = plot.current;
      shown.batch(() => {
        shown.setData([data.times, ...data.values], false);
        shown.setScale("x", { min: data.from, max: data.to });
      });
    });
  }, [inView, shape, asTable, data, props.limits?.length, props.flags.length, store.stale]);

  const summary = useMemo(props.summary, [Math.ceil(last / SUMMARY_S), props.generation, props.title]);
  const index = cursor !== null && cursor < props.times.length ? cursor : props.times.length - 1;
  return (
    <figure class="card chart-card">
      <header>
        <h2>
          {props.title}
          {props.unit ? <span class="unit"> {props.unit}</span> : null}
          {log && props.times_axis ? <span class="unit"> log axis</span> : null}
        </h2>
        <ul class="legend">
          {listed(all.lines).map((line) => {
            if (line.unnamed) return null;
            const place = all.lines.indexOf(line);
            const valueNow = (): string => {
              const { times, format } = view.props;
              const at = cursor !== null && cursor < times.length ? cursor : times.length - 1;
              const line = view.props.lines[place];
              const value = line?.at(at);
              return value === null || value === undefined ? UNKNOWN : (line?.format ?? format)(value);
            };
            return (
              <li key={line.label} class={known && line.label !== only ? "off" : ""}>
                <button
                  type="button"
                  aria-pressed={line.label === only}
                  disabled={all.lines.length < 2}
                  title="Show it alone"
                  onClick={() => choose(line.label)}
                >
                  <i class={`tone-${line.color} ${line.bars ? "box" : line.dashed ? "dash" : ""}`} />
                  {line.label}
                </button>{" "}
                <b>
                  <LiveText sized text={valueNow} shown={() => view.inView} />
                </b>
              </li>
            );
          })}
          {cursor !== null && index >= 0 ? <li class="when">at {clock(props.times[index] ?? 0)}</li> : null}
        </ul>
        <div class="right">
          {props.controls}
          <button
            type="button"
            class="link"
            aria-pressed={asTable}
            aria-label="Show as table"
            title={asTable ? "Show as chart" : "Show as table"}
            onClick={() => setAsTable(!asTable)}
          >
            <Icon name={asTable ? "live" : "table"} small />
          </button>
        </div>
      </header>
      {asTable ? <Panel show={({ ValueTable }) => <ValueTable {...props} />} /> : <div class="chart" ref={holder} aria-hidden="true" />}
      <figcaption class="hidden-text">{summary}</figcaption>
    </figure>
  );
}

/** Whether an element is on the screen, or nearly so. */
function useInView(element: { current: HTMLElement | null }, asTable: boolean): boolean {
  const [inView, setInView] = useState(false);
  useEffect(() => {
    if (!element.current) return;
    const observer = new IntersectionObserver(([entry]) => setInView(entry?.isIntersecting ?? false), { rootMargin: "100px" });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [asTable]);
  return inView;
}

type Latest = { current: Props };

function create(element: HTMLElement, latest: Latest, { log, times, values }: Drawn, setCursor: (index: number | null) => void): uPlot {
  const props = latest.current;
  const axis: uPlot.Axis = {
    stroke: color("ink-3"),
    font: font(400, 11),
    grid: { stroke: color("grid"), width: 1 },
    ticks: { show: false },
  };
  const styles = props.lines.map(denseStyle);
  const options: uPlot.Options = {
    width: element.clientWidth || DEFAULT_WIDTH,
    height: HEIGHT,
    padding: [22, LABEL_ROOM, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: SYNC, setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      y: false,
    },
    scales: {
      x: { time: false, auto: false, range: (_, min, max) => [min, max] },
      y: log
        ? { distr: 3, log: 10, range: (_, low, high) => latest.current.scaleRange?.() ?? logRange(low, high) }
        : { range: (plot, _low, high) => [0, Math.max(high, highestLimit(latest, plot)) * 1.08 || (props.format === timeText ? 1000 : 1)] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        space: 60,
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 86400],
        values: (_, ticks) => ticks.map(clock),
      },
      {
        ...axis,
        size: VALUES_ROOM,
        space: 28,
        ...(props.counts ? { incrs: COUNT_STEPS } : {}),
        values: (_, ticks) => {
          const text = latest.current.format === timeText ? tickTime : latest.current.format;
          return ticks.map((tick) => (tick === null ? "" : withoutZeros(text(tick))));
        },
        ...(log
          ? {
              splits: (_: uPlot, _axis: number, low: number, high: number) => logTicks(low, high),
              filter: (_: uPlot, ticks: number[]) => ticks,
            }
          : {}),
      },
    ],
    series: [{}, ...props.lines.map((line) => seriesOf(line))],
    hooks: {
      drawAxes: [(plot) => latest.current.paint?.(plot)],
      drawSeries: [
        (plot, index) => {
          const style = styles[index - 1];
          if (style && isDense(plot)) drawDense(plot, index, style);
        },
      ],
      draw: [(plot) => drawOver(plot, latest.current)],
      setCursor: [
        (plot) => {
          const t = plot.data[0][plot.cursor.idx ?? -1];
          setCursor(t === undefined ? null : placeOf(latest.current.times, t));
        },
      ],
      setSelect: [
        (plot) => {
          if (plot.select.width > 4) {
            zoomTo(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
          }
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
  const plot = new uPlot(options, [times, ...values], element);
  plot.over.addEventListener("dblclick", showWholeRun);
  return plot;
}

/** Limits near the values are in view; far ones would flatten the lines. */
function highestLimit({ current }: Latest, plot: uPlot): number {
  const high = Math.max(0, ...plot.series.slice(1).map((series) => series.max ?? 0));
  return Math.max(0, ...(current.limits ?? []).map((limit) => limit.value).filter((value) => value <= high * 3));
}

function seriesOf(line: Line): uPlot.Series {
  const { stroke, width, fill, bars } = denseStyle(line);
  const series: uPlot.Series = { label: line.label, stroke, width, points: { show: false }, spanGaps: false };
  if (line.dashed) series.dash = [5, 4];
  if (fill) series.fill = fill;
  if (bars) {
    series.fill = stroke;
    series.width = 0;
  }
  const paths = bars ? uPlot.paths.bars?.({ size: [0.8, 12], align: -1 }) : uPlot.paths.linear?.();
  series.paths = (plot, index, first, last) => (isDense(plot) ? null : (paths?.(plot, index, first, last) ?? null));
  return series;
}

function denseStyle({ color: name, width, dashed, filled, bars }: Line): DenseStyle {
  const stroke = color(name);
  return { stroke, width: width ?? 1.5, dashed: dashed ?? false, fill: filled ? `${stroke}1c` : null, bars: bars ?? false };
}
