// When to try again after the connection broke: 0.5, 1, 2, 4, then 8 s, each ± 20 %, so that the
// pages of a restarted orchestrator do not all return at once.

const FIRST_MS = 500;
const LONGEST_MS = 8000;

/** The wait before attempt `attempt` (0 is the first); `random` is in 0..1. */
export function reconnectDelay(attempt: number, random: number): number {
  const wait = Math.min(FIRST_MS * 2 ** attempt, LONGEST_MS);
  return Math.round(wait * (0.8 + 0.4 * random));
}
