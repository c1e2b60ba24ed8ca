// Starts the orchestrator's scenario: users, how fast they come, and the scenario's own parameters.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { visible } from "../format";
import { go } from "../route";
import { useStore } from "../store";

export default function Start(): JSX.Element {
  const { state } = useStore();
  const [scenario, setScenario] = useState<api.Scenario | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    api.fetchScenario().then(setScenario, (error: Error) => setProblem(error.message));
  }, []);
  const busy = state?.phase !== undefined && state.phase !== "IDLE";
  return (
    <section class="card start">
      <h2>Start a run</h2>
      {problem ? (
        <p class="problem" role="alert">
          {problem}
        </p>
      ) : null}
      {busy ? <p>A run is under way. Stop it before you start another one.</p> : null}
      {scenario && !scenario.configured ? <WithoutScenario /> : null}
      {scenario?.configured ? <Form scenario={scenario} busy={busy} /> : null}
    </section>
  );
}

function WithoutScenario(): JSX.Element {
  return (
    <>
      <p>
        This orchestrator has no scenario of its own: start it with <code>--scenario FILE</code>. A run of any file starts from the command
        line:
      </p>
      <pre>squall test start shop.toml --users 50 --for 5m --api {window.location.origin}</pre>
    </>
  );
}

/** A parameter as the person typed it. Numbers and booleans keep their type. */
function parseValue(text: string): unknown {
  if (text === "true" || text === "false") return text === "true";
  return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function Form({ scenario, busy }: { scenario: api.Scenario; busy: boolean }): JSX.Element {
  const [users, setUsers] = useState(10);
  const [rampSeconds, setRampSeconds] = useState(0);
  const [values, setValues] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState<string | null>(null);
  const [sending, setSending] = useState(false);
  const start = async (event: Event): Promise<void> => {
    event.preventDefault();
    setProblem(null);
    setSending(true);
    const given = Object.entries(values).filter(([, text]) => text !== "");
    const params = Object.fromEntries(given.map(([name, text]) => [name, parseValue(text)]));
    try {
      await api.startTest(users, users > 0 ? Math.round((rampSeconds * 1000) / users) : 0, params);
      go("live");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      setSending(false);
    }
  };
  return (
    <form onSubmit={(event) => void start(event)}>
      <p>
        <code>{visible(scenario.scenario_path ?? "")}</code> · {visible(scenario.vu_class ?? "")}
      </p>
      <label>
        Virtual users
        <input
          type="number"
          min="0"
          max="1000000"
          required
          value={users}
          onInput={(event) => setUsers(Number(event.currentTarget.value))}
        />
      </label>
      <label>
        Ramp in seconds
        <input
          type="number"
          min="0"
          step="any"
          value={rampSeconds}
          onInput={(event) => setRampSeconds(Number(event.currentTarget.value))}
        />
      </label>
      {scenario.params.map((param) => (
        <label key={param.name}>
          {visible(param.name)}
          {param.annotation ? <span class="soft"> {visible(param.annotation)}</span> : null}
          <input
            type="text"
            required={param.required}
            placeholder={param.default === null || param.default === undefined ? "" : String(param.default)}
            value={values[param.name] ?? ""}
            onInput={(event) => setValues({ ...values, [param.name]: event.currentTarget.value })}
          />
        </label>
      ))}
      <p class="soft">
        {users} users{rampSeconds > 0 ? `, one by one within ${rampSeconds} s` : " at once"}, until the run is stopped.
      </p>
      <p class="problem" role="alert">
        {problem}
      </p>
      <button type="submit" class="button primary" disabled={busy || sending}>
        {sending ? "Starting…" : "Start"}
      </button>
    </form>
  );
}
