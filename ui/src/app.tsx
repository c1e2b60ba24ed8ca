// The shell: navigation, run bar, bands, and the page of the address. Pages other than Live load on
// their first visit.

import { Component, type ComponentChildren, type ComponentType, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "./format";
import { Keys } from "./keys";
import Live from "./pages/live";
import { NotePanel } from "./parts/add_note";
import { Bands } from "./parts/bands";
import { Icon, type IconName, Logo } from "./parts/icons";
import { Panel } from "./parts/panel";
import { Age, chipOf, RunBar } from "./parts/run_bar";
import { toggleTheme } from "./parts/theme";
import { useRoute } from "./route";
import { type Store, store, useStoreOn } from "./store";

export interface Page {
  title: string;
  icon: IconName;
  group: string;
  load: () => Promise<ComponentType>;
  /** In place of the run bar, on pages that are about no current run. */
  head?: [title: string, detail: string];
}

const more = () => import("./pages/more");
const runs = () => import("./pages/runs");
const control = () => import("./pages/control");

const PAGES: Record<string, Page> = {
  live: { title: "Live", icon: "live", group: "Run", load: () => Promise.resolve(Live) },
  metrics: { title: "Metrics", icon: "table", group: "Run", load: () => more().then(({ Metrics }) => Metrics) },
  errors: { title: "Errors", icon: "errors", group: "Run", load: () => more().then(({ Errors }) => Errors) },
  metric: { title: "Metric", icon: "table", group: "", load: () => more().then(({ Metric }) => Metric) },
  probes: { title: "Probes", icon: "probe", group: "Run", load: () => more().then(({ Probes }) => Probes) },
  workers: { title: "Workers", icon: "workers", group: "Fleet", load: () => more().then(({ Workers }) => Workers) },
  resources: { title: "Resources", icon: "pool", group: "Fleet", load: () => more().then(({ Resources }) => Resources) },
  streams: { title: "Streams", icon: "stream", group: "Fleet", load: () => control().then(({ Streams }) => Streams) },
  grid: { title: "Browser grid", icon: "grid", group: "Fleet", load: () => control().then(({ BrowserGrid }) => BrowserGrid) },
  api: { title: "API", icon: "table", group: "", load: () => more().then(({ ApiPage }) => ApiPage) },
  start: { title: "Start a run", icon: "plus", group: "Runs", load: () => control().then(({ Start }) => Start) },
  history: {
    title: "History",
    icon: "history",
    group: "Runs",
    load: () => runs().then(({ History }) => History),
    head: ["History", "Finished runs"],
  },
  compare: {
    title: "Compare",
    icon: "compare",
    group: "Runs",
    load: () => runs().then(({ Compare }) => Compare),
    head: ["Compare two runs", "Whether they differ by more than two equal runs would"],
  },
};
const GROUPS = ["Run", "Fleet", "Runs"];

/** Whether the navigation has the page: streams and the grid only where the server shows them. */
const isOffered = (name: string, { resultsOnly, shows }: Store): boolean =>
  resultsOnly ? PAGES[name]?.head !== undefined : (name !== "streams" || shows.streams) && (name !== "grid" || shows.grid);

const offersPage = (name: string): boolean => isOffered(name, store);

export function App(): JSX.Element {
  const { access, stale, state, resultsOnly } = useStoreOn(
    (store) => `${store.access} ${store.stale} ${store.state?.store_up} ${store.resultsOnly}`,
  );
  const route = useRoute();
  // Without a fleet there are no other pages.
  const page = resultsOnly && !PAGES[route.page]?.head ? "history" : route.page;
  const head = PAGES[page]?.head;
  const [keysShown, setKeysShown] = useState(false);
  return (
    <div class={stale || state?.store_up === false ? "shell stale" : "shell"}>
      {/* biome-ignore lint/a11y/useValidAnchor: a link to a part of this page, whose address the route owns */}
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <Navigation page={page} onKeys={() => setKeysShown(true)} />
      <div class="main">
        {head ? <PageHead head={head} /> : <RunBar />}
        {resultsOnly ? null : <Bands ofRun={!head} />}
        <main id="main" tabIndex={-1}>
          <PageView page={page} />
        </main>
      </div>
      <Announcer />
      <Keys shown={keysShown} onShow={setKeysShown} isOffered={offersPage} />
      <NotePanel />
      {access === "sign-in" ? <Panel show={({ SignIn }) => <SignIn />} /> : null}
    </div>
  );
}

/** The part of the address after `#` names the page, so the link may not change it. */
function skipToMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** Numbers beside the names of pages. */
const badgesOf = ({ data, fleet }: Store): Record<string, number> => ({
  metrics: data.metrics.size,
  errors: data.failureTotals.size,
  workers: (fleet?.workers ?? []).filter((worker) => worker.present).length,
});

function PageHead({ head: [title, detail] }: { head: [string, string] }): JSX.Element {
  return (
    <header class="run-bar">
      <div class="what">
        <h1>{title}</h1>
        <p>{detail}</p>
      </div>
    </header>
  );
}

/** The pages of the bar on narrow screens; the others are behind More. */
const NEAR = ["live", "metrics", "errors", "workers"];

function Navigation({ page, onKeys }: { page: string; onKeys: () => void }): JSX.Element {
  const store = useStoreOn(
    (store) => `${store.hello?.version} ${Object.keys(PAGES).map((name) => isOffered(name, store))} ${Object.values(badgesOf(store))}`,
  );
  const { hello, resultsOnly } = store;
  const [listed, setListed] = useState(false);
  const badges = badgesOf(store);
  return (
    <nav class="navigation" aria-label="Pages">
      <a class="brand" href="#/live">
        <Logo />
        squall
      </a>
      {GROUPS.filter((group) => !resultsOnly || group === "Runs").map((group) => (
        <div class="group" key={group}>
          <h3>{group}</h3>
          {Object.entries(PAGES)
            .filter(([name, entry]) => entry.group === group && isOffered(name, store))
            .map(([name, entry]) => (
              <a
                key={name}
                class={NEAR.includes(name) || resultsOnly ? "" : "far"}
                href={`#/${name}`}
                aria-current={name === page ? "page" : undefined}
              >
                <Icon name={entry.icon} />
                <span>{entry.title}</span>
                {badges[name] ? <b class={name === "errors" ? "bad" : ""}>{count(badges[name])}</b> : null}
              </a>
            ))}
        </div>
      ))}
      <button type="button" class="more-pages" aria-current={NEAR.includes(page) ? undefined : "page"} onClick={() => setListed(true)}>
        <Icon name="more" />
        More
      </button>
      {listed ? (
        <Panel
          show={({ PageList }) => (
            <PageList
              pages={Object.entries(PAGES).filter(([name, { group }]) => group !== "" && isOffered(name, store))}
              onClose={() => setListed(false)}
            />
          )}
        />
      ) : null}
      <footer>
        <div>
          <Age />
          <button type="button" class="button tiny square" onClick={toggleTheme} aria-label="Light or dark">
            <Icon name="theme" small />
          </button>
        </div>
        <div>
          <button type="button" class="link" onClick={onKeys}>
            Keys <kbd>?</kbd>
          </button>
          <a href="#/api">API</a>
          <span class="version" title={hello?.version}>
            {hello ? `v${hello.version.split(" ")[0]}` : ""}
          </span>
        </div>
      </footer>
    </nav>
  );
}

function PageView({ page }: { page: string }): JSX.Element {
  const [loaded, setLoaded] = useState<{ page: string; view: ComponentType } | null>({ page: "live", view: Live });
  const [problem, setProblem] = useState<string | null>(null);
  const entry = PAGES[page];
  useEffect(() => {
    let ended = false;
    setProblem(null);
    document.title = entry ? `${entry.title} · Squall` : "Squall";
    entry?.load().then(
      // A page that loads slowly may not replace one that was opened after it.
      (view) => ended || setLoaded({ page, view }),
      () => setProblem("This page of the UI cannot be loaded: the server is away, or has another version. Reload the page."),
    );
    return () => {
      ended = true;
    };
  }, [page]);
  if (!entry) return <p class="empty">There is no page “{page}”.</p>;
  if (problem) return <p class="empty problem">{problem}</p>;
  if (loaded?.page !== page) return <p class="empty">Loading…</p>;
  const View = loaded.view;
  return (
    <Guard key={page}>
      <View />
    </Guard>
  );
}

/** A mistake in one page leaves the others usable. */
class Guard extends Component<{ children: ComponentChildren }, { problem: string | null }> {
  override state = { problem: null };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ problem: String(error) });
  }

  override render(): ComponentChildren {
    if (this.state.problem === null) return this.props.children;
    return <p class="empty problem">This page failed: {this.state.problem}. Please report it.</p>;
  }
}

const ANNOUNCE_MS = 5000;

/** Tells screen readers of changes of the state, breached thresholds and lost workers, seldom. */
function Announcer(): JSX.Element {
  const [text, setText] = useState("");
  const last = useRef({ at: 0, text: "" });
  const sentence = ({ state, stale, data, fleet }: Store): string => {
    const breached = data.thresholds.filter((threshold) => threshold.breached_at_s !== null).length;
    const lost = (fleet?.workers ?? []).filter((worker) => worker.state === "lost" && !worker.present).length;
    const parts = [chipOf(state, stale).text];
    if (state?.store_up === false && !stale) parts.push("the coordination store does not answer");
    if (breached > 0) parts.push(`${breached} ${breached === 1 ? "threshold" : "thresholds"} breached`);
    if (lost > 0) parts.push(`${lost} ${lost === 1 ? "worker" : "workers"} lost`);
    return parts.join(", ");
  };
  // A sentence that must wait is looked at again with the next change.
  const now = sentence(useStoreOn((store) => (sentence(store) === last.current.text ? "said" : Date.now())));
  // An effect after the paint would need a frame of its own each second.
  useLayoutEffect(() => {
    if (now === last.current.text || Date.now() - last.current.at < ANNOUNCE_MS) return;
    last.current = { at: Date.now(), text: now };
    setText(now);
  });
  return (
    <div class="hidden-text" role="status" aria-live="polite">
      {text}
    </div>
  );
}
