// A person's note on the run: a form that the key `n` or the button of the events opens.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Store, store, useStoreOn } from "../store";
import { Panel } from "./panel";

/** The event on the document that opens the form. */
export const ADD_NOTE = "squall-add-note";

/** Whether the server could take a note now. */
const takesNotes = ({ running, stale, state }: Store): boolean => running && !stale && state?.store_up === true;

export function AddNote(): JSX.Element {
  return (
    <button
      type="button"
      class="button tiny"
      disabled={!takesNotes(useStoreOn(takesNotes))}
      onClick={() => document.dispatchEvent(new Event(ADD_NOTE))}
    >
      Add a note
    </button>
  );
}

/** The form when it is open, on every page. */
export function NotePanel(): JSX.Element | null {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const open = (): void => setShown(takesNotes(store));
    document.addEventListener(ADD_NOTE, open);
    return () => document.removeEventListener(ADD_NOTE, open);
  }, []);
  return shown ? <Panel show={({ NoteForm }) => <NoteForm onClose={() => setShown(false)} />} /> : null;
}
