// Seconds without a request in a list of those with one.

/** The shortest time between two entries: a long run has several seconds in one. */
export const stepOf = (t: number[]): number => Math.min(...t.slice(1).map((second, place) => second - (t[place] ?? 0)), t[0] ?? 1);

/** The times with one more time in each gap, so that a line ends there, and the place of each time in `t`. */
export function withGaps(t: number[]): { times: number[]; places: (number | null)[] } {
  const step = stepOf(t);
  const times: number[] = [];
  const places: (number | null)[] = [];
  for (const [place, second] of t.entries()) {
    const last = times.at(-1);
    if (last !== undefined && second > last + step) {
      times.push(last + step);
      places.push(null);
    }
    times.push(second);
    places.push(place);
  }
  return { times, places };
}
