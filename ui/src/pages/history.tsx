// The runs that the server keeps: search, filter, compare, annotate, download, delete.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { count, length, percent, tableMs, three, visible, withoutZeros } from "../format";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { go, setQuery, useRoute } from "../route";
import { ALL_RUNS, BASELINE, dateText, deleteRun, fetchRuns, type Run, type RunList, runChip, runPath, SOME_RUNS, setNote } from "../runs";
import { store, useStoreOn } from "../store";

const MIB = 2 ** 20;
const POLL_S = 5;

const VERDICTS = [
  ["", "All verdicts"],
  ["passed", "Passed"],
  ["threshold_breached", "Threshold breached"],
  ["interrupted", "Interrupted"],
  ["schedule_missed", "Schedule missed"],
  ["target_unreachable", "Target unreachable"],
  ["nothing_measured", "Nothing measured"],
] as const;

type Asked = { what: "note" | "delete"; run: Run } | null;

export default function History(): JSX.Element {
  const { query } = useRoute();
  const [search, verdict] = [query.get("filter") ?? "", query.get("verdict") ?? ""];
  // A run that ends is in the list a moment later.
  const { state } = useStoreOn((store) => String(store.state?.phase));
  const [changes, setChanges] = useState(0);
  const [most, setMost] = useState(SOME_RUNS);
  const question = JSON.stringify([search, verdict, state?.phase, changes, most]);
  const { value, problem } = usePolled(question, POLL_S, () => fetchRuns(search, verdict, most));
  // The list of another search stays until the answer is there, so that its field does.
  const known = useRef<RunList | null>(null);
  known.current = value ?? known.current;
  const list = known.current;
  return (
    <>
      {problem ? (
        <p class="band bad" role="alert">
          {problem}
        </p>
      ) : null}
      {list ? (
        <Runs list={list} search={search} verdict={verdict} onChange={() => setChanges(changes + 1)} onAll={() => setMost(ALL_RUNS)} />
      ) : null}
      {list || problem ? null : <p class="empty">Loading…</p>}
    </>
  );
}

interface RunsProps {
  list: RunList;
  search: string;
  verdict: string;
  /** A note was written, or a run deleted. */
  onChange: () => void;
  onAll: () => void;
}

function Runs({ list, search, verdict, onChange, onAll }: RunsProps): JSX.Element {
  const [ticked, setTicked] = useState<string[]>([]);
  const [asked, setAsked] = useState<Asked>(null);
  if (list.folder === null || list.total === 0) return <NoRuns kept={list.folder !== null} />;
  const shown = new Set(list.runs.map((run) => run.id));
  const chosen = ticked.filter((id) => shown.has(id));
  return (
    <section class="card" aria-labelledby="history-title">
      <header>
        <h2 id="history-title">Runs</h2>
        <span class="soft">{sizeText(list)}</span>
        <div class="right">
          <input
            id="filter"
            class="field"
            type="search"
            placeholder="Search ( / )"
            aria-label="Search runs"
            value={search}
            onInput={(event) => setQuery("filter", event.currentTarget.value || null)}
          />
          <select
            class="field"
            aria-label="Verdict"
            value={verdict}
            onChange={(event) => setQuery("verdict", event.currentTarget.value || null)}
          >
            {VERDICTS.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
          <CompareButton chosen={chosen} runs={list.runs} hasBaseline={list.has_baseline === true} />
        </div>
      </header>
      {list.runs.length === 0 ? <p class="empty">None of the {count(list.total)} runs matches.</p> : null}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="Runs">
        <table class="runs">
          <thead>
            <tr>
              <th scope="col">Run</th>
              <th scope="col">Started</th>
              <th scope="col">Load</th>
              <th scope="col" class="number">
                Length
              </th>
              <th scope="col">Verdict</th>
              <th scope="col" class="number">
                Requests
              </th>
              <th scope="col" class="number">
                p99 ms
              </th>
              <th scope="col" class="number">
                Errors
              </th>
              <th scope="col">Note</th>
              <th scope="col">Download</th>
              <th scope="col">
                <span class="hidden-text">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.runs.map((run) => (
              <RunRow
                key={run.id}
                run={run}
                ticked={chosen.includes(run.id)}
                onTick={(on) => setTicked(on ? [...chosen.slice(-1), run.id] : chosen.filter((id) => id !== run.id))}
                onAsk={(what) => setAsked({ what, run })}
              />
            ))}
          </tbody>
        </table>
      </section>
      {(list.matching ?? 0) > list.runs.length ? (
        <p class="empty">
          {count(list.runs.length)} of {count(list.matching ?? 0)} runs are shown.{" "}
          <button type="button" class="link" onClick={onAll}>
            Show all
          </button>
        </p>
      ) : null}
      {list.skipped.length > 0 ? (
        <p class="empty">
          Skipped, because they are not results:{" "}
          {list.skipped.map(({ file, reason }) => `${visible(file)} (${visible(reason)})`).join(", ")}
        </p>
      ) : null}
      {asked ? <Ask asked={asked} onDone={onChange} onClose={() => setAsked(null)} /> : null}
    </section>
  );
}

function sizeText({ total, folder, used_bytes = 0, limit_bytes = 0 }: RunList): string {
  const limit = limit_bytes > 0 && limit_bytes < 2 ** 50 ? ` of ${count(limit_bytes / MIB)} MiB; the oldest leave first` : " MiB";
  return `${count(total)} in ${visible(folder ?? "")}, ${withoutZeros(three(used_bytes / MIB))}${limit}`;
}

/** The older of two runs is the base. One run is compared with the baseline. */
function CompareButton({ chosen, runs, hasBaseline }: { chosen: string[]; runs: Run[]; hasBaseline: boolean }): JSX.Element {
  const ordered = runs.filter((run) => chosen.includes(run.id)).sort((a, b) => a.started_unix_ms - b.started_unix_ms);
  const withBaseline = ordered.length === 1 && hasBaseline;
  const [base, newer] = withBaseline ? [BASELINE, ordered[0]?.id] : [ordered[0]?.id, ordered[1]?.id];
  const compare = (): void => {
    const query = new URLSearchParams({ base: base ?? "", new: newer ?? "" });
    go(`compare?${query}`);
  };
  return (
    <button type="button" class="button primary" disabled={!base || !newer} onClick={compare}>
      {withBaseline ? "Compare with the baseline" : "Compare"}
    </button>
  );
}

interface RowProps {
  run: Run;
  ticked: boolean;
  onTick: (on: boolean) => void;
  onAsk: (what: "note" | "delete") => void;
}

function RunRow({ run, ticked, onTick, onAsk }: RowProps): JSX.Element {
  const chip = runChip(run);
  return (
    <tr>
      <th scope="row" class="name">
        <label class="tick">
          <input type="checkbox" checked={ticked} onChange={(event) => onTick(event.currentTarget.checked)} />
          <span class="hidden-text">Compare </span>
          {visible(run.name)}
        </label>
      </th>
      <td title={run.started}>{dateText(run.started_unix_ms)}</td>
      <td class="load">
        <span>{visible(run.load)}</span>
      </td>
      <td class="number">{length(Math.round(run.active_s * 10) / 10)}</td>
      <td>
        <span class={`chip ${chip.tone}`}>
          <Icon name={chip.icon} small />
          {chip.text}
        </span>
      </td>
      <td class="number">{count(run.requests)}</td>
      <td class="number">{tableMs(run.p99_ms * 1000)}</td>
      <td class={run.errors === 0 ? "number zero" : "number"}>{run.errors === 0 ? "0" : `${percent(run.error_rate)} %`}</td>
      <td class="message">{run.note ? <ForeignText text={run.note} /> : null}</td>
      <td class="links">
        <a href={runPath(run.id, "/report?view=true")} target="_blank" rel="noreferrer">
          Report
        </a>
        <a href={runPath(run.id, "/report")} download>
          HTML
        </a>
        <a href={runPath(run.id, "/result")} download>
          JSON
        </a>
        <a href={runPath(run.id, "/histograms")} download>
          HDR
        </a>
      </td>
      <td class="links">
        {run.can_start && !store.resultsOnly ? (
          <button type="button" class="link" onClick={() => go(`start?${new URLSearchParams({ scenario: `run:${run.id}` })}`)}>
            Run again<span class="hidden-text"> {visible(run.name)}</span>
          </button>
        ) : null}
        <button type="button" class="link" onClick={() => onAsk("note")}>
          Note<span class="hidden-text"> on {visible(run.name)}</span>
        </button>
        <button type="button" class="link" onClick={() => onAsk("delete")}>
          Delete<span class="hidden-text"> {visible(run.name)}</span>
        </button>
      </td>
    </tr>
  );
}

function Ask({ asked, onDone, onClose }: { asked: NonNullable<Asked>; onDone: () => void; onClose: () => void }): JSX.Element {
  const { what, run } = asked;
  const [note, setText] = useState(run.note);
  const [problem, setProblem] = useState<string | null>(null);
  const act = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await (what === "note" ? setNote(run.id, note) : deleteRun(run.id));
      onDone();
      onClose();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Dialog title={what === "note" ? "Note" : "Delete a run"} onClose={onClose}>
      <form class="ask" onSubmit={(event) => void act(event)}>
        <p>
          {visible(run.name)}, {dateText(run.started_unix_ms)}
        </p>
        {what === "note" ? (
          <label>
            What should be known about this run
            <textarea rows={3} maxLength={4000} value={note} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
        ) : (
          <p>Its result and its note are deleted. This cannot be undone.</p>
        )}
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class={what === "note" ? "button primary" : "button danger"}>
          {what === "note" ? "Save" : "Delete"}
        </button>
      </form>
    </Dialog>
  );
}

export function NoRuns({ kept }: { kept: boolean }): JSX.Element {
  return (
    <section class="card start">
      <h2>{kept ? "No runs yet" : "This server keeps no runs"}</h2>
      <p>{kept ? "Every run that ends is kept here." : "Start it with --history, and every run that ends is kept:"}</p>
      {kept ? null : <pre>squall up --history</pre>}
      <p>A run of the command line is kept in the same folder:</p>
      <pre>squall run shop.toml --history</pre>
    </section>
  );
}
