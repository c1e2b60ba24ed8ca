//! Ships a worker's deltas of one run to the store in order, each until the store has it. It does
//! not read their content. `WorkerRun` calls it.

use squall_coord::{RunStore, ShipOutcome};
use squall_metrics::{Delta, encode_delta};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Most bytes of shipped deltas that the shipper keeps.
const MAX_BUFFER_BYTES: usize = 8 << 20;

/// Sends deltas to the task that ships them.
#[derive(Clone)]
pub(crate) struct DeltaShipper {
    deltas: mpsc::UnboundedSender<Delta>,
    state: Arc<ShipperState>,
}

#[derive(Default)]
struct ShipperState {
    unshipped: AtomicUsize,
    /// Another run has started.
    stale: AtomicBool,
    /// The store has lost deltas that the shipper does not keep any longer.
    lost_by_store: AtomicBool,
}

impl DeltaShipper {
    /// Ships the deltas of `source` in the run `epoch`. The task ends when the shipper is dropped
    /// and the store has everything. It keeps the last `max_kept` deltas, one a second, for a store
    /// that goes back to an older state and loses them.
    pub(crate) fn start<R: RunStore>(run_store: R, epoch: u64, source: String, max_kept: usize) -> DeltaShipper {
        let (deltas, receiver) = mpsc::unbounded_channel();
        let state = Arc::<ShipperState>::default();
        let shipped = DeltaReplayBuffer { max_deltas: max_kept, ..DeltaReplayBuffer::default() };
        tokio::spawn(ship_all(run_store, (epoch, source), receiver, shipped, state.clone()));
        DeltaShipper { deltas, state }
    }

    pub(crate) fn ship(&self, delta: Delta) {
        self.state.unshipped.fetch_add(1, Ordering::SeqCst);
        // Sending fails only after the task has ended, because the run is over or the store lost
        // its deltas. No report then counts this one.
        let _ = self.deltas.send(delta);
    }

    /// Deltas that the store does not have yet.
    pub(crate) fn unshipped(&self) -> usize {
        self.state.unshipped.load(Ordering::SeqCst)
    }

    /// Whether another run has started. The store then takes no more deltas of this one.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::SeqCst)
    }

    /// Whether the store has lost deltas that cannot be shipped again. It then takes no later ones.
    pub(crate) fn is_lost_by_store(&self) -> bool {
        self.state.lost_by_store.load(Ordering::SeqCst)
    }
}

async fn ship_all<R: RunStore>(
    run_store: R,
    (epoch, source): (u64, String),
    mut deltas: mpsc::UnboundedReceiver<Delta>,
    mut shipped: DeltaReplayBuffer,
    state: Arc<ShipperState>,
) {
    while let Some(delta) = deltas.recv().await {
        let mut next = shipped.add(delta.seq, encode_delta(&delta));
        let mut retry = FIRST_RETRY;
        while let Some((seq, bytes)) = shipped.get(next) {
            match run_store.ship(epoch, &source, *seq, bytes).await {
                Ok(ShipOutcome::Appended | ShipOutcome::Duplicate) => next += 1,
                Ok(ShipOutcome::RunEnded) => {
                    debug!(epoch, "another run has started; the worker drops the deltas of the old one");
                    state.stale.store(true, Ordering::SeqCst);
                    return;
                }
                Ok(ShipOutcome::Gap(expected)) => {
                    // Redis failed over to a replica that lacked some deltas, or restarted from an
                    // older dump.
                    let Some(first) = shipped.position(expected) else {
                        warn!(
                            epoch,
                            seq, expected, "the store has lost deltas that the worker does not keep any longer"
                        );
                        state.lost_by_store.store(true, Ordering::SeqCst);
                        return;
                    };
                    info!(epoch, from = expected, "the store has lost deltas; the worker ships them again");
                    next = first;
                }
                Err(error) => {
                    debug!(epoch, seq, %error, "the worker could not ship a delta; it tries again");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        shipped.trim();
        state.unshipped.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The last shipped deltas of a source, in order, for a store that loses some.
#[derive(Default)]
struct DeltaReplayBuffer {
    deltas: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    max_deltas: usize,
}

impl DeltaReplayBuffer {
    /// Adds the next delta and returns its position.
    fn add(&mut self, seq: u64, bytes: Vec<u8>) -> usize {
        self.bytes += bytes.len();
        self.deltas.push_back((seq, bytes));
        self.deltas.len() - 1
    }

    fn get(&self, position: usize) -> Option<&(u64, Vec<u8>)> {
        self.deltas.get(position)
    }

    fn position(&self, seq: u64) -> Option<usize> {
        self.deltas.iter().position(|(known, _)| *known == seq)
    }

    fn trim(&mut self) {
        while self.deltas.len() > self.max_deltas || self.bytes > MAX_BUFFER_BYTES {
            let Some((_, bytes)) = self.deltas.pop_front() else { return };
            self.bytes -= bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{RedisClient, RedisRunStore, RunKeys, START_POSITION};
    use squall_metrics::{EngineDelta, SourceId, decode_delta};
    use squall_testkit::redis::RedisServer;

    fn delta(seq: u64) -> Delta {
        let (source, engine) = (SourceId { instance: 1, thread: 0 }, EngineDelta::default());
        Delta { source, seq, second: seq as u32, metrics: Vec::new(), errors: Vec::new(), engine, last: false }
    }

    async fn wait_until_shipped(shipper: &DeltaShipper) {
        while shipper.unshipped() > 0 && !shipper.is_lost_by_store() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A failover, or a restart from an older dump, loses deltas that Redis had acknowledged.
    #[tokio::test]
    async fn deltas_lost_by_the_store_are_shipped_again() {
        let server = RedisServer::start();
        let link = RedisClient::open(&server.url()).await.unwrap();
        let run_store = RedisRunStore::new(&link, RunKeys::new("t:"));
        let epoch = run_store
            .compare_and_set(&run_store.read_record().await.unwrap(), "RUNNING", "{}", true)
            .await
            .unwrap()
            .unwrap()
            .epoch;
        let shipper = DeltaShipper::start(run_store.clone(), epoch, "s".to_owned(), 120);
        (0..5).for_each(|seq| shipper.ship(delta(seq)));
        wait_until_shipped(&shipper).await;
        let stored = run_store.deltas(epoch, START_POSITION, 10).await.unwrap();
        assert_eq!(stored.len(), 5);
        // Redis goes back to the state with three deltas.
        let mut delete = redis::cmd("XDEL");
        delete.arg(run_store.keys().deltas(epoch)).arg(&stored[3].position).arg(&stored[4].position);
        let _: i64 = delete.query_async(&mut link.connection()).await.unwrap();
        let set_last_shipped = async |last: i64| {
            let mut set = redis::cmd("HSET");
            set.arg(run_store.keys().shipped(epoch)).arg("s").arg(last);
            let _: i64 = set.query_async(&mut link.connection()).await.unwrap();
        };
        set_last_shipped(2).await;
        shipper.ship(delta(5));
        wait_until_shipped(&shipper).await;
        let stored = run_store.deltas(epoch, START_POSITION, 10).await.unwrap();
        let seqs: Vec<u64> = stored.iter().map(|delta| decode_delta(&delta.bytes).unwrap().seq).collect();
        assert_eq!((seqs, shipper.is_lost_by_store()), ((0..6).collect(), false));
        // The store expects a number that this shipper never shipped.
        set_last_shipped(7).await;
        shipper.ship(delta(9));
        wait_until_shipped(&shipper).await;
        assert!(shipper.is_lost_by_store());
    }

    #[test]
    fn replay_buffer_is_bounded_by_count_and_bytes() {
        let mut shipped = DeltaReplayBuffer { max_deltas: 100, ..DeltaReplayBuffer::default() };
        for seq in 0..110 {
            shipped.add(seq, vec![0; 10]);
            shipped.trim();
        }
        assert_eq!((shipped.deltas.len(), shipped.position(9), shipped.position(10)), (100, None, Some(0)));
        shipped.add(1_000_000, vec![0; MAX_BUFFER_BYTES]);
        shipped.trim();
        assert_eq!((shipped.deltas.len(), shipped.bytes), (1, MAX_BUFFER_BYTES));
    }
}
