// The pools of resources: how many are free, which worker holds which, and a form that adds some.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as api from "../api";
import { count, shorten, visible } from "../format";
import { PollProblem } from "../parts/poll_problem";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { setQuery, useRoute } from "../route";
import { useStore } from "../store";

const POLL_S = 2;
const ITEMS = 100;

export default function Resources(): JSX.Element {
  const polled = usePolled("resources", POLL_S, api.fetchResources);
  const { value, problem } = polled;
  const chosen = useRoute().query.get("pool");
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ?? "Loading…"}</p>;
  const refused = Object.entries(value.refused ?? {});
  return (
    <>
      <PollProblem {...polled} />
      {refused.map(([pool, reason]) => (
        <div class="band bad" key={pool}>
          <span>
            <b>{visible(shorten(pool))} cannot be used.</b> <ForeignText text={reason} />
          </span>
        </div>
      ))}
      <section class="card" aria-labelledby="pools-title">
        <header>
          <h2 id="pools-title">Pools</h2>
        </header>
        {value.resources.length === 0 ? (
          <p class="empty">
            No pool has a resource. A scenario that uses resources needs some: add them here, or with <code>POST /create_resource</code>.
          </p>
        ) : (
          <Pools pools={value.resources} chosen={chosen} />
        )}
      </section>
      <AddForm pool={chosen ?? value.resources[0]?.resource_name ?? ""} />
      {chosen === null ? null : <Items pool={chosen} />}
    </>
  );
}

function Pools({ pools, chosen }: { pools: api.Pool[]; chosen: string | null }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class="scroll" tabIndex={0} aria-label="Pools">
      <table>
        <thead>
          <tr>
            <th scope="col">Pool</th>
            {["Total", "Free", "Held", "Waiting"].map((head) => (
              <th scope="col" class="number" key={head}>
                {head}
              </th>
            ))}
            <th scope="col">Held part</th>
          </tr>
        </thead>
        <tbody>
          {pools.map((pool) => (
            <tr key={pool.resource_name}>
              <th scope="row" class="name">
                <button
                  type="button"
                  class="link"
                  aria-pressed={pool.resource_name === chosen}
                  onClick={() => setQuery("pool", pool.resource_name === chosen ? null : pool.resource_name)}
                >
                  {visible(shorten(pool.resource_name))}
                </button>
              </th>
              <td class="number">{count(pool.count)}</td>
              <td class="number">{count(pool.available)}</td>
              <td class="number">{count(pool.held)}</td>
              <td class={pool.waiting > 0 ? "number warn-text" : "number"}>{count(pool.waiting)}</td>
              <td>
                <svg class="meter wide-meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
                  <rect class="track" width="100" height="6" rx="3" />
                  <rect class="used" width={pool.count === 0 ? 0 : (pool.held / pool.count) * 100} height="6" rx="3" />
                </svg>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function AddForm({ pool }: { pool: string }): JSX.Element {
  const { stale } = useStore();
  const [name, setName] = useState<string | null>(null);
  const [number, setNumber] = useState(10);
  const [answer, setAnswer] = useState<{ text: string; bad: boolean } | null>(null);
  const add = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      const added = await api.addResources(name ?? pool, number);
      setAnswer({ text: `${count(added.count)} added to ${added.resource_name}.`, bad: false });
    } catch (error) {
      setAnswer({ text: error instanceof Error ? error.message : String(error), bad: true });
    }
  };
  return (
    <section class="card start">
      <h2>Add resources</h2>
      <form onSubmit={(event) => void add(event)}>
        <label>
          Pool
          <input type="text" required value={name ?? pool} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          How many
          <input
            type="number"
            min="1"
            max="100000"
            required
            value={number}
            onInput={(event) => setNumber(Number(event.currentTarget.value))}
          />
        </label>
        <p class={answer?.bad ? "problem" : "soft"} role={answer?.bad ? "alert" : "status"}>
          {answer ? visible(answer.text) : ""}
        </p>
        <button type="submit" class="button primary" disabled={stale}>
          Add
        </button>
      </form>
    </section>
  );
}

function Items({ pool }: { pool: string }): JSX.Element {
  const polled = usePolled(`items ${pool}`, POLL_S, () => api.fetchItems(pool, ITEMS));
  const { value, problem } = polled;
  return (
    <section class="card" aria-labelledby="items-title">
      <header>
        <h2 id="items-title">Resources of {visible(shorten(pool))}</h2>
        {value && value.total > value.count ? (
          <span class="soft">
            {count(value.count)} of {count(value.total)} are shown
          </span>
        ) : null}
      </header>
      {value ? <PollProblem {...polled} /> : <p class={problem ? "empty problem" : "empty"}>{problem ?? "Loading…"}</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="Resources">
        <table>
          <thead>
            <tr>
              <th scope="col">Id</th>
              <th scope="col">Held by</th>
              <th scope="col">Content</th>
            </tr>
          </thead>
          <tbody>
            {(value?.items ?? []).map(({ resource_id, held, ...content }) => (
              <tr key={resource_id}>
                <th scope="row">{visible(resource_id)}</th>
                <td>{held ? `${visible(held.worker)}, run ${held.epoch}` : <span class="soft">free</span>}</td>
                <td class="message">
                  <ForeignText text={JSON.stringify(content)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}
