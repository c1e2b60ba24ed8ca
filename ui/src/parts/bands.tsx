// Bands under the run bar: what a person must know before reading the figures.

import type { JSX } from "preact";
import { capitalized, clock, visible } from "../format";
import { type Store, store, useStoreOn } from "../store";
import { Icon } from "./icons";

const reasons = ({ data }: Store): string => visible(capitalized(data.figures?.saturated_because.join("; ") ?? ""));

function Saturated(): JSX.Element | null {
  const store = useStoreOn(reasons);
  const text = reasons(store);
  return text ? (
    <div class="band warn">
      <Icon name="errors" />
      <span>
        <b>The generator {store.state?.result ? "was" : "is"} the limit.</b> {text}
      </span>
    </div>
  ) : null;
}

/** `ofRun` is false on pages that are about no current run. */
export function Bands({ ofRun }: { ofRun: boolean }): JSX.Element {
  const { state, stale, outdated, data, connection } = useStoreOn((store) => (store.stale ? Date.now() : store.outdated || store.state));
  const silence = Math.round((connection.silence(Date.now()) ?? 0) / 1000);
  const wait = connection.retryAt === null ? 0 : Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000));
  const stop = ofRun && state?.stop?.message;
  return (
    <>
      {stale && !outdated ? (
        <div class="band warn">
          <Icon name="errors" />
          <span>
            <b>No word from the server for {silence} s.</b> What is shown is of {clock(data.lastSecond)}. The run continues without this
            page; {wait > 0 ? `next try in ${wait} s.` : "trying again."}
          </span>
          <button type="button" class="button tiny" onClick={() => store.connection.connect()}>
            Try now
          </button>
        </div>
      ) : null}
      {state && !state.store_up && !stale ? (
        <div class="band warn">
          <Icon name="errors" />
          <span>
            <b>The coordination store (Redis) does not answer.</b> Workers continue for 3.5 s, until their membership in it expires, then
            they stop sending until it is back.
          </span>
        </div>
      ) : null}
      {outdated ? (
        <div class="band" role="status">
          <span>This page is of an older Squall: reload.</span>
          <button type="button" class="button tiny" onClick={() => window.location.reload()}>
            Reload
          </button>
        </div>
      ) : null}
      {ofRun ? <Saturated /> : null}
      {stop ? (
        <div class="band bad">
          <Icon name="no" />
          <span>{visible(stop)}</span>
        </div>
      ) : null}
    </>
  );
}
