// Asks a worker to leave: says what will happen, then what the worker has acknowledged.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import type { Worker } from "../feed/messages";
import { count, visible } from "../format";
import { useStore } from "../store";
import { Dialog } from "./dialog";

/** A worker that has heard of it is leaving within this time. */
const ANSWER_MS = 10_000;

export function Drain({ worker, others }: { worker: Worker; others: number }): JSX.Element {
  const { stale } = useStore();
  const [asking, setAsking] = useState(false);
  const [sentAt, setSentAt] = useState<number | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const leaving = worker.status !== "healthy";
  const answer = useRef<HTMLSpanElement>(null);
  // The button that had the focus is no more.
  useEffect(() => answer.current?.focus(), [sentAt]);
  const waiting = sentAt !== null && Date.now() - sentAt < ANSWER_MS;
  if (leaving || waiting)
    return (
      <span class="soft" role="status" tabIndex={-1} ref={answer}>
        {leaving ? `leaving, ${count(worker.shares)} shares left` : "asked to leave"}
      </span>
    );
  const drain = async (): Promise<void> => {
    try {
      await api.drainWorker(worker.id);
      setSentAt(Date.now());
      setAsking(false);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      {sentAt === null ? null : <span class="warn-text">no answer </span>}
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
