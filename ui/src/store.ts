// Everything that the page shows, and who is told when it changes. Messages change it at once;
// components render at most once per frame, and not at all while the tab is hidden.

import { useEffect, useRef, useState } from "preact/hooks";
import { fetchSession, SIGNED_OUT } from "./api";
import { Connection, SILENCE_MS } from "./feed/connection";
import { type Fleet, type Hello, type Message, SCHEMA, type State } from "./feed/messages";
import { RunData } from "./feed/run_data";

/** Without messages the page renders this often, because ages change. */
const TICK_MS = 1000;
const SHORTEST_PAUSE_MS = 250;
/** The server sends several messages for each second, and one rendering shows them all. */
const GATHER_MS = 40;

export type Access = "unknown" | "granted" | "sign-in";

export class Store {
  hello: Hello | null = null;
  state: State | null = null;
  fleet: Fleet | null = null;
  data = new RunData([]);
  access: Access = "unknown";
  /** The server shows a folder of results and has no fleet. */
  resultsOnly = false;
  /** What the server shows beside the fleet. */
  shows = { streams: false, grid: false };
  /** The command that adds a worker to the fleet, if the server knows it. */
  workerCommand: string | null = null;
  /** The server is of another version than this page. */
  outdated = false;
  /** The age of the run when the server last said it, and when that was. */
  private elapsed: { s: number; at: number } | null = null;
  private readonly listeners = new Set<() => void>();
  private rendering: number | undefined;
  private renderedAt = 0;
  /** When the planned rendering is due. */
  private due = 0;

  readonly connection = new Connection({
    onMessage: (message) => this.apply(message),
    onClosed: () => void this.checkAccess(),
    resumeFrom: () => {
      const { run, lastSecond, finished } = this.data;
      return run !== null && lastSecond > 0 && !finished ? { run, since: lastSecond } : null;
    },
  });

  constructor() {
    // Ages and the stale state change without messages.
    window.setInterval(() => {
      if (Date.now() - this.renderedAt > TICK_MS) this.changed();
    }, TICK_MS);
    document.addEventListener("visibilitychange", () => this.changed());
    document.addEventListener(SIGNED_OUT, () => void this.checkAccess());
  }

  get stale(): boolean {
    const silence = this.connection.silence(Date.now());
    return silence !== null && silence > SILENCE_MS;
  }

  /** The age of the run now, in seconds. */
  get elapsedSeconds(): number | null {
    if (this.state?.result) return this.state.result.elapsed_s;
    return this.elapsed && this.elapsed.s + (Date.now() - this.elapsed.at) / 1000;
  }

  /** How old the latest second is; null without a run in progress. */
  get dataAge(): number | null {
    const elapsed = this.elapsedSeconds;
    if (elapsed === null || !this.running) return null;
    return Math.max(0, elapsed - this.data.lastSecond);
  }

  get running(): boolean {
    const phase = this.state?.phase;
    return phase === "RUNNING" || phase === "STOPPING";
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Renders soon, once for all messages that arrive together. */
  changed(): void {
    if (document.visibilityState === "hidden") return;
    const due = Math.max(Date.now() + GATHER_MS, this.renderedAt + SHORTEST_PAUSE_MS);
    if (this.rendering !== undefined && this.due <= due) return;
    window.clearTimeout(this.rendering);
    this.due = due;
    this.rendering = window.setTimeout(() => window.requestAnimationFrame(() => this.render()), due - Date.now());
  }

  private render(): void {
    this.rendering = undefined;
    this.renderedAt = Date.now();
    for (const listener of this.listeners) listener();
  }

  private apply(message: Message): void {
    this.access = "granted";
    switch (message.type) {
      case "hello":
        this.greet(message);
        break;
      case "state":
        this.state = message.phase ? message : { ...this.state, ...message };
        break;
      case "snapshot":
        this.data.applySnapshot(message);
        this.setElapsed(message.run !== null && !message.finished ? message.elapsed_s : null);
        break;
      case "history":
        if (message.run === this.data.run) this.data.applyHistory(message);
        break;
      case "second":
        this.setElapsed(message.elapsed_s);
        // A gap means that a message was lost, and too many points that fewer would do.
        if (!this.data.applySecond(message)) this.connection.connect();
        else if (this.data.tooLong) this.reload();
        break;
      case "table":
        if (message.run === this.data.run) this.data.setTable(message);
        break;
      case "event":
        if (message.run === this.data.run) this.data.addEvent(message.event);
        break;
      case "fleet":
        this.fleet = message;
        break;
      case "alive":
        if (message.elapsed_s !== null) this.setElapsed(message.elapsed_s);
        break;
    }
    this.changed();
  }

  private greet(hello: Hello): void {
    const understood = hello.schema === SCHEMA;
    // The messages that follow have another form.
    if (!understood) this.connection.stop();
    this.outdated ||= !understood || (this.hello !== null && this.hello.version !== hello.version);
    if (this.hello === null) this.data = new RunData(hello.columns);
    this.hello = hello;
  }

  private setElapsed(s: number | null): void {
    this.elapsed = s === null ? null : { s, at: Date.now() };
  }

  /** Asks for the whole run again. */
  private reload(): void {
    this.data = new RunData(this.hello?.columns ?? []);
    this.connection.connect();
  }

  /** Asks whether to sign in, and what the server shows: a refused WebSocket does not say why. */
  async checkAccess(): Promise<void> {
    const session = await fetchSession().catch(() => null);
    this.resultsOnly = session?.results_only ?? this.resultsOnly;
    if (session) this.shows = { streams: session.shows_streams, grid: session.shows_grid };
    this.workerCommand = session?.worker_command ?? this.workerCommand;
    if (session && !session.signed_in) {
      this.access = "sign-in";
      this.connection.stop();
    }
    this.changed();
  }
}

export const store = new Store();

/** Renders the component again when the store or the time changes. */
export function useStore(): Store {
  const [, render] = useState(0);
  useEffect(() => store.subscribe(() => render((n) => n + 1)), []);
  return store;
}

/** Renders the component again only when `key` returns another value, because charts cost much. */
export function useStoreOn(key: (store: Store) => unknown): Store {
  const [, render] = useState<unknown>("");
  const latest = useRef(key);
  latest.current = key;
  useEffect(() => store.subscribe(() => render(latest.current(store))), []);
  return store;
}

/** Changes with each second, each table and each state of the run, and when the data becomes stale. */
export const measurements = ({ data, state, stale }: Store): string =>
  `${data.run} ${data.version} ${state?.revision} ${state?.phase} ${state?.run} ${Boolean(state?.result)} ${stale}`;

/** Changes when the list of events or breached thresholds does. */
export const occurrences = ({ data }: Store): string =>
  `${data.run} ${data.events.length} ${data.thresholds.map(({ breached_at_s }) => breached_at_s)}`;

export function useMeasurements(): Store {
  return useStoreOn(measurements);
}
