// A person's note on the run: a form that the key `n` or the button of the events opens.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import { clock } from "../format";
import { store, useStoreOn } from "../store";
import { Dialog } from "./dialog";

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
      {shown ? <NoteForm onClose={() => setShown(false)} /> : null}
    </>
  );
}

function NoteForm({ onClose }: { onClose: () => void }): JSX.Element {
  // A note is about the moment at which the person began to write it.
  const [at] = useState(() => Math.floor(store.elapsedSeconds ?? 0));
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const add = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await api.addNote(text, at);
      onClose();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Dialog title="Add a note" onClose={onClose}>
      <form onSubmit={(event) => void add(event)}>
        <label>
          Note at {clock(at)}
          <input type="text" maxLength={500} required value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="button primary">
          Add
        </button>
      </form>
    </Dialog>
  );
}
