// Changes of the run: a request, then how many workers have taken it up. A refusal appears where the
// person acted, in the API's words.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import type { Plan } from "../feed/messages";
import { count, three } from "../format";
import { store, useStore } from "../store";
import { Dialog } from "./dialog";
import { levelAt, peakLevel } from "./profile";

/** After this time the page names the workers that have not answered. */
const ANSWER_MS = 5000;

export interface Sent {
  what: string;
  revision: number;
  at: number;
}

/** How many workers have read the change. */
export function Acknowledged({ sent }: { sent: Sent }): JSX.Element {
  const { fleet } = useStore();
  const workers = (fleet?.workers ?? []).filter((worker) => worker.present && worker.state !== "unable");
  const behind = workers.filter((worker) => (worker.revision ?? 0) < sent.revision);
  const done = workers.length - behind.length;
  const slow = behind.length > 0 && Date.now() - sent.at > ANSWER_MS;
  return (
    <p class="acknowledged" role="status">
      {sent.what}: {done} of {workers.length} {workers.length === 1 ? "worker" : "workers"}
      {slow ? `; no answer from ${behind.map((worker) => worker.id).join(", ")}` : ""}
    </p>
  );
}

/** Sends a change and keeps its outcome. */
export function useChange(): {
  sent: Sent | null;
  problem: string | null;
  send: (what: string, request: () => Promise<api.Changed>) => Promise<boolean>;
} {
  const [sent, setSent] = useState<Sent | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const send = async (what: string, request: () => Promise<api.Changed>): Promise<boolean> => {
    setProblem(null);
    try {
      const { revision } = await request();
      setSent({ what, revision, at: Date.now() });
      return true;
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return false;
    }
  };
  useEffect(() => {
    if (!sent) return;
    const timer = window.setTimeout(() => setSent(null), 2 * ANSWER_MS);
    return () => window.clearTimeout(timer);
  }, [sent]);
  return { sent, problem, send };
}

type Change = ReturnType<typeof useChange>;

export function ChangeLoad({ plan, change, onClose }: { plan: Plan; change: Change; onClose: () => void }): JSX.Element {
  useStore();
  const now = levelAt(plan.stages, store.elapsedSeconds ?? 0) ?? 0;
  const [edited, setEdited] = useState<number | null>(null);
  const stages = JSON.stringify(plan.stages);
  const [opened] = useState(stages);
  const byRate = plan.driven_by === "rate";
  const unit = byRate ? "starts per second" : "users";
  const value = edited ?? now;
  const workers = (store.fleet?.workers ?? []).filter((worker) => worker.present).length;
  const apply = async (event: Event): Promise<void> => {
    event.preventDefault();
    const done = await change.send(`${three(now)} → ${three(value)} ${unit}`, () =>
      byRate ? api.changeRate(value) : api.changeUsers(Math.round(value)),
    );
    if (done) onClose();
  };
  const read = (event: Event): void => setEdited(Number((event.currentTarget as HTMLInputElement).value));
  return (
    <Dialog title="Change load" onClose={onClose}>
      <form onSubmit={(event) => void apply(event)}>
        <p>
          Now: {three(now)} {unit}
          {edited !== null && stages !== opened ? ". Somebody has changed the load meanwhile." : ""}
        </p>
        <label>
          New number of {unit}
          <input type="number" min="0" step={byRate ? "any" : "1"} value={value} onInput={read} aria-describedby="change-problem" />
        </label>
        <input type="range" min="0" max={peakLevel(plan.stages) * 3} value={value} onInput={read} aria-label={`New number of ${unit}`} />
        <p class="soft">
          {three(now)} → {three(value)} {byRate ? "starts per second" : "users"} on {count(workers)} {workers === 1 ? "worker" : "workers"},
          in 0.5 s, until the planned end
        </p>
        <p id="change-problem" class="problem" role="alert">
          {change.problem}
        </p>
        <button type="submit" class="button primary">
          Apply
        </button>
      </form>
    </Dialog>
  );
}

export function StopRun({ change, onClose }: { change: Change; onClose: () => void }): JSX.Element {
  const act = async (abort: boolean): Promise<void> => {
    const what = abort ? "cut off" : "stopping";
    if (await change.send(what, () => api.stop(abort))) onClose();
  };
  return (
    <Dialog title="Stop the run" onClose={onClose}>
      <p>The result is kept in both cases.</p>
      <p class="problem" role="alert">
        {change.problem}
      </p>
      <div class="choices">
        <button type="button" class="button" onClick={() => void act(false)}>
          Finish what is under way
        </button>
        <button type="button" class="button danger" onClick={() => void act(true)}>
          Cut it off
        </button>
      </div>
    </Dialog>
  );
}
