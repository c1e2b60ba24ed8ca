// The table of metrics alone, with the columns that a person chose.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { COLUMNS, type Column, type Entry, MetricsTable, nameOf, nowOf } from "../parts/metrics_table";
import { Segments } from "../parts/segments";
import { setQuery, useRoute } from "../route";
import { useMeasurements } from "../store";
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

export default function Metrics(): JSX.Element {
  const { state } = useMeasurements();
  const times = useRoute().query.get("times") ?? "response";
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
          label="Response or service time"
          value={times}
          options={[
            ["response", "Response"],
            ["service", "Service"],
          ]}
          onChoose={(value) => setQuery("times", value === "service" ? value : null)}
        />
      </div>
      <MetricsTable
        hidden={hidden}
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
        ...columns.map(({ name, show }) => quote(show(name === "now" ? nowOf(entry) : (entry.row[name] ?? 0), entry.row))),
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
