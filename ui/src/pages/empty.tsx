// What a page of the run shows before there was one. What to do then loads after the first paint.

import type { JSX } from "preact";
import { Panel } from "../parts/panel";
import { useStoreOn } from "../store";

export function Empty(): JSX.Element {
  const { state } = useStoreOn(({ state }) => state?.phase);
  return state?.phase ? <Panel show={({ FirstSteps }) => <FirstSteps />} /> : <p class="empty">Connecting…</p>;
}
