// The latest seconds of a chart as a table.

import type { JSX } from "preact";
import { clock, UNKNOWN } from "../format";
import type { Props } from "./chart";
import { listed } from "./listed";

const TABLE_ROWS = 60;

export function ValueTable({ times, lines: drawn, format, title }: Props): JSX.Element {
  const lines = listed(drawn).filter((line) => !line.casing);
  const first = Math.max(0, times.length - TABLE_ROWS);
  const rows = times.slice(first).map((t, offset) => ({ t, index: first + offset }));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class="chart-table" tabIndex={0} aria-label={`${title} as table, the latest ${TABLE_ROWS} seconds`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((line) => (
              <th scope="col" class="number" key={line.label}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.reverse().map(({ t, index }) => (
            <tr key={t}>
              <th scope="row">{clock(t)}</th>
              {lines.map((line) => {
                const value = line.at(index);
                return (
                  <td class="number" key={line.label}>
                    {value === null || value === undefined ? UNKNOWN : (line.format ?? format)(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
