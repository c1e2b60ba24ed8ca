// The events of the run as a list, latest first, with the letters of the flags in the charts.

import type { JSX } from "preact";
import { capitalized, clock } from "../format";
import { AddNote } from "./add_note";
import type { Flag } from "./flags";
import { ForeignText } from "./text";

export function Events({ flags }: { flags: readonly Flag[] }): JSX.Element {
  return (
    <section class="card" aria-labelledby="events-title">
      <header>
        <h2 id="events-title">Events</h2>
        <div class="right">
          <AddNote />
        </div>
      </header>
      {flags.length === 0 ? (
        <p class="empty">Nothing has happened to the fleet.</p>
      ) : (
        <ol class="events">
          {flags.toReversed().map((flag) => (
            <li class={flag.tone} key={`${flag.t} ${flag.text}`}>
              <span class="letter">{flag.letter}</span>
              <time>{clock(flag.t)}</time>
              <span>
                {flag.kind === "note" ? <span class="soft">Note: </span> : null}
                <ForeignText text={flag.kind === "note" ? flag.text : capitalized(flag.text)} />
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
