// Starts a run: a scenario that the orchestrator offers, with a form made of its parameters, or a run of
// the history again. The server checks every change of the form and says what would run.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api";
import type { StartOrder } from "../api_types";
import { type CheckedRun, checkScenario, fetchScenario, fetchScenarios, type ScenarioDetail, startScenario } from "../control_api";
import { visible } from "../format";
import { copyText } from "../parts/copy_text";
import { lines } from "../parts/lines";
import { paramValue } from "../parts/param_value";
import { loadText } from "../parts/profile";
import { ProfileShape } from "../parts/profile_shape";
import { Segments } from "../parts/segments";
import { go, setQuery, useRoute } from "../route";
import { ALL_RUNS, dateText, fetchRuns, type Run, repeatRun } from "../runs";
import { type Store, useStoreOn } from "../store";

/** The form is checked this long after the latest change. */
const CHECK_MS = 400;
/** Runs of the history that the list offers. */
const RECENT = 20;
const RUN_PREFIX = "run:";

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Whether it is known that no worker can take a run. */
const withoutWorker = ({ fleet }: Pick<Store, "fleet">): boolean => fleet !== null && !fleet.workers.some(({ present }) => present);

export default function Start(): JSX.Element {
  const { state, stale, access, fleet } = useStoreOn(
    (store) => `${store.state?.phase} ${store.stale} ${store.access} ${withoutWorker(store)}`,
  );
  const [names, setNames] = useState<string[] | null>(null);
  const [runs, setRuns] = useState<Run[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const wanted = useRoute().query.get("scenario");
  useEffect(() => {
    setProblem(null);
    fetchScenarios().then(
      ({ scenarios }) => setNames(scenarios),
      (error: unknown) => setProblem(messageOf(error)),
    );
    // A server without a history has no runs to offer.
    fetchRuns("", "", ALL_RUNS).then(
      (list) => setRuns(list.runs.filter((run) => run.can_start).filter(({ id }, place) => place < RECENT || RUN_PREFIX + id === wanted)),
      () => undefined,
    );
  }, [access]);
  const busy = state?.phase !== undefined && state.phase !== "IDLE";
  const chosen = wanted ?? names?.[0] ?? (runs[0] ? RUN_PREFIX + runs[0].id : "");
  const run = runs.find(({ id }) => RUN_PREFIX + id === chosen);
  const alone = withoutWorker({ fleet });
  const off = busy || stale || alone;
  return (
    <section class="card start">
      <h2>Start a run</h2>
      {problem ? (
        <p class="problem" role="alert">
          {visible(problem)}
        </p>
      ) : null}
      {alone && !busy ? <p role="status">This fleet has no worker that could make the load.</p> : null}
      {busy ? <p role="status">A run is under way. Stop it before you start another one.</p> : null}
      {names?.length === 0 && runs.length === 0 ? <WithoutScenario /> : null}
      {names && (names.length > 0 || runs.length > 0) ? (
        <>
          <label>
            Scenario
            <select class="field long" value={chosen} onChange={(event) => setQuery("scenario", event.currentTarget.value)}>
              {names.map((name) => (
                <option key={name} value={name}>
                  {visible(name)}
                </option>
              ))}
              {runs.length > 0 ? (
                <optgroup label="A run of the history again">
                  {runs.map(({ id, name, started_unix_ms }) => (
                    <option key={id} value={RUN_PREFIX + id}>
                      {`${visible(name)}, ${dateText(started_unix_ms)}`}
                    </option>
                  ))}
                </optgroup>
              ) : null}
            </select>
          </label>
          {run ? <Again run={run} off={off} /> : <Scenario key={chosen} name={chosen} off={off} />}
        </>
      ) : null}
    </section>
  );
}

function WithoutScenario(): JSX.Element {
  return (
    <>
      <p>
        This orchestrator offers no scenario: start it with <code>--scenarios DIR</code> or <code>--scenario FILE</code>. A run of any file
        starts from the command line:
      </p>
      <pre>squall test start shop.toml --users 50 --for 5m --api {window.location.origin}</pre>
    </>
  );
}

function Again({ run, off }: { run: Run; off: boolean }): JSX.Element {
  const [problem, setProblem] = useState<string | null>(null);
  const start = (): void => {
    repeatRun(run.id).then(
      () => go("live"),
      (error: unknown) => setProblem(messageOf(error)),
    );
  };
  return (
    <>
      <p>
        {visible(run.name)} against <code>{visible(run.target)}</code>: {visible(run.load)}, as it was on {dateText(run.started_unix_ms)}.
      </p>
      <p class="problem" role="alert">
        {problem}
      </p>
      <div>
        <button type="button" class="button primary" disabled={off} onClick={start}>
          Start
        </button>
      </div>
    </>
  );
}

function Scenario({ name, off }: { name: string; off: boolean }): JSX.Element {
  const [detail, setDetail] = useState<ScenarioDetail | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    fetchScenario(name).then(setDetail, (error: unknown) => setProblem(messageOf(error)));
  }, [name]);
  if (problem)
    return (
      <pre class="problem" role="alert">
        {lines(problem)}
      </pre>
    );
  return detail ? <Form detail={detail} off={off} /> : <p class="soft">Loading…</p>;
}

type ScenarioParam = ScenarioDetail["params"][number];
type LoadKind = "scenario" | "users" | "rate";

interface Fields {
  kind: LoadKind;
  target: string;
  users: string;
  rate: string;
  duration: string;
  ramp_up: string;
  thresholds: string;
  params: Record<string, string>;
  /** Parameters that the scenario does not declare, `NAME=VALUE` in each line. */
  more_params: string;
}

/** What the person asks for; empty fields stay as the scenario has them. */
function orderOf(
  { kind, target, users, rate, duration, ramp_up, thresholds, params, more_params }: Fields,
  known: ScenarioParam[],
): StartOrder {
  const text = (value: string): string | null => value.trim() || null;
  const linesOf = (value: string): string[] => value.split("\n").flatMap((line) => line.trim() || []);
  const given = known.flatMap(({ name, default: standard }) => {
    const value = params[name] ?? "";
    return value === "" ? [] : [[name, paramValue(value, standard)]];
  });
  const more = linesOf(more_params).map((line): [string, unknown] => {
    const [name = "", ...value] = line.split("=");
    return [name.trim(), paramValue(value.join("=").trim(), null)];
  });
  return {
    target: text(target),
    users: kind === "users" ? text(users) : null,
    rate: kind === "rate" ? text(rate) : null,
    duration: kind === "scenario" ? null : text(duration),
    ramp_up: kind === "scenario" ? null : text(ramp_up),
    thresholds: linesOf(thresholds),
    params: Object.fromEntries([...more, ...given]),
  };
}

interface Check {
  /** The order that the answer is about. */
  order: string;
  run: CheckedRun | null;
  problem: string | null;
  field: string | null;
}

function useCheck(name: string, order: StartOrder): Check | null {
  const [check, setCheck] = useState<Check | null>(null);
  const key = JSON.stringify(order);
  useEffect(() => {
    let ended = false;
    const timer = window.setTimeout(() => {
      checkScenario(name, order).then(
        (run) => ended || setCheck({ order: key, run, problem: null, field: null }),
        (error: unknown) => {
          const field = error instanceof ApiError ? error.field : null;
          if (!ended) setCheck({ order: key, run: null, problem: messageOf(error), field });
        },
      );
    }, CHECK_MS);
    return () => {
      ended = true;
      window.clearTimeout(timer);
    };
  }, [name, key]);
  return check;
}

function Form({ detail, off }: { detail: ScenarioDetail; off: boolean }): JSX.Element {
  const { plan } = detail;
  const [fields, setFields] = useState<Fields>({
    kind: "scenario",
    target: "",
    users: "10",
    rate: "100",
    duration: "5m",
    ramp_up: "",
    thresholds: "",
    params: {},
    more_params: "",
  });
  const [refusal, setRefusal] = useState<string | null>(null);
  const [sending, setSending] = useState(false);
  const order = orderOf(fields, detail.params);
  const check = useCheck(detail.name, order);
  const current = check?.order === JSON.stringify(order) ? check : null;
  const set = (part: Partial<Fields>): void => setFields({ ...fields, ...part });
  const problemAt = (...names: string[]): JSX.Element | null =>
    current?.problem && names.includes(current.field ?? "") ? (
      <p class="problem" role="alert">
        {lines(current.problem)}
      </p>
    ) : null;
  // The API names the field `params`, and its message the parameter.
  const refused = current?.field === "params" && current.problem ? paramIn(current.problem, detail.params) : null;
  const known = ["target", "users", "rate", "duration", "ramp_up", "thresholds", "params"];
  const start = async (event: Event): Promise<void> => {
    event.preventDefault();
    setRefusal(null);
    setSending(true);
    try {
      await startScenario(detail.name, order);
      go("live");
    } catch (error) {
      setRefusal(messageOf(error));
    } finally {
      setSending(false);
    }
  };
  const field = (label: string, name: "target" | "users" | "rate" | "duration" | "ramp_up", hint: string): JSX.Element => (
    <label>
      {label}
      <input
        type="text"
        value={fields[name]}
        placeholder={hint}
        required={name === "target" && detail.target === null}
        onInput={(event) => set({ [name]: event.currentTarget.value })}
      />
      {problemAt(name)}
    </label>
  );
  return (
    <form onSubmit={(event) => void start(event)}>
      {field("Target", "target", detail.target ?? "https://shop.example")}
      <div class="load">
        <Segments
          label="Load"
          value={fields.kind}
          options={[
            ["scenario", "Load of the scenario"],
            ["users", "Users"],
            ["rate", "Rate"],
          ]}
          onChoose={(kind) => set({ kind })}
        />
      </div>
      {fields.kind === "scenario" ? null : (
        <div class="row">
          {fields.kind === "users" ? field("Virtual users", "users", "10") : field("Starts per second", "rate", "100, 90/m")}
          {field("Length", "duration", "30s, 5m, 1h30m")}
          {field("Ramp-up", "ramp_up", "none")}
        </div>
      )}
      {detail.params.map((param) => (
        <Param
          key={param.name}
          param={param}
          value={fields.params[param.name] ?? ""}
          onInput={(value) => set({ params: { ...fields.params, [param.name]: value } })}
          problem={refused === param.name ? problemAt("params") : null}
        />
      ))}
      {detail.accepts_any_param ? (
        <label>
          Further parameters, one NAME=VALUE in a line
          <textarea rows={2} value={fields.more_params} onInput={(event) => set({ more_params: event.currentTarget.value })} />
        </label>
      ) : null}
      {refused === null ? problemAt("params") : null}
      <label>
        More thresholds, one in a line
        <textarea
          rows={2}
          value={fields.thresholds}
          placeholder="p99 < 250ms"
          onInput={(event) => set({ thresholds: event.currentTarget.value })}
        />
        {plan.thresholds.length > 0 ? <span class="soft">The scenario has {plan.thresholds.map(visible).join(", ")}.</span> : null}
        {problemAt("thresholds")}
      </label>
      <WhatRuns check={current} />
      {current?.problem && !known.includes(current.field ?? "") ? (
        <p class="problem" role="alert">
          {lines(current.problem)}
        </p>
      ) : null}
      <p class="problem" role="alert">
        {refusal === null ? "" : lines(refusal)}
      </p>
      <button type="submit" class="button primary" disabled={off || sending || !current?.run}>
        {sending ? "Starting…" : "Start"}
      </button>
    </form>
  );
}

/** The parameter with which a refusal begins, if it is one that has a field. */
function paramIn(problem: string, params: ScenarioParam[]): string | null {
  const named = /^(?:--param )?`?([^\s`:=]+)/.exec(problem)?.[1];
  return params.find(({ name }) => name === named)?.name ?? null;
}

interface ParamProps {
  param: ScenarioParam;
  value: string;
  onInput: (value: string) => void;
  problem: JSX.Element | null;
}

/** A field by the type of the default. */
function Param({ param, value, onInput, problem }: ParamProps): JSX.Element {
  const { default: standard } = param;
  const hint = standard === null || standard === undefined ? "" : typeof standard === "string" ? standard : JSON.stringify(standard);
  const id = `param-${param.name}`;
  const typed = { id, required: param.required, placeholder: visible(hint), value };
  return (
    <label for={id}>
      {visible(param.name)}
      {param.annotation ? <span class="soft"> {visible(param.annotation)}</span> : null}
      {typeof standard === "boolean" ? (
        <select id={id} class="field" value={value} onChange={(event) => onInput(event.currentTarget.value)}>
          <option value="">{`${standard} (as in the scenario)`}</option>
          <option value={String(!standard)}>{String(!standard)}</option>
        </select>
      ) : typeof standard === "number" ? (
        <input type="number" step="any" {...typed} onInput={(event) => onInput(event.currentTarget.value)} />
      ) : (
        <input type="text" {...typed} onInput={(event) => onInput(event.currentTarget.value)} />
      )}
      {problem}
    </label>
  );
}

/** The plan as a shape, in words and as a command line. */
function WhatRuns({ check }: { check: Check | null }): JSX.Element | null {
  const [copied, setCopied] = useState<boolean | null>(null);
  const run = check?.run;
  useEffect(() => setCopied(null), [run?.command]);
  if (!run) return check ? null : <p class="soft">Checking…</p>;
  const command = `${run.command} --api ${window.location.origin}`;
  const { plan } = run;
  const { stages } = plan;
  return (
    <div class="what-runs">
      <ProfileShape plan={plan} />
      <p>
        <b>{visible(plan.name)}</b> against <code>{visible(plan.target)}</code>,{" "}
        {loadText({ ...plan, stages: stages as [number, number, number][] })}
        {plan.thresholds.length === 0 ? "" : `, ${plan.thresholds.length} ${plan.thresholds.length === 1 ? "threshold" : "thresholds"}`}.
      </p>
      <details>
        <summary>The check of the scenario</summary>
        <pre>{lines(run.description.trim())}</pre>
      </details>
      <p class="soft">The same from the command line:</p>
      <pre>{visible(command)}</pre>
      <button type="button" class="button tiny" onClick={() => void copyText(command).then(setCopied)}>
        {copied === null ? "Copy" : copied ? "Copied" : "Cannot copy: select the line"}
      </button>
    </div>
  );
}
