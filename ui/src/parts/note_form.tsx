// The form of a person's note on the run.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as api from "../api";
import { clock } from "../format";
import { store } from "../store";
import { Dialog } from "./dialog";

export function NoteForm({ onClose }: { onClose: () => void }): JSX.Element {
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
