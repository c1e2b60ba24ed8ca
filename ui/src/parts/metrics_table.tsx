// The table of metrics: filter, sort, whole run or last minute. Only rows in view are in the document.

import { Component, type JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Metric } from "../feed/run_data";
import { bytes, count, percent, shorten, tableMs, three, UNKNOWN, visible } from "../format";
import { setQuery, useRoute } from "../route";
import { store, useStoreOn } from "../store";
import { LiveText } from "./live_text";
import { Segments } from "./segments";
import { Spark } from "./spark";

const ROW_HEIGHT = 32;
/** Rows beyond the visible ones, so that scrolling does not show gaps. */
const OVERSCAN = 10;

export interface Column {
  name: string;
  title: string;
  /** The unit in the head. */
  unit?: string;
  show: (value: number) => string;
  /** Whether a narrow page hides it. */
  wide?: boolean;
}

const ms = (value: number): string => tableMs(value);
export const COLUMNS: readonly Column[] = [
  { name: "requests", title: "Requests", show: count },
  { name: "now", title: "Now/s", show: count },
  { name: "errors", title: "Errors", show: count },
  { name: "error_rate", title: "Errors", unit: "%", show: percent, wide: true },
  { name: "p50", title: "p50", unit: "ms", show: ms },
  { name: "p90", title: "p90", unit: "ms", show: ms, wide: true },
  { name: "p95", title: "p95", unit: "ms", show: ms, wide: true },
  { name: "p99", title: "p99", unit: "ms", show: ms },
  { name: "p999", title: "p99.9", unit: "ms", show: ms, wide: true },
  { name: "max", title: "Max", unit: "ms", show: ms, wide: true },
  { name: "mean", title: "Mean", unit: "ms", show: ms, wide: true },
  { name: "rate", title: "Mean/s", show: three, wide: true },
  { name: "bytes_in", title: "Bytes", show: bytes, wide: true },
];
const BRIEF = new Set(["requests", "now", "errors", "p50", "p95", "p99", "max"]);
/** Columns of which service and wait times have a part only. */
const TIMES = new Set(["p50", "p90", "p95", "p99", "p999", "max", "mean"]);
const OTHER_TIMES = new Set(["p50", "p95", "p99"]);
/** All requests have the id -1; groups without a metric have lower ones. */
const ALL_REQUESTS = -1;

export interface Entry {
  id: number;
  metric: Metric | null;
  /** The row of the table; a group that was not timed itself has none. */
  values?: number[];
  /** A name in place of the metric's. */
  label?: string;
  /** Reads a column; undefined for a group that was not timed itself. */
  figure: (column: string) => number | undefined;
  /** What it is sorted by. */
  key: number;
  /** The members of the group that this row opens and folds. */
  group?: { name: string; members: number; folded: boolean };
  member?: boolean;
}

/** Reads the rows of the table. A metric keeps its entry. */
class EntryReader {
  private known: Entry[] = [];

  constructor(
    private readonly window: string,
    private readonly times: string,
  ) {}

  entries(): Entry[] {
    const { data } = store;
    const rows = (this.window === "60" && !data.finished ? data.table?.window : data.table?.total) ?? [];
    const entries: Entry[] = [];
    for (let place = 0; place < rows.length; place += 1) {
      const values = rows[place];
      if (!values) continue;
      const metric = data.metrics.get(place - 1) ?? null;
      let entry = this.known[place];
      if (entry?.values !== values || entry.metric !== metric) this.known[place] = entry = this.entryOf(place - 1, metric, values);
      entries.push(entry);
    }
    return entries;
  }

  private entryOf(id: number, metric: Metric | null, values: number[]): Entry {
    const names = store.hello?.table_columns ?? [];
    const read = (name: string): number => values[names.indexOf(name)] ?? 0;
    const figure = (column: string): number | undefined => {
      // A finished run has no latest seconds.
      if (store.data.finished && (column === "now" || this.window === "60")) return undefined;
      if (column === "now") return nowOf(id);
      if (column === "error_rate") return read("requests") ? read("errors") / read("requests") : 0;
      return read(this.times !== "response" && OTHER_TIMES.has(column) ? `${this.times}_${column}` : column);
    };
    return { id, metric, values, figure, key: 0 };
  }
}

/** Requests of the latest second, which change more often than the rest of a row. */
const nowOf = (id: number): number => (id === ALL_REQUESTS ? (store.data.column("requests").at(-1) ?? 0) : store.data.latestOf(id));

export const nameOf = ({ id, metric, label }: Entry): string =>
  label ?? (id === ALL_REQUESTS ? "all requests" : (metric?.name ?? `metric ${id}`));

const { compare } = new Intl.Collator();

function sorted(entries: readonly Entry[], sort: string, ascending: boolean): Entry[] {
  const direction = ascending ? 1 : -1;
  const names = sort === "name";
  // Each figure is read once, because a comparison reads many. All requests stay on top.
  for (const entry of entries) entry.key = entry.id === ALL_REQUESTS ? -Infinity : names ? 0 : (entry.figure(sort) ?? 0) * direction;
  return entries.toSorted((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : names ? compare(nameOf(a), nameOf(b)) * direction : 0));
}

interface Props {
  /** At most this many rows; all of them in a region that scrolls without it. */
  brief?: number;
  /** Columns that are left out. */
  hidden?: ReadonlySet<string>;
  /** Puts sorted rows into groups. */
  arrange?: (entries: Entry[]) => Entry[];
  /** Opens and folds a group. */
  onFold?: (group: string) => void;
  /** More controls in the head. */
  tools?: (columns: Column[], entries: Entry[]) => JSX.Element;
}

export function MetricsTable({ brief, hidden, arrange, onFold, tools }: Props): JSX.Element {
  const { query } = useRoute();
  const window = query.get("window") ?? "run";
  const times = query.get("times") ?? "response";
  const sort = query.get("sort") ?? "requests";
  const { data } = useStoreOn(({ data }) => `${data.run} ${data.tables} ${sort === "now" ? data.version : 0}`);
  const ascending = query.get("order") === "up";
  const filter = query.get("filter") ?? "";
  const reader = useMemo(() => new EntryReader(window, times), [window, times]);
  const all = useMemo(() => reader.entries(), [data.table, reader]);
  const entries = useMemo(() => {
    const wanted = filter ? all.filter((entry) => nameOf(entry).toLowerCase().includes(filter.toLowerCase())) : all;
    const inOrder = sorted(wanted, sort, ascending);
    return arrange ? arrange(inOrder) : inOrder;
  }, [all, filter, sort, ascending, arrange, sort === "now" ? data.version : 0]);
  const columns = useMemo(
    () =>
      COLUMNS.filter(
        ({ name }) => (brief ? BRIEF.has(name) : !hidden?.has(name)) && (times === "response" || !TIMES.has(name) || OTHER_TIMES.has(name)),
      ),
    [brief, hidden, times],
  );
  const setSort = (name: string): void => {
    // Names begin with A, figures with the highest.
    setQuery("order", name === sort ? (ascending ? null : "up") : name === "name" ? "up" : null);
    setQuery("sort", name);
  };
  return (
    <section class={brief ? "card metrics brief" : "card metrics"} aria-labelledby="metrics-title">
      <header>
        <h2 id="metrics-title">Metrics</h2>
        <Segments
          label="Time of the figures"
          value={window}
          options={[
            ["60", "Last 60 s"],
            ["run", "Whole run"],
          ]}
          onChoose={(value) => setQuery("window", value === "run" ? null : value)}
        />
        <div class="right">
          {tools?.(columns, entries)}
          <input
            id="filter"
            class="field"
            type="search"
            placeholder="Filter ( / )"
            aria-label="Filter metrics by name"
            value={filter}
            onInput={(event) => setQuery("filter", event.currentTarget.value || null)}
          />
        </div>
      </header>
      <Rows
        columns={columns}
        entries={brief ? entries.slice(0, brief) : entries}
        sort={{ name: sort, ascending, set: setSort }}
        scrolls={!brief}
        onFold={onFold}
      />
      {entries.length === 0 ? <p class="empty">{all.length === 0 ? "No request has ended yet." : "No metric has this name."}</p> : null}
      {brief && entries.length > brief ? (
        <p class="more">
          <a href="#/metrics">All {count(all.length - 1)} metrics</a>
        </p>
      ) : null}
    </section>
  );
}

interface RowsProps {
  columns: Column[];
  entries: Entry[];
  sort: { name: string; ascending: boolean; set: (name: string) => void };
  scrolls: boolean;
  onFold: Props["onFold"];
}

function Rows({ columns, entries, sort, scrolls, onFold }: RowsProps): JSX.Element {
  const region = useRef<HTMLElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = region.current;
    if (!element || !scrolls) return;
    const measure = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
    };
  }, [scrolls]);
  const inView = Math.ceil(view.height / ROW_HEIGHT);
  // A filter may leave fewer rows than the region is scrolled by.
  const top = Math.min(Math.floor(view.top / ROW_HEIGHT), Math.max(0, entries.length - inView));
  const first = scrolls ? Math.max(0, top - OVERSCAN) : 0;
  const end = scrolls ? Math.min(entries.length, top + inView + 1 + OVERSCAN) : entries.length;
  const spacer = (rows: number, key: string): JSX.Element | null =>
    rows > 0 ? (
      <tr key={key} class="spacer">
        <td colSpan={columns.length + 2} height={rows * ROW_HEIGHT} />
      </tr>
    ) : null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class={scrolls ? "scroll tall" : "scroll"} ref={region} tabIndex={0} aria-label="Figures of the metrics">
      <table aria-rowcount={entries.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <Head title="Metric" name="name" sort={sort} />
            {columns.map((column) => (
              <Head key={column.name} title={column.title} unit={column.unit} name={column.name} sort={sort} number wide={column.wide} />
            ))}
            <th scope="col" class="wide trend">
              p99, last 60 s
            </th>
          </tr>
        </thead>
        <tbody>
          {spacer(first, "above")}
          {entries.slice(first, end).map((entry, place) => (
            // The head is the first row.
            <MetricRow key={entry.id} entry={entry} row={first + place + 2} columns={columns} onFold={onFold} />
          ))}
          {spacer(entries.length - end, "below")}
        </tbody>
      </table>
    </section>
  );
}

interface HeadProps {
  title: string;
  unit?: string | undefined;
  name: string;
  sort: RowsProps["sort"];
  number?: boolean;
  wide?: boolean | undefined;
}

function Head({ title, unit, name, sort, number = false, wide = false }: HeadProps): JSX.Element {
  const order = sort.name !== name ? "none" : sort.ascending ? "ascending" : "descending";
  return (
    <th scope="col" class={`${number ? "number" : ""} ${wide ? "wide" : ""}`} aria-sort={order}>
      <button type="button" onClick={() => sort.set(name)}>
        {title}
        {unit ? <span class="unit"> {unit}</span> : null}
      </button>
    </th>
  );
}

interface RowProps {
  entry: Entry;
  /** Its number among all rows, of which the document may have a few. */
  row: number;
  columns: Column[];
  onFold: Props["onFold"];
}

const rows = new WeakMap<Element, MetricRow>();
const NEAR = "64px";
let observer: IntersectionObserver | null = null;

/** Says rows when they come into view and leave it. */
function observe(element: Element, row: MetricRow): void {
  observer ??= new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) rows.get(target)?.setInView(isIntersecting);
    },
    { rootMargin: NEAR },
  );
  rows.set(element, row);
  observer.observe(element);
}

/** Changes with the figures of a metric. */
const figuresOf = ({ id }: Entry): number | undefined => store.data.table?.changed[id + 1];

/** Rendered when its figures change while it is in view, and when it comes into view. */
class MetricRow extends Component<RowProps> {
  private inView = true;
  private outdated = false;
  private rendered: number | undefined;
  private element: Element | null = null;

  private readonly setElement = (element: Element | null): void => {
    if (this.element) observer?.unobserve(this.element);
    this.element = element;
    if (element && this.props.entry.id !== ALL_REQUESTS) observe(element, this);
  };

  setInView(inView: boolean): void {
    this.inView = inView;
    if (inView && this.outdated) this.forceUpdate();
  }

  override shouldComponentUpdate(next: RowProps): boolean {
    const { entry, row, columns, onFold } = this.props;
    // Written without a rendering: a new order changes it in many rows.
    if (next.row !== row) this.element?.setAttribute("aria-rowindex", String(next.row));
    if (next.columns !== columns || next.onFold !== onFold) return true;
    this.outdated ||= next.entry !== entry || figuresOf(entry) !== this.rendered;
    return this.outdated && this.inView;
  }

  private readonly now = (): string => count(nowOf(this.props.entry.id));
  private readonly shown = (): boolean => this.inView;

  override render(props: RowProps): JSX.Element {
    this.outdated = false;
    this.rendered = figuresOf(props.entry);
    return <RowCells {...props} setElement={this.setElement} now={this.now} shown={this.shown} />;
  }
}

interface CellsProps extends RowProps {
  setElement: (element: Element | null) => void;
  now: () => string;
  shown: () => boolean;
}

function RowCells({ entry, row, columns, onFold, setElement, now, shown }: CellsProps): JSX.Element {
  const { id, metric, group, member } = entry;
  const name = visible(shorten(nameOf(entry)));
  const kind = metric && metric.kind !== "request" ? metric.kind : null;
  const trend = id === ALL_REQUESTS ? store.data.column("p99").slice(-60).filter(Boolean) : store.data.trends.of(id);
  return (
    <tr class={id === ALL_REQUESTS ? "total" : ""} aria-rowindex={row} ref={setElement}>
      <th scope="row" class={member ? "name member" : "name"} title={name}>
        {group ? (
          <button
            type="button"
            class="fold"
            aria-expanded={!group.folded}
            aria-label={`${group.members} metrics of ${visible(shorten(group.name))}`}
            onClick={() => onFold?.(group.name)}
          />
        ) : null}
        {metric ? <a href={`#/metric?id=${Number(entry.id)}`}>{name}</a> : name}
        {kind ? <span class="tag">{kind}</span> : null}
        {group?.folded ? <span class="tag">{count(group.members)} folded</span> : null}
      </th>
      {columns.map((column) => {
        const value = entry.figure(column.name);
        const place = `number ${column.wide ? "wide" : ""}`;
        if (value === undefined)
          return (
            <td key={column.name} class={place} title={group && !metric ? "The group was not timed itself" : "The run is over"}>
              {UNKNOWN}
            </td>
          );
        const zero = value === 0 && column.name.startsWith("error");
        return (
          <td key={column.name} class={zero ? `${place} zero` : place}>
            {column.name === "now" ? <LiveText text={now} shown={shown} /> : column.show(value)}
          </td>
        );
      })}
      <td class="wide trend">
        {metric || id === ALL_REQUESTS ? <Spark values={trend} tone="p99" label={`p99 of ${name}, the last minute`} /> : null}
      </td>
    </tr>
  );
}
