// A panel over the page. The browser keeps the focus inside and closes it with Esc.

import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** False if only signing in closes it. */
  closable?: boolean;
}

export function Dialog({ title, onClose, children, closable = true }: Props): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    const field = dialog?.querySelector<HTMLInputElement | HTMLTextAreaElement>("form :is(input, textarea)");
    field?.focus();
    field?.select();
    // A dialog that closes returns the focus to where it was; one that is only removed does not.
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-label={title}
      onCancel={(event) => {
        if (!closable) event.preventDefault();
      }}
      onClose={() => {
        // A second Esc closes it whatever the handler above says.
        if (!closable) element.current?.showModal();
        onClose();
      }}
    >
      <header>
        <h2>{title}</h2>
        {closable ? (
          <button type="button" class="link" onClick={() => element.current?.close()}>
            Close
          </button>
        ) : null}
      </header>
      {children}
    </dialog>
  );
}
