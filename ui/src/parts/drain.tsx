// Asks a worker to leave: says what will happen, then what the worker has acknowledged.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as api from "../api";
import type { Worker } from "../feed/messages";
import { count, visible } from "../format";
import { useStore } from "../store";
import { Dialog } from "./dialog";

export function Drain({ worker, others }: { worker: Worker; others: number }): JSX.Element {
  const { stale } = useStore();
  const [asking, setAsking] = useState(false);
  const [sent, setSent] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const leaving = worker.status !== "healthy";
  if (leaving || sent)
    return (
      <span class="soft" role="status">
        {leaving ? `leaving, ${count(worker.shares)} shares left` : "asked to leave"}
      </span>
    );
  const drain = async (): Promise<void> => {
    try {
      await api.drainWorker(worker.id);
      setSent(true);
      setAsking(false);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <button type="button" class="button tiny" disabled={stale} aria-label={`Drain ${visible(worker.id)}`} onClick={() => setAsking(true)}>
        Drain
      </button>
      {asking ? (
        <Dialog title={`Drain ${visible(worker.id)}`} onClose={() => setAsking(false)}>
          <p>
            Its {count(worker.shares)} shares move to{" "}
            {others === 0 ? "no worker: it is the last one" : `${count(others)} other ${others === 1 ? "worker" : "workers"}`}. It finishes
            the iterations under way, reports everything, and ends its process.
          </p>
          <p class="problem" role="alert">
            {problem}
          </p>
          <button type="button" class="button danger" onClick={() => void drain()}>
            Drain
          </button>
        </Dialog>
      ) : null}
    </>
  );
}
