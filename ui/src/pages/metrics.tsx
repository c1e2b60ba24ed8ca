// The table of metrics alone, with the columns that a person chose.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { copyText } from "../parts/copy_text";
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

/** The names of the columns whose cells have a unit of their own on the page. */
const csvHead = (name: string, title: string): string => ({ bytes_in: "Bytes received", now: "Now 1/s", rate: "Mean 1/s" })[name] ?? title;

/** The value as a number in the unit of the head: the server sends microseconds and shares of 1. */
function csvValue(value: number | undefined, unit: string | undefined): string {
  if (value === undefined) return "";
  return String(unit === "ms" ? value / 1000 : unit === "%" ? value * 100 : value);
}

function CopyButton({ columns, entries }: { columns: Column[]; entries: Entry[] }): JSX.Element {
  const [copied, setCopied] = useState<boolean | null>(null);
  const copy = async (): Promise<void> => {
    const quote = (text: string): string => `"${text.replaceAll('"', '""')}"`;
    const head = ["metric", ...columns.map(({ name, title, unit }) => csvHead(name, unit ? `${title} ${unit}` : title))]
      .map(quote)
      .join(",");
    const line = (entry: Entry): string =>
      [quote(nameOf(entry)), ...columns.map(({ name, unit }) => csvValue(entry.figure(name), unit))].join(",");
    setCopied(await copyText([head, ...entries.map(line)].join("\n")));
  };
  return (
    <button type="button" class="button tiny" onClick={() => void copy()}>
      {copied === null ? "Copy as CSV" : copied ? "Copied" : "The browser refuses"}
    </button>
  );
}
