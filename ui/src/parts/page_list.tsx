// All pages, for narrow screens, whose bar has room for a few.

import type { JSX } from "preact";
import type { Page } from "../app";
import { Dialog } from "./dialog";
import { Icon } from "./icons";
import { toggleTheme } from "./theme";

export function PageList({ pages, onClose }: { pages: [string, Page][]; onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Pages" onClose={onClose}>
      <div class="page-list">
        {pages.map(([name, page]) => (
          <a key={name} href={`#/${name}`} onClick={onClose}>
            <Icon name={page.icon} />
            {page.title}
          </a>
        ))}
      </div>
      <button type="button" class="button" onClick={toggleTheme}>
        <Icon name="theme" small />
        Light or dark
      </button>
    </Dialog>
  );
}
