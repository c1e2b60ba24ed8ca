// The list of keys.

import type { JSX } from "preact";
import { KEY_PAGES } from "./keys";
import { Dialog } from "./parts/dialog";

const KEYS: [string, string][] = [
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

export function KeyList({ isOffered, onClose }: { isOffered: (page: string) => boolean; onClose: () => void }): JSX.Element {
  const pages = Object.entries(KEY_PAGES).filter(([, [page]]) => isOffered(page));
  const going = pages.map(([key, [, title]]) => `${key} ${title}`).join(", ");
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {[["g then a letter", going], ...KEYS].map(([key, effect]) => (
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
