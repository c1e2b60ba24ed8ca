// The list of keys.

import type { JSX } from "preact";
import { KEY_PAGES } from "./keys";
import { Dialog } from "./parts/dialog";

const KEYS: [string, string][] = [
  [
    "g then a letter",
    Object.entries(KEY_PAGES)
      .map(([key, [, title]]) => `${key} ${title}`)
      .join(", "),
  ],
  ["/", "filter"],
  ["[ and ]", "shorter or longer range"],
  ["0", "whole run"],
  ["t", "response or service time"],
  ["n", "add a note"],
  ["space", "pause or resume, after a question"],
  ["s", "swap base and new (Compare)"],
  ["?", "this list"],
  ["Esc", "close"],
];

export function KeyList({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([key, effect]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{effect}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
