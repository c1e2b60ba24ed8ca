// The browser grid: slots of its workers, the queue, and its sessions, each of which can be ended.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { drainGridWorker, endSession, fetchGrid, type Grid, type GridSession, type GridWorker } from "../control_api";
import { clock, count, short, shorten, visible } from "../format";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { useStoreOn } from "../store";

const POLL_S = 2;

type Asked = { title: string; text: string; button: string; act: () => Promise<unknown> } | null;

export default function BrowserGrid(): JSX.Element {
  const { value, problem } = usePolled("grid", POLL_S, fetchGrid);
  const [asked, setAsked] = useState<Asked>(null);
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ? visible(problem) : "Loading…"}</p>;
  return (
    <>
      {problem ? (
        <div class="band warn" role="status">
          <span>
            <b>The grid cannot be read now.</b> <ForeignText text={problem} />
          </span>
        </div>
      ) : null}
      <Capacity grid={value} />
      <Workers workers={value.workers} onAsk={setAsked} />
      <Sessions sessions={value.sessions} onAsk={setAsked} />
      {asked ? <Ask asked={asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}

function Capacity({ grid }: { grid: Grid }): JSX.Element {
  const { slots, waiting, queue_oldest_ms: oldest, servers } = grid;
  const queue = Object.entries(waiting);
  const queued = queue.reduce((sum, [, n]) => sum + n, 0);
  const figures: [string, string, string, boolean][] = [
    ["Sessions", count(slots.used), `of ${count(slots.all)} slots`, false],
    ["Free slots", count(slots.free), slots.free === 0 ? "a new client waits" : "for new sessions", slots.free === 0],
    ["Closed slots", count(slots.closed), "their workers drain or are away", false],
    [
      "Waiting clients",
      count(queued),
      queue.map(([browser, n]) => `${count(n)} for ${visible(browser)}, up to ${short((oldest[browser] ?? 0) / 1000)} s`).join("; ") ||
        "no queue",
      queued > 0,
    ],
    ["Servers", count(servers.length), servers.length === 0 ? "no client can connect" : "take clients", servers.length === 0],
  ];
  const part = (n: number): number => (slots.all === 0 ? 0 : (n / slots.all) * 100);
  const [used, free] = [part(slots.used), part(slots.free)];
  return (
    <section class="card" aria-label="Capacity">
      <dl class="figures five">
        {figures.map(([name, figure, detail, bad]) => (
          <div class="figure" key={name}>
            <dt>{name}</dt>
            <dd class={bad ? "value bad" : "value"}>{figure}</dd>
            <dd class="detail" title={detail}>
              {detail}
            </dd>
          </div>
        ))}
      </dl>
      <svg
        class="slots"
        viewBox="0 0 100 8"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${slots.used} of ${slots.all} slots are used`}
      >
        <rect class="track" width="100" height="8" />
        <rect class="free" x={used} width={free} height="8" />
        <rect class="used" width={used} height="8" />
      </svg>
    </section>
  );
}

const STATES: Record<GridWorker["state"], [text: string, tone: string, icon: "ok" | "errors" | "no"]> = {
  available: ["Available", "good", "ok"],
  draining: ["Draining", "warn", "errors"],
  unreachable: ["Unreachable", "bad", "no"],
};

function Workers({ workers, onAsk }: { workers: GridWorker[]; onAsk: (asked: Asked) => void }): JSX.Element {
  const { stale } = useStoreOn((store) => String(store.stale));
  const drain = ({ browser, name, active }: GridWorker): Asked => ({
    title: `Drain ${visible(name)}`,
    text: `It takes no more sessions, and leaves when its ${count(active)} ${active === 1 ? "session has" : "sessions have"} ended.`,
    button: "Drain",
    act: () => drainGridWorker(browser, name),
  });
  return (
    <section class="card" aria-labelledby="grid-workers">
      <header>
        <h2 id="grid-workers">Workers</h2>
      </header>
      {workers.length === 0 ? (
        <>
          <p class="empty">No worker offers slots. Start one with the Redis server of this fleet:</p>
          <pre class="command">squall grid worker --redis redis://HOST:6379</pre>
        </>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
        <section class="scroll" tabIndex={0} aria-label="Workers of the grid">
          <table>
            <thead>
              <tr>
                <th scope="col">Worker</th>
                <th scope="col">State</th>
                <th scope="col">Browser</th>
                {["Used", "Slots", "Sessions so far"].map((head) => (
                  <th scope="col" class="number" key={head}>
                    {head}
                  </th>
                ))}
                <th scope="col">
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {workers.map((worker) => {
                const [text, tone, icon] = STATES[worker.state];
                return (
                  <tr key={`${worker.browser}:${worker.name}`}>
                    <th scope="row" class="name">
                      {visible(worker.name)}
                    </th>
                    <td>
                      <span class={`look ${tone}`}>
                        <Icon name={icon} small />
                        {text}
                      </span>
                    </td>
                    <td>
                      {visible(worker.browser)} {visible(worker.version)}
                    </td>
                    <td class="number">{count(worker.active)}</td>
                    <td class="number">{count(worker.slots)}</td>
                    <td class="number">
                      {count(worker.lifetime)}
                      {worker.max_lifetime === null ? "" : ` of ${count(worker.max_lifetime)}`}
                    </td>
                    <td class="number">
                      <button
                        type="button"
                        class="button tiny"
                        disabled={stale || worker.state === "draining"}
                        aria-label={`Drain ${visible(worker.name)}`}
                        onClick={() => onAsk(drain(worker))}
                      >
                        Drain
                      </button>
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </section>
      )}
    </section>
  );
}

function Sessions({ sessions, onAsk }: { sessions: GridSession[]; onAsk: (asked: Asked) => void }): JSX.Element {
  const { stale } = useStoreOn((store) => String(store.stale));
  const end = ({ id, worker }: GridSession): Asked => ({
    title: "End a session",
    text: `The browser of ${shorten(id)} on ${visible(worker)} is closed, and its client is disconnected.`,
    button: "End it",
    act: () => endSession(id),
  });
  return (
    <section class="card" aria-labelledby="grid-sessions">
      <header>
        <h2 id="grid-sessions">Sessions</h2>
      </header>
      {sessions.length === 0 ? (
        <p class="empty">No client is connected.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
        <section class="scroll" tabIndex={0} aria-label="Sessions of the grid">
          <table>
            <thead>
              <tr>
                <th scope="col">Session</th>
                <th scope="col">State</th>
                <th scope="col">Worker</th>
                <th scope="col">Key</th>
                <th scope="col" class="number">
                  Age
                </th>
                <th scope="col">
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {sessions.map((session) => (
                <tr key={session.id}>
                  <th scope="row" class="name">
                    <code>{visible(session.id)}</code>
                  </th>
                  <td>{session.state}</td>
                  <td>{visible(session.worker)}</td>
                  <td>{session.key === "" ? <span class="soft">none</span> : visible(session.key)}</td>
                  <td class="number">{clock(session.age_s)}</td>
                  <td class="number">
                    <button
                      type="button"
                      class="button tiny danger"
                      disabled={stale || session.state === "ending"}
                      aria-label={`End session ${visible(session.id)}`}
                      onClick={() => onAsk(end(session))}
                    >
                      End
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </section>
  );
}

function Ask({ asked, onClose }: { asked: NonNullable<Asked>; onClose: () => void }): JSX.Element {
  const [problem, setProblem] = useState<string | null>(null);
  const act = (): void => {
    asked.act().then(onClose, (error: Error) => setProblem(error.message));
  };
  return (
    <Dialog title={asked.title} onClose={onClose}>
      <p>{asked.text}</p>
      <p class="problem" role="alert">
        {problem === null ? "" : visible(problem)}
      </p>
      <button type="button" class="button danger" onClick={act}>
        {asked.button}
      </button>
    </Dialog>
  );
}
