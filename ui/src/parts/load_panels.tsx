// The panels that change and stop the load. A refusal appears in them, in the API's words.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import * as api from "../api";
import type { Plan } from "../feed/messages";
import { clock, count, levelText } from "../format";
import { store, useStore } from "../store";
import type { Change } from "./change";
import { Dialog } from "./dialog";
import { levelAt, peakLevel } from "./profile";

export function ChangeLoad({ plan, change, onClose }: { plan: Plan; change: Change; onClose: () => void }): JSX.Element {
  useStore();
  const now = levelAt(plan.stages, store.elapsedSeconds ?? 0) ?? 0;
  const [edited, setEdited] = useState<number | null>(null);
  const stages = JSON.stringify(plan.stages);
  const [opened] = useState(stages);
  const byRate = plan.driven_by === "rate";
  const unit = byRate ? "starts per second" : "users";
  const text = byRate ? levelText : (level: number): string => count(level);
  // A ramp does not rewrite the field; another plan does.
  const offered = useMemo(() => (byRate ? Math.round(now * 100) / 100 : Math.round(now)), [stages]);
  const value = edited ?? offered;
  const end = plan.until_stopped ? "the run is stopped" : clock(plan.duration_s);
  const workers = (store.fleet?.workers ?? []).filter((worker) => worker.present).length;
  const apply = async (event: Event): Promise<void> => {
    event.preventDefault();
    const done = await change.send(`${text(now)} → ${text(value)} ${unit}`, () =>
      byRate ? api.changeRate(value) : api.changeUsers(Math.round(value)),
    );
    if (done) onClose();
  };
  const read = (event: Event): void => setEdited(Number((event.currentTarget as HTMLInputElement).value));
  return (
    <Dialog title="Change load" onClose={onClose}>
      <form onSubmit={(event) => void apply(event)}>
        <p>
          Now: {text(now)} {unit}
          {edited !== null && stages !== opened ? ". Somebody has changed the load meanwhile." : ""}
        </p>
        <label>
          New number of {unit}
          <input type="number" min="0" step={byRate ? "any" : "1"} value={value} onInput={read} aria-describedby="change-problem" />
        </label>
        <input type="range" min="0" max={peakLevel(plan.stages) * 3} value={value} onInput={read} aria-label={`New number of ${unit}`} />
        <p class="soft">
          {text(now)} → {text(value)} {unit} on {count(workers)} {workers === 1 ? "worker" : "workers"}, in 0.5 s, until {end}
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
