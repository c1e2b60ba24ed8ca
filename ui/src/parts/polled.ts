// Asks the API again and again for what the live feed does not contain. It keeps the latest answer while
// the server is away; the page says by itself that it is stale.

import { useEffect, useState } from "preact/hooks";
import { store } from "../store";

export interface Polled<T> {
  value: T | null;
  /** Why the latest answer is missing. */
  problem: string | null;
}

/** Calls `fetch` now and every `seconds`. Another `key` is another question, and forgets the answer. */
export function usePolled<T>(key: string, seconds: number, fetch: () => Promise<T>): Polled<T> {
  const [polled, setPolled] = useState<Polled<T> & { key: string }>({ key, value: null, problem: null });
  useEffect(() => {
    let ended = false;
    const ask = async (): Promise<void> => {
      if (document.visibilityState === "hidden" || store.stale) return;
      try {
        const value = await fetch();
        if (!ended) setPolled({ key, value, problem: null });
      } catch (error) {
        const problem = error instanceof Error ? error.message : String(error);
        if (!ended) setPolled((last) => ({ key, value: last.key === key ? last.value : null, problem }));
      }
    };
    void ask();
    const timer = window.setInterval(() => void ask(), seconds * 1000);
    return () => {
      ended = true;
      window.clearInterval(timer);
    };
  }, [key]);
  return polled.key === key ? polled : { value: null, problem: null };
}
