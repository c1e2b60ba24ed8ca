// Range and ticks of an axis with a log scale.

/** Ticks of a log axis: powers of ten, and their doubles and fives if the axis spans few of them. */
export function logTicks(low: number, high: number): number[] {
  const steps = high / low < 100 ? [1, 2, 5] : [1];
  const first = Math.floor(Math.log10(low));
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, index) => 10 ** (first + index));
  return powers.flatMap((power) => steps.map((step) => step * power)).filter((tick) => tick >= low && tick <= high);
}

/** The range of a log axis around the values. */
export function logRange(low: number, high: number): [number, number] {
  const floor = low > 0 ? low : 1;
  return [floor * 0.8, Math.max(high, floor * 10) * 1.3];
}
