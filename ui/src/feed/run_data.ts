// The run as the page knows it: what snapshots and seconds contained, in columns. It computes no
// statistics; charts and tables read it.

import type {
  ErrorMessage,
  ErrorOutcome,
  Failure,
  FleetEvent,
  History,
  KeyFigures,
  MetricName,
  Second,
  Snapshot,
  TablePart,
  Threshold,
} from "./messages";
import { placeOf } from "./place";
import { Trends } from "./trends";

/** With more points the page asks for a new snapshot, which joins seconds. */
const MAX_POINTS = 7200;

export interface Metric {
  name: string;
  kind: MetricName[2];
}

/** Rows by id + 1; a metric without a row has none. */
type Rows = (number[] | undefined)[];

/** The figures of all metrics, put together from the parts that the server sent. */
export interface Table {
  total: Rows;
  window: Rows;
  messages: ErrorMessage[];
  outcomes: ErrorOutcome[];
  /** By id + 1: the number of the table that contained the metric last. */
  changed: number[];
}

export class RunData {
  run: string | null = null;
  finished = false;
  /** Rows by column. */
  private values: number[][] = [];
  failures = new Map<number, Failure[]>();
  /** Failed requests of the run by code. */
  failureTotals = new Map<string, number>();
  private lowest: number[] = [];
  private highest: number[] = [];
  heat: (number[] | undefined)[] = [];
  /** CPU use of the busiest worker in percent; null where it is not known. */
  cpu: (number | null)[] = [];
  /** Changes when the values no longer continue the earlier ones. */
  generation = 0;
  /** Changes with the generation, and when columns of the heatmap arrive late. */
  heats = 0;
  metrics = new Map<number, Metric>();
  trends = new Trends();
  /** By id: requests in the latest second. */
  private latest: number[] = [];
  figures: KeyFigures | null = null;
  thresholds: Threshold[] = [];
  events: FleetEvent[] = [];
  table: Table | null = null;
  /** Changes with the table. */
  tables = 0;
  /** Changes with the data, so that charts and tables know when to render. */
  version = 0;

  constructor(private readonly columns: string[]) {
    this.clear();
  }

  /** The values of a column; empty for an unknown one. */
  column(name: string): number[] {
    return this.values[this.columns.indexOf(name)] ?? [];
  }

  /** The lowest and the highest value of a column. */
  extremes(name: string): [number, number] {
    const index = this.columns.indexOf(name);
    return [this.lowest[index] ?? 0, this.highest[index] ?? 0];
  }

  get times(): number[] {
    return this.column("t");
  }

  get lastSecond(): number {
    return this.times.at(-1) ?? 0;
  }

  /** Whether the run is so long that the page needs a snapshot with fewer points. */
  get tooLong(): boolean {
    return this.times.length > MAX_POINTS;
  }

  applySnapshot(message: Snapshot): void {
    if (message.run === null || message.since === 0 || message.run !== this.run) this.clear();
    this.version += 1;
    this.run = message.run;
    if (message.run === null) return;
    this.finished = message.finished;
    for (const [column, values] of message.seconds.entries()) this.append(column, values);
    for (const percent of message.cpu) this.cpu.push(percent);
    for (const [t, failures] of message.failures) this.addFailures(t, failures);
    this.addMetrics(message.metrics);
    this.setLatest(message.latest, null);
    this.figures = message.figures;
    this.thresholds = message.thresholds;
    this.events = message.events;
    this.setTable(message.table);
  }

  applyHistory({ heat = [], trends = [] }: History): void {
    this.version += 1;
    if (heat.length > 0) this.heats += 1;
    for (const [t, column] of heat) {
      const index = placeOf(this.times, t);
      if (this.times[index] === t) this.heat[index] = column;
    }
    for (const [id, t, p99] of trends) {
      for (const [place, second] of t.entries()) this.trends.add(id, second, p99[place] ?? 0);
    }
  }

  /** Returns false if the second does not follow the known ones. */
  applySecond(message: Second): boolean {
    const t = message.row[this.columns.indexOf("t")] ?? 0;
    if (message.run !== this.run) return false;
    if (t <= this.lastSecond) return true;
    if (t !== this.lastSecond + 1) return false;
    this.version += 1;
    for (let column = 0; column < message.row.length; column += 1) this.appendOne(column, message.row[column] ?? 0);
    this.heat[this.times.length - 1] = message.heat;
    this.cpu.push(message.cpu);
    if (message.failures.length > 0) this.addFailures(t, message.failures);
    this.addMetrics(message.new_metrics);
    this.setLatest(message.metrics, t);
    this.figures = message.figures;
    this.thresholds = message.thresholds;
    return true;
  }

  /** Takes the metrics of the latest second, and continues their trends if it is the second `t`. */
  private setLatest(metrics: number[], t: number | null): void {
    this.latest.fill(0);
    for (let place = 0; place < metrics.length; place += 3) {
      const id = metrics[place] ?? 0;
      this.latest[id] = metrics[place + 1] ?? 0;
      if (t !== null) this.trends.add(id, t, metrics[place + 2] ?? 0);
    }
  }

  /** Requests of a metric in the latest second. */
  latestOf(id: number): number {
    return this.latest[id] ?? 0;
  }

  /** Replaces the metrics of the part. */
  setTable({ part: [place, parts], total, window, messages, outcomes }: TablePart): void {
    this.version += 1;
    this.tables += 1;
    const known = this.table ?? { total: [], window: [], messages: [], outcomes: [], changed: [] };
    // Plain loops: iterators over hundreds of rows each second cost the browser many collections.
    const replace = (rows: Rows, added: number[][]): Rows => {
      const here = new Set<number>();
      for (const row of added) {
        const index = (row[0] ?? 0) + 1;
        const old = rows[index];
        // Copied, because rows of messages that live long cost the browser many large collections.
        if (old?.length === row.length) for (let column = 0; column < row.length; column += 1) old[column] = row[column] ?? 0;
        else rows[index] = row;
        known.changed[index] = this.tables;
        here.add(index);
      }
      for (let index = place; index < rows.length; index += parts) if (!here.has(index)) rows[index] = undefined;
      return rows;
    };
    const isOther = ([id]: ErrorMessage | ErrorOutcome): boolean => ((id ?? -1) + 1) % parts !== place;
    this.table = {
      changed: known.changed,
      total: replace(known.total, total),
      window: replace(known.window, window),
      messages: [...known.messages.filter(isOther), ...messages],
      outcomes: [...known.outcomes.filter(isOther), ...outcomes],
    };
  }

  /** Adds an event, unless a snapshot contained it already. */
  addEvent(event: FleetEvent): void {
    if (this.events.some(([t, text]) => t === event[0] && text === event[1])) return;
    this.version += 1;
    this.events = [...this.events, event];
  }

  private append(column: number, values: number[]): void {
    const known = this.values[column];
    // The first values need no copy.
    if (known?.length) for (const value of values) known.push(value);
    else if (known) this.values[column] = values;
    let [low, high] = [this.lowest[column] ?? Infinity, this.highest[column] ?? -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (values.length > 0) [this.lowest[column], this.highest[column]] = [low, high];
  }

  private appendOne(column: number, value: number): void {
    this.values[column]?.push(value);
    if (value < (this.lowest[column] ?? Infinity)) this.lowest[column] = value;
    if (value > (this.highest[column] ?? -Infinity)) this.highest[column] = value;
  }

  private addFailures(t: number, failures: Failure[]): void {
    this.failures.set(t, failures);
    for (const [code, n] of failures) this.failureTotals.set(code, (this.failureTotals.get(code) ?? 0) + n);
  }

  private addMetrics(names: MetricName[]): void {
    for (const [id, name, kind] of names) {
      const known = this.metrics.get(id);
      if (known?.name !== name) this.metrics.set(id, { name, kind });
    }
  }

  private clear(): void {
    this.values = this.columns.map(() => []);
    this.failures = new Map();
    this.failureTotals = new Map();
    this.lowest = [];
    this.highest = [];
    this.heat = [];
    this.cpu = [];
    this.generation += 1;
    this.heats += 1;
    this.metrics = new Map();
    this.trends = new Trends();
    this.latest = [];
    this.figures = null;
    this.thresholds = [];
    this.events = [];
    this.table = null;
    this.tables += 1;
    this.finished = false;
  }
}
