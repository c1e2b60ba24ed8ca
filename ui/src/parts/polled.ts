// Asks the API again and again for what the live feed does not contain. It keeps the latest answer while
// the server is away; the page says by itself that it is stale.

import { useEffect, useState } from "preact/hooks";
import { store, useStoreOn } from "../store";

export interface Polled<T> {
  value: T | null;
  /** When the value came, by the clock of the page. */
  at: number;
  /** Why the latest answer is missing. */
  problem: string | null;
}

/** Calls `fetch` now and every `seconds`. Another `key` is another question, and forgets the answer. */
export function usePolled<T>(key: string, seconds: number, fetch: () => Promise<T>): Polled<T> {
  // An answer that was refused is asked for again when the person has signed in.
  const { access } = useStoreOn(({ access }) => access);
  const [polled, setPolled] = useState<Polled<T> & { key: string }>({ key, value: null, at: 0, problem: null });
  useEffect(() => {
    let ended = false;
    const ask = async (): Promise<void> => {
      if (document.visibilityState === "hidden") return;
      if (store.stale) {
        // An answer that is there stays; the page says by itself that it is old.
        const away = { key, value: null, at: 0, problem: "The server does not answer." };
        if (!ended) setPolled((last) => (last.key === key && last.value ? last : away));
        return;
      }
      try {
        const value = await fetch();
        if (!ended) setPolled({ key, value, at: Date.now(), problem: null });
      } catch (error) {
        const problem = error instanceof Error ? error.message : String(error);
        if (!ended) setPolled((last) => ({ key, value: last.key === key ? last.value : null, at: last.at, problem }));
      }
    };
    void ask();
    const timer = window.setInterval(() => void ask(), seconds * 1000);
    return () => {
      ended = true;
      window.clearInterval(timer);
    };
  }, [key, access]);
  return polled.key === key ? polled : { value: null, at: 0, problem: null };
}
