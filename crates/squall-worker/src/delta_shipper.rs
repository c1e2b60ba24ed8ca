//! Ships deltas one by one, each as often as it takes. Knows nothing of what they say.

use squall_coord::{RunStore, ShipOutcome as Answer};
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

/// How large the deltas may be together that are kept after they were shipped.
const MAX_BUFFER_BYTES: usize = 8 << 20;

/// Hands deltas to the task that ships them.
#[derive(Clone)]
pub(crate) struct DeltaShipper {
    deltas: mpsc::UnboundedSender<Delta>,
    state: Arc<ShipperState>,
}

#[derive(Default)]
struct ShipperState {
    unshipped: AtomicUsize,
    /// Another run has begun.
    stale: AtomicBool,
    /// The store has lost what it had of this one.
    lost_by_store: AtomicBool,
}

impl DeltaShipper {
    /// Ships for `source` in run `epoch`. Ends when this is dropped and everything is in. The latest `most_kept`, one a second, are kept for a
    /// store that goes back and loses them.
    pub(crate) fn start<R: RunStore>(run: R, epoch: u64, source: String, most_kept: usize) -> DeltaShipper {
        let (deltas, receiver) = mpsc::unbounded_channel();
        let state = Arc::<ShipperState>::default();
        let shipped = DeltaReplayBuffer { max_deltas: most_kept, ..DeltaReplayBuffer::default() };
        tokio::spawn(ship_all(run, (epoch, source), receiver, shipped, state.clone()));
        DeltaShipper { deltas, state }
    }

    pub(crate) fn ship(&self, delta: Delta) {
        self.state.unshipped.fetch_add(1, Ordering::SeqCst);
        // The task ends before this only if the run is stale or forgotten, and then nobody wants it.
        let _ = self.deltas.send(delta);
    }

    /// Deltas that are not in yet.
    pub(crate) fn unshipped(&self) -> usize {
        self.state.unshipped.load(Ordering::SeqCst)
    }

    /// Whether another run has begun, so that nothing more is wanted from this one.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::SeqCst)
    }

    /// Whether the store has lost what it had of this run, so that nothing more can follow it.
    pub(crate) fn is_lost_by_store(&self) -> bool {
        self.state.lost_by_store.load(Ordering::SeqCst)
    }
}

async fn ship_all<R: RunStore>(
    run: R,
    (epoch, source): (u64, String),
    mut deltas: mpsc::UnboundedReceiver<Delta>,
    mut shipped: DeltaReplayBuffer,
    state: Arc<ShipperState>,
) {
    while let Some(delta) = deltas.recv().await {
        let mut next = shipped.add(delta.seq, encode_delta(&delta));
        let mut retry = FIRST_RETRY;
        while let Some((seq, bytes)) = shipped.get(next) {
            match run.ship(epoch, &source, *seq, bytes).await {
                Ok(Answer::Appended | Answer::Duplicate) => next += 1,
                Ok(Answer::RunEnded) => {
                    debug!(epoch, "another run has begun; what was measured in the old one is dropped");
                    state.stale.store(true, Ordering::SeqCst);
                    return;
                }
                Ok(Answer::Gap(expected)) => {
                    // A replica that did not have everything took its place, or it was restarted with what it knew a while ago.
                    let Some(first) = shipped.position(expected) else {
                        warn!(epoch, seq, expected, "the store has lost what was measured here");
                        state.lost_by_store.store(true, Ordering::SeqCst);
                        return;
                    };
                    info!(epoch, from = expected, "the store has lost what was measured here; it is shipped again");
                    next = first;
                }
                Err(error) => {
                    debug!(epoch, seq, %error, "a delta could not be shipped yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        shipped.trim();
        state.unshipped.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The latest deltas of a source as they were shipped, in order, for a store that loses some.
#[derive(Default)]
struct DeltaReplayBuffer {
    deltas: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    max_deltas: usize,
}

impl DeltaReplayBuffer {
    /// Adds the next one; gives its position.
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

    async fn everything_is_in(shipper: &DeltaShipper) {
        while shipper.unshipped() > 0 && !shipper.is_lost_by_store() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Found by a reader: after a failover, or a restart with an older dump, what workers had measured was lost, and the bound with it.
    #[tokio::test]
    async fn what_the_store_has_lost_is_shipped_again() {
        let server = RedisServer::start();
        let link = RedisClient::open(&server.url()).await.unwrap();
        let run = RedisRunStore::new(&link, RunKeys::new("t:"));
        let epoch =
            run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().unwrap().epoch;
        let shipper = DeltaShipper::start(run.clone(), epoch, "s".to_owned(), 120);
        (0..5).for_each(|seq| shipper.ship(delta(seq)));
        everything_is_in(&shipper).await;
        let there = run.deltas(epoch, START_POSITION, 10).await.unwrap();
        assert_eq!(there.len(), 5);
        // It goes back to when it had three.
        let mut lose = redis::cmd("XDEL");
        lose.arg(run.keys().deltas(epoch)).arg(&there[3].position).arg(&there[4].position);
        let _: i64 = lose.query_async(&mut link.connection()).await.unwrap();
        let knows = async |last: i64| {
            let mut knows = redis::cmd("HSET");
            knows.arg(run.keys().shipped(epoch)).arg("s").arg(last);
            let _: i64 = knows.query_async(&mut link.connection()).await.unwrap();
        };
        knows(2).await;
        shipper.ship(delta(5));
        everything_is_in(&shipper).await;
        let there = run.deltas(epoch, START_POSITION, 10).await.unwrap();
        let seqs: Vec<u64> = there.iter().map(|delta| decode_delta(&delta.bytes).unwrap().seq).collect();
        assert_eq!((seqs, shipper.is_lost_by_store()), ((0..6).collect(), false));
        // Nobody has shipped what it wants now.
        knows(7).await;
        shipper.ship(delta(9));
        everything_is_in(&shipper).await;
        assert!(shipper.is_lost_by_store());
    }

    #[test]
    fn what_is_kept_is_bounded() {
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
