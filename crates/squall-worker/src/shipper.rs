//! Ships deltas one by one, each as often as it takes. Knows nothing of what they say.

use squall_coord::{RunStore, Shipped};
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

/// Hands deltas to the task that ships them.
#[derive(Clone)]
pub(crate) struct Shipper {
    deltas: mpsc::UnboundedSender<Delta>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    /// Another run has begun.
    stale: AtomicBool,
    /// The store has lost what it had of this one.
    forgotten: AtomicBool,
}

impl Shipper {
    /// Ships for `source` in run `epoch`. Ends when this is dropped and everything is in.
    pub(crate) fn start<R: RunStore>(run: R, epoch: u64, source: String) -> Shipper {
        let (deltas, receiver) = mpsc::unbounded_channel();
        let state = Arc::<State>::default();
        tokio::spawn(ship_all(run, epoch, source, receiver, state.clone()));
        Shipper { deltas, state }
    }

    pub(crate) fn ship(&self, delta: Delta) {
        self.state.waiting.fetch_add(1, Ordering::SeqCst);
        // The task ends before this only if the run is stale or forgotten, and then nobody wants it.
        let _ = self.deltas.send(delta);
    }

    /// Deltas that are not in yet.
    pub(crate) fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::SeqCst)
    }

    /// Whether another run has begun, so that nothing more is wanted from this one.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.stale.load(Ordering::SeqCst)
    }

    /// Whether the store has lost what it had of this run, so that nothing more can follow it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.state.forgotten.load(Ordering::SeqCst)
    }
}

async fn ship_all<R: RunStore>(
    run: R,
    epoch: u64,
    source: String,
    mut deltas: mpsc::UnboundedReceiver<Delta>,
    state: Arc<State>,
) {
    while let Some(delta) = deltas.recv().await {
        let bytes = encode(&delta);
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
                    // It was restarted empty, or a replica that did not have everything took its place.
                    warn!(epoch, seq = delta.seq, expected, "the store has lost what was measured here");
                    state.forgotten.store(true, Ordering::SeqCst);
                    return;
                }
                Err(error) => {
                    debug!(epoch, seq = delta.seq, %error, "a delta could not be shipped yet");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LONGEST_RETRY);
                }
            }
        }
        state.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
