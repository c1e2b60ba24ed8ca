// What a page of the run shows before there was one: how to start a worker and a run.

import type { JSX } from "preact";
import { count } from "../format";
import { useStore } from "../store";

export function FirstSteps(): JSX.Element {
  const { fleet, workerCommand } = useStore();
  const workers = fleet?.workers.filter((worker) => worker.present).length;
  const api = window.location.origin;
  return (
    <section class="card start">
      <h2>No run yet</h2>
      {workers === 0 ? (
        <>
          <p>
            This fleet has no workers. Start some
            {workerCommand?.includes("…") ? ", with the password of the Redis server in place of …" : ""}:
          </p>
          <pre>{workerCommand ?? "squall worker --redis URL --fleet NAME"}</pre>
        </>
      ) : workers === undefined ? null : (
        <p>
          {count(workers)} {workers === 1 ? "worker is" : "workers are"} ready.
        </p>
      )}
      <p>Start a run from the command line:</p>
      <pre>
        squall test start shop.toml --users 50 --for 5m --api {api}
        {"\n"}
        squall test start shop.toml --rate 200 --for 5m --api {api}
        {"\n"}
        squall test status --watch --api {api}
      </pre>
      <p>
        Or <a href="#/start">start one here</a>.
      </p>
    </section>
  );
}
