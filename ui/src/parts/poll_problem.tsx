// Says that the latest answer of the API is missing, so that the figures below are old.

import type { JSX } from "preact";
import { short, visible } from "../format";
import { useStore } from "../store";
import type { Polled } from "./polled";

export function PollProblem({ value, at, problem }: Polled<unknown>): JSX.Element | null {
  // The age changes with the time.
  useStore();
  if (!problem || !value) return null;
  return (
    <p class="band warn">
      {/* Only what does not change each second is announced. */}
      <span role="status">The latest figures are missing: {visible(problem)}.</span> The figures below are {short((Date.now() - at) / 1000)}{" "}
      s old.
    </p>
  );
}
