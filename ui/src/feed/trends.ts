// The p99 of each metric over the latest minute, in one block of numbers: arrays that grow and shrink for
// hundreds of metrics each second would cost the browser many collections.

/** Seconds of a trend. */
const TREND_S = 60;
const FIRST_METRICS = 64;

export class Trends {
  /** A metric has a place for each second of a minute; NaN where it had no request. */
  private values = new Float32Array(FIRST_METRICS * TREND_S).fill(Number.NaN);
  /** By id: the latest second with a request; 0 without one. */
  private last = new Float64Array(FIRST_METRICS);

  /** Adds a second. Seconds of a metric come in order. */
  add(id: number, t: number, p99: number): void {
    if (id >= this.last.length) this.grow(id);
    const first = Math.max((this.last[id] ?? 0) + 1, t - TREND_S + 1);
    for (let second = first; second < t; second += 1) this.values[id * TREND_S + (second % TREND_S)] = Number.NaN;
    this.values[id * TREND_S + (t % TREND_S)] = p99;
    this.last[id] = t;
  }

  /** The values of the minute before the metric's latest request. */
  of(id: number): number[] {
    const last = this.last[id] ?? 0;
    const found: number[] = [];
    for (let t = Math.max(1, last - TREND_S + 1); t <= last; t += 1) {
      const value = this.values[id * TREND_S + (t % TREND_S)] ?? Number.NaN;
      if (!Number.isNaN(value)) found.push(value);
    }
    return found;
  }

  private grow(id: number): void {
    const metrics = Math.max(this.last.length * 2, id + 1);
    const [values, last] = [new Float32Array(metrics * TREND_S).fill(Number.NaN), new Float64Array(metrics)];
    values.set(this.values);
    last.set(this.last);
    [this.values, this.last] = [values, last];
  }
}
