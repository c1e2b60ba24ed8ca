// Spreads expensive drawing over frames, so that no task of the page lasts long. It decides when; the
// caller knows what.

/** Drawing that one frame contains at most; what is left waits for the next one. */
const BUDGET_MS = 8;

const waiting = new Map<object, () => void>();
let frame: CSSNumberish | null = null;
let spent = 0;

/**
 * Calls `work` now if this frame has time left, otherwise in a later one, and `heavy` work always in a
 * later one. The latest work of an owner counts.
 */
export function withinFrame(owner: object, heavy: boolean, work: () => void): void {
  const now = document.timeline.currentTime;
  if (now !== frame) [frame, spent] = [now, 0];
  if (!heavy && spent < BUDGET_MS && waiting.size === 0) {
    perform(work);
    return;
  }
  if (waiting.size === 0) window.requestAnimationFrame(performWaiting);
  waiting.set(owner, work);
}

/** The work of an owner that is gone. */
export const forget = (owner: object): void => {
  waiting.delete(owner);
};

function perform(work: () => void): void {
  const start = performance.now();
  work();
  spent += performance.now() - start;
}

function performWaiting(): void {
  [frame, spent] = [document.timeline.currentTime, 0];
  for (const [owner, work] of waiting) {
    if (spent >= BUDGET_MS) break;
    waiting.delete(owner);
    perform(work);
  }
  if (waiting.size > 0) window.requestAnimationFrame(performWaiting);
}
