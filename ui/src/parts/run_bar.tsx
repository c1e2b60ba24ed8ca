// The bar on top: state, name, target, load in words, the plan as a shape, and the actions.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as api from "../api";
import type { Plan, State } from "../feed/messages";
import { type Chip, capitalized, clock, verdictChip, visible } from "../format";
import { type Store, store, useStoreOn } from "../store";
import { Acknowledged, useChange } from "./change";
import { Icon } from "./icons";
import { LiveText } from "./live_text";
import { Panel } from "./panel";
import { loadText, peakLevel } from "./profile";

/** The state of the run in one word. */
export function chipOf(state: State | null, stale: boolean): Chip {
  if (!state?.plan) return { text: state?.phase ? "No run" : "Connecting", tone: "", icon: "dash" };
  if (state.result) return verdictChip(state.result.verdict);
  const word = state.paused
    ? "paused"
    : { IDLE: "over", PREPARING: "preparing", RUNNING: "running", STOPPING: "stopping" }[state.phase ?? "IDLE"];
  if (stale) return { text: `Was ${word}`, tone: "warn", icon: "errors" };
  return { text: capitalized(word), tone: state.paused ? "warn" : "run", icon: state.paused ? "pause" : "play" };
}

/** Changes with the state of the run. */
const runState = ({ state, stale }: Store): unknown => (stale ? "stale" : state);

export function RunBar(): JSX.Element {
  const { state, stale } = useStoreOn(runState);
  const plan = state?.plan;
  const chip = chipOf(state, stale);
  return (
    <header class="run-bar">
      <div class="what">
        <div>
          <span class={`chip ${chip.tone}`}>
            <Icon name={chip.icon} small />
            {chip.text}
          </span>
          <h1>{plan ? visible(plan.name) : "Squall"}</h1>
          <span class="only-narrow">
            <Age />
          </span>
        </div>
        <p>
          {plan ? (
            <>
              <code>{visible(plan.target)}</code> · {state?.paused ? "paused" : loadText(plan)} · run {state?.epoch}
            </>
          ) : (
            state?.phase && "Nothing has run in this fleet yet"
          )}
        </p>
      </div>
      {plan ? <PlanShape plan={plan} /> : null}
      <Actions />
    </header>
  );
}

/** The workers whose report of the next second is missing, if it is known. */
function waitedFor(): string {
  const next = store.data.lastSecond + 1;
  const behind = (store.fleet?.workers ?? []).filter(
    ({ present, state, second }) => present && state === "working" && second && second[0] < next,
  );
  return behind.length > 0 && behind.length < 4 ? `: waiting for ${behind.map(({ id }) => visible(id)).join(", ")}` : "";
}

const isLate = ({ stale, dataAge }: Store): boolean => stale || (dataAge ?? 0) > 3;

function ageText(): string {
  const { dataAge, stale, connection } = store;
  const silence = connection.silence(Date.now());
  if (silence === null) return "Connecting";
  if (stale) return `Data ${Math.round(silence / 1000)} s old`;
  return dataAge === null ? "Connected" : `Data ${dataAge.toFixed(1)} s old${isLate(store) ? waitedFor() : ""}`;
}

/** How old the data is. */
export function Age(): JSX.Element {
  return (
    <span class={isLate(useStoreOn(isLate)) ? "age late" : "age"}>
      <i class="dot" />
      <LiveText text={ageText} />
    </span>
  );
}

const [WIDTH, HEIGHT] = [190, 32];

function PlanShape({ plan }: { plan: Plan }): JSX.Element {
  const duration = Math.max(plan.duration_s, 1);
  /** In steps of half a pixel. */
  const doneWidth = ({ elapsedSeconds }: Store): number => Math.round(Math.min(1, (elapsedSeconds ?? 0) / duration) * WIDTH * 2) / 2;
  const elapsed = useStoreOn(doneWidth).elapsedSeconds ?? 0;
  // The end of a paused run is not known.
  const open = plan.until_stopped || store.state?.paused === true;
  const peak = peakLevel(plan.stages);
  const y = (level: number): number => HEIGHT - 1 - (level / peak) * (HEIGHT - 4);
  let start = 0;
  const points = plan.stages.flatMap(([seconds, from, to]) => {
    const [left, right] = [(start / duration) * WIDTH, ((start + seconds) / duration) * WIDTH];
    start += seconds;
    return [`${left.toFixed(1)} ${y(from).toFixed(1)}`, `${right.toFixed(1)} ${y(to).toFixed(1)}`];
  });
  const outline = `M0 ${HEIGHT - 1}L${points.join("L")}L${WIDTH} ${HEIGHT - 1}z`;
  const done = open ? WIDTH : doneWidth(store);
  return (
    <div class="plan">
      {open ? null : (
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`Planned load, ${clock(elapsed)} of ${clock(duration)} done`}
        >
          <clipPath id="plan-done">
            <rect width={done} height={HEIGHT} />
          </clipPath>
          <path class="all" d={outline} />
          <path class="done" d={outline} clip-path="url(#plan-done)" />
          <path class="now" d={`M${done} 0V${HEIGHT}`} />
        </svg>
      )}
      <span>
        <b>
          <LiveText sized text={() => clock(store.elapsedSeconds ?? 0)} />
        </b>
        {open ? null : <span class="soft"> / {clock(duration)}</span>}
      </span>
    </div>
  );
}

function Actions(): JSX.Element | null {
  const { state, stale } = useStoreOn(runState);
  const [panel, setPanel] = useState<"load" | "stop" | null>(null);
  const change = useChange();
  const plan = state?.plan;
  if (!plan) return null;
  if (state.result) return <ResultActions epoch={state.epoch ?? 0} savedAs={state.result.saved_as} />;
  const off = stale || !state.store_up;
  const steady = off || state.phase !== "RUNNING";
  const pauseOrResume = (): void => {
    void (state.paused ? change.send("resumed", api.resume) : change.send("paused", api.pause));
  };
  return (
    <div class="actions">
      <button
        type="button"
        class="button"
        disabled={steady || state.paused === true}
        onClick={() => setPanel("load")}
        aria-label="Change load"
      >
        <Icon name="change" />
        <span class="label">Change load</span>
      </button>
      <button
        type="button"
        class="button"
        id="pause"
        disabled={steady}
        onClick={pauseOrResume}
        aria-label={state.paused ? "Resume" : "Pause"}
      >
        <Icon name={state.paused ? "play" : "pause"} />
        <span class="label">{state.paused ? "Resume" : "Pause"}</span>
      </button>
      <button
        type="button"
        class="button danger"
        disabled={off || state.phase === "IDLE"}
        onClick={() => setPanel("stop")}
        aria-label="Stop"
      >
        <Icon name="stop" />
        <span class="label">Stop</span>
      </button>
      {change.sent ? <Acknowledged sent={change.sent} /> : null}
      {change.problem && panel === null ? (
        <p class="problem" role="alert">
          {change.problem}
        </p>
      ) : null}
      {panel === "load" ? (
        <Panel show={({ ChangeLoad }) => <ChangeLoad plan={plan} change={change} onClose={() => setPanel(null)} />} />
      ) : null}
      {panel === "stop" ? <Panel show={({ StopRun }) => <StopRun change={change} onClose={() => setPanel(null)} />} /> : null}
    </div>
  );
}

function ResultActions({ epoch, savedAs }: { epoch: number; savedAs: string | null }): JSX.Element {
  const [problem, setProblem] = useState<string | null>(null);
  const again = (): void => {
    setProblem(null);
    api.repeatTest(epoch).catch((error: Error) => setProblem(error.message));
  };
  return (
    <div class="actions">
      <a class="button" href={`/api/v1/tests/${Number(epoch)}/report?view=true`} target="_blank" rel="noreferrer" aria-label="Open report">
        <Icon name="page" />
        <span class="label">Open report</span>
      </a>
      <a class="button" href={`/api/v1/tests/${Number(epoch)}/report`} download aria-label="Report">
        <Icon name="download" />
        <span class="label">Report</span>
      </a>
      <a class="button" href={`/api/v1/tests/${Number(epoch)}`} download={`squall-result-${Number(epoch)}.json`} aria-label="JSON">
        <Icon name="download" />
        <span class="label">JSON</span>
      </a>
      <a class="button" href={`#/compare?new=${encodeURIComponent(savedAs ?? "")}`} aria-label="Compare with…">
        <Icon name="compare" />
        <span class="label">Compare with…</span>
      </a>
      {store.fleet?.workers.some((worker) => worker.present) ? (
        <button type="button" class="button" disabled={store.stale} onClick={again} aria-label="Run again">
          <Icon name="plus" />
          <span class="label">Run again</span>
        </button>
      ) : null}
      {problem ? (
        <p class="problem" role="alert">
          {problem}
        </p>
      ) : null}
    </div>
  );
}
