// The flags of the run for components: the same array until something happens.

import { useMemo } from "preact/hooks";
import { occurrences, useStoreOn } from "../store";
import { type Flag, flagsOf } from "./flags";

/** The flags of the run; the same array until something happens. */
export function useFlags(): readonly Flag[] {
  const store = useStoreOn(occurrences);
  return useMemo(() => flagsOf(store.data.events, store.data.thresholds), [occurrences(store)]);
}
