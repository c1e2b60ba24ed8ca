// Shows a panel over the page. The panels load after the first paint, and stay, so that a person can
// act although the server has gone.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

type Panels = typeof import("../pages/more");

let known: Panels | null = null;

export async function loadPanels(): Promise<Panels> {
  known = await import("../pages/more");
  return known;
}

export function Panel({ show }: { show: (panels: Panels) => JSX.Element }): JSX.Element | null {
  const [panels, setPanels] = useState(known);
  useEffect(() => {
    if (!panels) loadPanels().then(setPanels, console.error);
  }, []);
  return panels ? show(panels) : null;
}
