// Keys of the page. None acts while a person types, and every one has a button too.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { ADD_NOTE } from "./parts/add_note";
import { Panel } from "./parts/panel";
import { showLast, showWholeRun } from "./parts/time_view";
import { currentRoute, go, setQuery } from "./route";

export const KEY_PAGES: Record<string, [string, string]> = {
  l: ["live", "Live"],
  m: ["metrics", "Metrics"],
  e: ["errors", "Errors"],
  p: ["probes", "Probes"],
  w: ["workers", "Workers"],
  r: ["resources", "Resources"],
  s: ["streams", "Streams"],
  b: ["grid", "Browser grid"],
  n: ["start", "Start a run"],
  h: ["history", "History"],
  c: ["compare", "Compare"],
};

/** Steps of `[` and `]`: from short to the whole run. */
const RANGES = [60, 300, null] as const;

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.matches("input, textarea, select") || target.closest("dialog") !== null);

function stepRange(step: 1 | -1): void {
  const text = currentRoute().query.get("range");
  const known = RANGES.findIndex((range) => String(range) === text);
  const place = known === -1 ? RANGES.length - 1 : known;
  const next = RANGES[Math.min(Math.max(place + step, 0), RANGES.length - 1)];
  if (next === null || next === undefined) showWholeRun();
  else showLast(next);
}

/** Asks, then presses the button. Space scrolls where there is none. */
function pauseOrResume(): boolean {
  const button = document.getElementById("pause");
  if (!(button instanceof HTMLButtonElement) || button.disabled) return false;
  if (window.confirm(`${button.ariaLabel} the load?`)) button.click();
  return true;
}

function act(key: string): boolean {
  switch (key) {
    case "/":
      document.getElementById("filter")?.focus();
      return true;
    case "[":
      stepRange(-1);
      return true;
    case "]":
      stepRange(1);
      return true;
    case "0":
      showWholeRun();
      return true;
    case "t":
      setQuery("times", currentRoute().query.get("times") === "service" ? null : "service");
      return true;
    case " ":
      return pauseOrResume();
    case "n":
      document.dispatchEvent(new Event(ADD_NOTE));
      return true;
    default:
      return false;
  }
}

interface Props {
  shown: boolean;
  onShow: (shown: boolean) => void;
  /** Whether the server has the page. */
  isOffered: (page: string) => boolean;
}

export function Keys({ shown, onShow, isOffered }: Props): JSX.Element | null {
  useEffect(() => {
    let going = false;
    const listen = (event: KeyboardEvent): void => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = going ? KEY_PAGES[event.key] : undefined;
      going = event.key === "g";
      if (page) isOffered(page[0]) && go(page[0]);
      else if (event.key === "?") onShow(true);
      // Space presses the control that has the focus.
      else if ((event.key === " " && event.target !== document.body) || !act(event.key)) return;
      event.preventDefault();
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [onShow]);
  if (!shown) return null;
  return <Panel show={({ KeyList }) => <KeyList isOffered={isOffered} onClose={() => onShow(false)} />} />;
}
