// The table of metrics alone, with the columns that a person chose.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { arrangeGroups } from "../parts/metric_groups";
import { COLUMNS, type Column, type Entry, MetricsTable, nameOf } from "../parts/metrics_table";
import { Segments } from "../parts/segments";
import { currentRoute, setQuery, useRoute } from "../route";
import { useStoreOn } from "../store";
import { Empty } from "./empty";

/** Where the browser keeps the columns that a person has hidden. */
const HIDDEN_KEY = "squall.hidden-columns";

function readHidden(): ReadonlySet<string> {
  try {
    return new Set(JSON.parse(localStorage.getItem(HIDDEN_KEY) ?? "[]") as string[]);
  } catch {
    return new Set();
  }
}

/** Folded groups are in the address, one in a line. */
function toggleFolded(group: string): void {
  const folded = new Set((currentRoute().query.get("folded") ?? "").split("\n").filter(Boolean));
  if (!folded.delete(group)) folded.add(group);
  setQuery("folded", [...folded].join("\n") || null);
}

export default function Metrics(): JSX.Element {
  const { state } = useStoreOn(({ state }) => String(Boolean(state?.plan)));
  const { query } = useRoute();
  const times = query.get("times") ?? "response";
  const folded = query.get("folded") ?? "";
  const arrange = useMemo(() => (entries: Entry[]) => arrangeGroups(entries, new Set(folded.split("\n")), nameOf), [folded]);
  const [hidden, setHidden] = useState(readHidden);
  if (!state?.plan) return <Empty />;
  const toggle = (name: string): void => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    localStorage.setItem(HIDDEN_KEY, JSON.stringify([...next]));
    setHidden(next);
  };
  return (
    <>
      <div class="tools">
        <Segments
          label="Response, service or wait time"
          value={times}
          options={[
            ["response", "Response"],
            ["service", "Service"],
            ["wait", "Wait"],
          ]}
          onChoose={(value) => setQuery("times", value === "response" ? null : value)}
        />
      </div>
      <MetricsTable
        hidden={hidden}
        arrange={arrange}
        onFold={toggleFolded}
        tools={(columns, entries) => (
          <>
            <details class="columns">
              <summary class="button tiny">Columns</summary>
              <fieldset>
                <legend class="hidden-text">Shown columns</legend>
                {COLUMNS.map(({ name, title, unit }) => (
                  <label class="tick" key={name}>
                    <input type="checkbox" checked={!hidden.has(name)} onChange={() => toggle(name)} />
                    {unit ? `${title} ${unit}` : title}
                  </label>
                ))}
              </fieldset>
            </details>
            <CopyButton columns={columns} entries={entries} />
          </>
        )}
      />
    </>
  );
}

function CopyButton({ columns, entries }: { columns: Column[]; entries: Entry[] }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    const quote = (text: string): string => `"${text.replaceAll('"', '""')}"`;
    const head = ["metric", ...columns.map(({ title, unit }) => (unit ? `${title} ${unit}` : title))].map(quote).join(",");
    const line = (entry: Entry): string =>
      [
        quote(nameOf(entry)),
        ...columns.map(({ name, show }) => {
          const value = entry.figure(name);
          return quote(value === undefined ? "" : show(value));
        }),
      ].join(",");
    await navigator.clipboard.writeText([head, ...entries.map(line)].join("\n"));
    setCopied(true);
  };
  return (
    <button type="button" class="button tiny" onClick={() => void copy()}>
      {copied ? "Copied" : "Copy as CSV"}
    </button>
  );
}
