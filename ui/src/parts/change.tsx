// Changes of the run: a request, then how many workers have taken it up. A refusal appears where the
// person acted, in the API's words.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type * as api from "../api";
import { visible } from "../format";
import { useStore } from "../store";

/** After this time the page names the workers that have not answered. */
const ANSWER_MS = 5000;

export interface Sent {
  what: string;
  revision: number;
  at: number;
}

/** How many workers have read the change, until all have and some time has passed. */
export function Acknowledged({ sent }: { sent: Sent }): JSX.Element | null {
  const { fleet } = useStore();
  const workers = (fleet?.workers ?? []).filter(({ present, state, revision }) => present && state !== "unable" && revision);
  // Workers of vikhry report no revision.
  const behind = workers.filter(({ revision }) => (revision ?? 0) < sent.revision);
  const done = workers.length - behind.length;
  const age = Date.now() - sent.at;
  const slow = behind.length > 0 && age > ANSWER_MS;
  if (behind.length === 0 && age > 2 * ANSWER_MS) return null;
  return (
    <p class="acknowledged" role="status">
      {sent.what}: {done} of {workers.length} {workers.length === 1 ? "worker" : "workers"}
      {slow ? `; no answer from ${behind.map(({ id }) => visible(id)).join(", ")}` : ""}
    </p>
  );
}

/** Sends a change and keeps its outcome. */
export function useChange(): {
  sent: Sent | null;
  problem: string | null;
  send: (what: string, request: () => Promise<api.Changed>) => Promise<boolean>;
} {
  const [sent, setSent] = useState<Sent | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const send = async (what: string, request: () => Promise<api.Changed>): Promise<boolean> => {
    setProblem(null);
    try {
      const { revision } = await request();
      setSent({ what, revision, at: Date.now() });
      return true;
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return false;
    }
  };
  return { sent, problem, send };
}

export type Change = ReturnType<typeof useChange>;
