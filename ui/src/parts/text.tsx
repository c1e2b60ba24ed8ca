// A text from a server or a scenario: never markup, invisible characters shown, long ones cut.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { shorten, visible } from "../format";

export function ForeignText({ text }: { text: string }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const shown = visible(whole ? text : shorten(text));
  return (
    <span class="foreign">
      {shown}
      {!whole && shorten(text) !== text ? (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          show all
        </button>
      ) : null}
    </span>
  );
}
