// Streams and their processors: how far each is behind, who owns which partition, and which partitions
// wait in quarantine for a person.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { fetchStreams, releasePartition, type Stream, type StreamPartition, type StreamProcessor } from "../control_api";
import { count, shorten, three, UNKNOWN, visible } from "../format";
import { Dialog } from "../parts/dialog";
import { usePolled } from "../parts/polled";
import { ForeignText } from "../parts/text";
import { useStoreOn } from "../store";

const POLL_S = 2;

export default function Streams(): JSX.Element {
  const { value, problem } = usePolled("streams", POLL_S, fetchStreams);
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ? visible(problem) : "Loading…"}</p>;
  return (
    <>
      {problem ? (
        <div class="band warn" role="status">
          <span>
            <b>The streams cannot be read now.</b> <ForeignText text={problem} />
          </span>
        </div>
      ) : null}
      {value.streams.length === 0 ? <NoStreams /> : null}
      {value.streams.map((stream) => (
        <StreamCard key={stream.stream} stream={stream} />
      ))}
    </>
  );
}

function NoStreams(): JSX.Element {
  return (
    <section class="card start">
      <h2>No streams yet</h2>
      <p>A stream appears here when a client has opened it on the Redis server of this fleet:</p>
      <pre>{"squall stream send shop.orders '{\"id\": 1}' --redis redis://HOST:6379"}</pre>
    </section>
  );
}

function StreamCard({ stream }: { stream: Stream }): JSX.Element {
  return (
    <section class="card" aria-label={`Stream ${visible(stream.stream)}`}>
      <header>
        <h2>{visible(shorten(stream.stream))}</h2>
        <span class="soft">
          {count(stream.partitions)} partitions, {count(stream.events)} events kept
        </span>
      </header>
      {stream.processors.length === 0 ? <p class="empty">No worker has run a processor on this stream.</p> : null}
      {stream.processors.map((processor) => (
        <Processor key={processor.name} processor={processor} />
      ))}
    </section>
  );
}

function Processor({ processor }: { processor: StreamProcessor }): JSX.Element {
  const { rate, workers, partitions } = processor;
  const figures: [string, string, string][] = [
    ["Lag", count(processor.waiting), "events wait"],
    ["Under way", count(processor.pending), "fetched, not acknowledged"],
    ["Rate", rate === null ? UNKNOWN : `${three(rate)}/s`, rate === null ? "known after the second poll" : "acknowledged"],
    [
      "Workers",
      count(workers.length),
      workers.length === 0 ? "nothing is processed" : workers.map((id) => visible(shorten(id))).join(", "),
    ],
  ];
  const stuck = partitions.filter(({ quarantine }) => quarantine !== null);
  return (
    <section class="processor" aria-label={`Processor ${visible(processor.processor)}`}>
      <h3>{visible(processor.processor)}</h3>
      <dl class="figures four">
        {figures.map(([name, figure, detail]) => (
          <div class="figure" key={name}>
            <dt>{name}</dt>
            <dd class={name === "Workers" && workers.length === 0 ? "value bad" : "value"}>{figure}</dd>
            <dd class="detail" title={detail}>
              {detail}
            </dd>
          </div>
        ))}
      </dl>
      <ul class="cells" aria-label="Partitions and their owners">
        {partitions.map((partition) => (
          <PartitionCell key={partition.partition} partition={partition} />
        ))}
      </ul>
      {stuck.length === 0 ? null : <Quarantine processor={processor.name} partitions={stuck} />}
    </section>
  );
}

function PartitionCell({ partition }: { partition: StreamPartition }): JSX.Element {
  const { owner, quarantine, waiting, pending } = partition;
  const tone = quarantine !== null ? "bad" : owner === null ? "warn" : "";
  const who = quarantine !== null ? "quarantine" : (owner ?? "no owner");
  return (
    <li class={tone} title={visible(who)}>
      <b>{partition.partition}</b>
      <span class="owner">{visible(who)}</span>
      <span class={waiting + pending > 0 ? "" : "zero"}>
        {count(waiting)}
        <span class="hidden-text"> events wait</span>
      </span>
    </li>
  );
}

/** The reason as the worker wrote it. */
function reasonText(reason: unknown): string {
  if (typeof reason === "string") return reason;
  const { error, message } = (reason ?? {}) as { error?: unknown; message?: unknown };
  const text = error ?? message;
  return typeof text === "string" ? text : JSON.stringify(reason);
}

function Quarantine({ processor, partitions }: { processor: string; partitions: StreamPartition[] }): JSX.Element {
  const { stale } = useStoreOn((store) => String(store.stale));
  const [asked, setAsked] = useState<number | null>(null);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keys
    <section class="scroll" tabIndex={0} aria-label="Partitions in quarantine">
      <table>
        <thead>
          <tr>
            <th scope="col">In quarantine</th>
            <th scope="col">Why</th>
            <th scope="col">
              <span class="hidden-text">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {partitions.map(({ partition, quarantine }) => (
            <tr key={partition}>
              <th scope="row">Partition {partition}</th>
              <td class="message">
                <ForeignText text={reasonText(quarantine)} />
              </td>
              <td class="number">
                <button type="button" class="button tiny" disabled={stale} onClick={() => setAsked(partition)}>
                  Let go on<span class="hidden-text"> with partition {partition}</span>
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {asked === null ? null : <Release processor={processor} partition={asked} onClose={() => setAsked(null)} />}
    </section>
  );
}

function Release({ processor, partition, onClose }: { processor: string; partition: number; onClose: () => void }): JSX.Element {
  const [problem, setProblem] = useState<string | null>(null);
  const release = (skip: boolean): void => {
    releasePartition(processor, partition, skip).then(onClose, (error: Error) => setProblem(error.message));
  };
  return (
    <Dialog title={`Partition ${partition}`} onClose={onClose}>
      <p>The partition is processed again from the first event that is not acknowledged.</p>
      <p class="problem" role="alert">
        {problem === null ? "" : visible(problem)}
      </p>
      <div class="choices">
        <button type="button" class="button" onClick={() => release(false)}>
          Try the failed events again
        </button>
        <button type="button" class="button danger" onClick={() => release(true)}>
          Skip the failed events
        </button>
      </div>
    </Dialog>
  );
}
