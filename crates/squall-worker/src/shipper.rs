//! Ships deltas one by one, each as often as it takes. With every delta goes an announcement: how many requests may be out before
//! the next one is in. Only when the store has both may more be sent; so if this process dies, what it may have sent is known.

use squall_coord::{RunStore, Shipped};
use squall_engine::Leash;
use squall_metrics::{Delta, encode};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tracing::{debug, warn};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// A delta on its way, with what each thread may have sent once it is there.
pub(crate) struct Parcel {
    pub(crate) delta: Delta,
    pub(crate) announced: Vec<u64>,
}

/// Hands deltas to the task that ships them.
#[derive(Clone)]
pub(crate) struct Shipper {
    parcels: mpsc::UnboundedSender<Parcel>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    /// The last delta of the run is in.
    done: AtomicBool,
    /// Another run has begun.
    stale: AtomicBool,
}

impl Shipper {
    /// Ships for `source` in run `epoch`; raises `leash` as announcements arrive. Ends when this is dropped and everything is in.
    pub(crate) fn start<R: RunStore>(run: R, epoch: u64, source: String, leash: Leash) -> Shipper {
        let (parcels, receiver) = mpsc::unbounded_channel();
        let state = Arc::<State>::default();
        tokio::spawn(ship_all(run, epoch, source, leash, receiver, state.clone()));
        Shipper { parcels, state }
    }

    pub(crate) fn ship(&self, parcel: Parcel) {
        self.state.waiting.fetch_add(1, Ordering::SeqCst);
        // The task ends before this only if the run is stale, and then nobody wants it.
        let _ = self.parcels.send(parcel);
    }

    /// Deltas that are not in yet.
    pub(crate) fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::SeqCst)
    }

    /// Whether the last delta is in.
    pub(crate) fn is_done(&self) -> bool {
        self.state.done.load(Ordering::SeqCst)
    }

    /// Whether another run has begun, so that nothing more is wanted from this one.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::SeqCst)
    }
}

/// The announcement before a delta's own bytes.
pub(crate) fn parcel_bytes(announced: u64, delta: &Delta) -> Vec<u8> {
    let mut bytes = announced.to_le_bytes().to_vec();
    bytes.extend_from_slice(&encode(delta));
    bytes
}

async fn ship_all<R: RunStore>(
    run: R,
    epoch: u64,
    source: String,
    leash: Leash,
    mut parcels: mpsc::UnboundedReceiver<Parcel>,
    state: Arc<State>,
) {
    while let Some(Parcel { delta, announced }) = parcels.recv().await {
        let total = announced.iter().fold(0, |sum: u64, most| sum.saturating_add(*most));
        let bytes = parcel_bytes(total, &delta);
        let mut retry = FIRST_RETRY;
        loop {
            match run.ship(epoch, &source, delta.seq, &bytes).await {
                Ok(Shipped::Taken | Shipped::Known) => break,
                Ok(Shipped::Stale) => {
                    debug!(epoch, "another run has begun; what was measured in the old one is dropped");
                    state.stale.store(true, Ordering::SeqCst);
                    return;
                }
                Ok(Shipped::Gap(expected)) => {
                    // The store has lost what it had: it was restarted empty.
                    warn!(
                        epoch,
                        seq = delta.seq,
                        expected,
                        "the store has forgotten this run; its measurements are lost"
                    );
                    state.stale.store(true, Ordering::SeqCst);
                    return;
                }
                Err(error) => {
                    debug!(epoch, seq = delta.seq, %error, "a delta could not be shipped yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        announced.iter().enumerate().for_each(|(thread, most)| leash.most(thread, *most));
        state.waiting.fetch_sub(1, Ordering::SeqCst);
        if delta.last {
            state.done.store(true, Ordering::SeqCst);
        }
    }
}
