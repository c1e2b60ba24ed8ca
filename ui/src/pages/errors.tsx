// Failed requests: by code over time, then one row for each kind with its messages.

import type { JSX } from "preact";
import type { Table } from "../feed/run_data";
import { clock, count, percent, shorten, UNKNOWN, visible } from "../format";
import { failingNodes } from "../parts/failing_nodes";
import { lines } from "../parts/lines";
import { ForeignText } from "../parts/text";
import { useFlags } from "../parts/use_flags";
import { setQuery, useRoute } from "../route";
import { store, useMeasurements } from "../store";
import { Empty } from "./empty";
import { ErrorsChart } from "./live";

interface Kind {
  metric: string;
  category: string;
  code: string;
  count: number;
  /** The first and the last second with it, if they are known. */
  span: [number, number] | null;
  workers: string;
  messages: { text: string; count: number }[];
}

const nameOf = (id: number | null): string => (id === null ? "unknown" : (store.data.metrics.get(id)?.name ?? `metric ${id}`));

function kindsOf(table: Table): Kind[] {
  const kinds = table.outcomes.map(([id, category, code, n, first, last, workers, of]): Kind => {
    const own = table.messages.filter(([metric, , messageCode]) => metric === id && messageCode === code);
    return {
      metric: nameOf(id),
      category,
      code,
      count: n,
      span: first === null || last === null ? null : [first, last],
      workers: workersText(workers, of),
      messages: own.map(([, , , text, times]) => ({ text, count: times })),
    };
  });
  // A message may belong to a task, which has no failed request of its own.
  const known = new Set(table.outcomes.map(([id, , code]) => `${id} ${code}`));
  const others = table.messages.filter(([id, , code]) => !known.has(`${id} ${code}`));
  const alone = others.map(
    ([id, category, code, text, n]): Kind => ({
      metric: nameOf(id),
      category,
      code,
      count: n,
      span: null,
      workers: UNKNOWN,
      messages: [{ text, count: n }],
    }),
  );
  return [...kinds, ...alone].sort((a, b) => b.count - a.count);
}

/** The workers that are named, and how many more there are. */
function workersText(named: string[], all: number): string {
  if (named.length === 0) return UNKNOWN;
  const names = named.map((name) => visible(shorten(name))).join(", ");
  return all > named.length ? `${names} and ${count(all - named.length)} more` : names;
}

function spanText(span: Kind["span"]): string {
  if (span === null) return UNKNOWN;
  const [first, last] = span;
  return first === last ? clock(first) : `${clock(first)} to ${clock(last)}`;
}

export default function Errors(): JSX.Element {
  const { data, state } = useMeasurements();
  const filter = useRoute().query.get("filter") ?? "";
  const flags = useFlags();
  if (!state?.plan) return <Empty />;
  const total = data.figures?.total;
  const kinds = data.table ? kindsOf(data.table) : [];
  const shown = kinds.filter((kind) =>
    [kind.metric, kind.code, kind.category].some((text) => text.toLowerCase().includes(filter.toLowerCase())),
  );
  return (
    <>
      <ErrorsChart flags={flags} />
      <section class="card" aria-labelledby="errors-title">
        <header>
          <h2 id="errors-title">Kinds of errors</h2>
          <div class="right">
            <input
              id="filter"
              class="field"
              type="search"
              placeholder="Filter ( / )"
              aria-label="Filter by metric, code or category"
              value={filter}
              onInput={(event) => setQuery("filter", event.currentTarget.value || null)}
            />
          </div>
        </header>
        {kinds.length === 0 ? (
          <p class="empty">No errors in {count(total?.requests ?? 0)} requests.</p>
        ) : (
          <Kinds kinds={shown} requests={total?.requests ?? 0} />
        )}
      </section>
      {data.table ? <Nodes table={data.table} /> : null}
    </>
  );
}

/** Failed tries of CQL statements by the node that they were sent to; nothing for other runs. */
function Nodes({ table }: { table: Table }): JSX.Element | null {
  const { nodes, retries } = failingNodes(table);
  if (nodes.length === 0) return null;
  const tries = nodes.reduce((sum, node) => sum + node.tries, 0);
  return (
    <section class="card" aria-labelledby="nodes-title">
      <header>
        <h2 id="nodes-title">Failed tries by node</h2>
        <span class="soft">
          {count(tries)} tries of CQL statements failed; {count(retries)} were repeated
        </span>
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys */}
      <section class="scroll" tabIndex={0} aria-label="Failed tries by node">
        <table>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">Data centre</th>
              <th scope="col">Consistency</th>
              <th scope="col" class="number">
                Failed tries
              </th>
              <th scope="col" class="number">
                Share <span class="unit">%</span>
              </th>
              <th scope="col">Codes</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => (
              <tr key={`${node.node} ${node.datacenter} ${node.consistency}`}>
                <th scope="row">
                  <code>{visible(shorten(node.node))}</code>
                </th>
                <td>{visible(shorten(node.datacenter))}</td>
                <td>{node.consistency}</td>
                <td class="number">{count(node.tries)}</td>
                <td class="number">{percent(node.tries / tries)}</td>
                <td>{node.codes.map(([code, n]) => `${count(n)} ${visible(code)}`).join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

function Kinds({ kinds, requests }: { kinds: Kind[]; requests: number }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class="scroll" tabIndex={0} aria-label="Kinds of errors">
      <table>
        <thead>
          <tr>
            <th scope="col">Code</th>
            <th scope="col">Category</th>
            <th scope="col">Metric</th>
            <th scope="col" class="number">
              Count
            </th>
            <th scope="col" class="number">
              Share <span class="unit">%</span>
            </th>
            <th scope="col">First and last</th>
            <th scope="col">Workers</th>
            <th scope="col">Messages</th>
          </tr>
        </thead>
        <tbody>
          {kinds.map((kind) => (
            <KindRow key={`${kind.metric} ${kind.code} ${kind.category}`} kind={kind} requests={requests} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function KindRow({ kind, requests }: { kind: Kind; requests: number }): JSX.Element {
  const [first] = kind.messages;
  return (
    <tr>
      <th scope="row">
        <code>{visible(kind.code)}</code>
      </th>
      <td>{kind.category.replaceAll("_", " ")}</td>
      <td>{visible(shorten(kind.metric))}</td>
      <td class="number">{count(kind.count)}</td>
      <td class="number">{requests === 0 ? UNKNOWN : percent(kind.count / requests)}</td>
      <td>{spanText(kind.span)}</td>
      <td>{kind.workers}</td>
      <td class="message">
        {first === undefined ? (
          <span class="soft">none recorded</span>
        ) : kind.messages.length === 1 && first.text.length < 80 && !first.text.includes("\n") ? (
          <ForeignText text={first.text} />
        ) : (
          <details>
            <summary>{visible(first.text.split("\n", 1)[0]?.slice(0, 80) ?? "")}</summary>
            <ul>
              {kind.messages.map((message) => (
                <li key={message.text}>
                  <span class="soft">{count(message.count)} ×</span> <pre>{lines(message.text)}</pre>
                </li>
              ))}
            </ul>
          </details>
        )}
      </td>
    </tr>
  );
}
