// Finds a time among times in order.

/** The index of the first of the times that is not before `t`. */
export function placeOf(times: readonly number[], t: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < t) low = middle + 1;
    else high = middle;
  }
  return low;
}
