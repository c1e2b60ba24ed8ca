// A person's note on the run: a form that the key `n` or the button of the events opens.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { store, useStoreOn } from "../store";
import { Panel } from "./panel";

/** The event on the document that opens the form. */
export const ADD_NOTE = "squall-add-note";

/** The button, and the form when it is open. */
export function AddNote(): JSX.Element | null {
  const { running, stale } = useStoreOn(({ running, stale }) => `${running} ${stale}`);
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const open = (): void => setShown(store.running && !store.stale);
    document.addEventListener(ADD_NOTE, open);
    return () => document.removeEventListener(ADD_NOTE, open);
  }, []);
  return (
    <>
      <button type="button" class="button tiny" disabled={!running || stale} onClick={() => setShown(true)}>
        Add a note
      </button>
      {shown ? <Panel show={({ NoteForm }) => <NoteForm onClose={() => setShown(false)} />} /> : null}
    </>
  );
}
