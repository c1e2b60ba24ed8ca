//! The sessions of one server: relays under way, and releases that the store has not yet confirmed.
//! It keeps no slots; the store does. [`super::connect`] adds sessions, and the server's heartbeat
//! finds those whose worker is lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use squall_coord::{ReleaseCause, SlotSessionId, SlotStore};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{error_text::with_causes, relay::frame::CloseFrame};

/// Heartbeats in a row in which the store does not know a session before its worker counts as lost. A
/// store that lost its data knows no session until the worker's next offer.
const MAX_MISSES: u32 = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const RELEASE_ATTEMPTS: u32 = 20;

/// The sessions of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct SessionRegistry {
    open: Arc<Mutex<HashMap<SlotSessionId, OpenSession>>>,
    releases: mpsc::UnboundedSender<(SlotSessionId, ReleaseCause)>,
}

struct OpenSession {
    worker: String,
    key: String,
    misses: u32,
    stop: Option<oneshot::Sender<CloseFrame>>,
}

/// Releases for [`release_sessions`].
pub(crate) type ReleaseReceiver = mpsc::UnboundedReceiver<(SlotSessionId, ReleaseCause)>;

/// A claimed session. Dropping it releases it, also when the client leaves while it waits.
pub(crate) struct ClaimedSession {
    registry: SessionRegistry,
    pub(crate) id: SlotSessionId,
    /// `None` releases nothing.
    pub(crate) cause: Option<ReleaseCause>,
}

impl Drop for ClaimedSession {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
        // Fails only when the server has ended; its sessions end with its membership.
        if let Some(cause) = self.cause {
            let _ = self.registry.releases.send((self.id.clone(), cause));
        }
    }
}

impl SessionRegistry {
    pub(crate) fn new() -> (Self, ReleaseReceiver) {
        // Unbounded, because dropping cannot wait; it holds at most one entry per client.
        let (releases, receiver) = mpsc::unbounded_channel();
        (Self { open: Arc::default(), releases }, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SlotSessionId, OpenSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that is about to be claimed.
    pub(crate) fn claim(&self) -> ClaimedSession {
        self.attached(SlotSessionId::unique())
    }

    /// A session that has a slot already.
    pub(crate) fn attached(&self, id: SlotSessionId) -> ClaimedSession {
        ClaimedSession { registry: self.clone(), id, cause: Some(ReleaseCause::Ended) }
    }

    /// Adds a session whose relay begins.
    pub(crate) fn open(&self, session: &ClaimedSession, worker: &str, key: &str) -> oneshot::Receiver<CloseFrame> {
        let (stop, stopped) = oneshot::channel();
        let open = OpenSession { worker: worker.to_owned(), key: key.to_owned(), misses: 0, stop: Some(stop) };
        self.lock().insert(session.id.clone(), open);
        stopped
    }

    /// Number of relays.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends all sessions with `close`.
    pub(crate) fn end_all(&self, close: &CloseFrame) {
        for open in self.lock().values_mut() {
            open.stop.take().map(|stop| stop.send(close.clone()));
        }
    }

    /// Ends the sessions of keys that are not valid.
    pub(crate) fn end_revoked(&self, is_valid: impl Fn(&str) -> bool) {
        for open in self.lock().values_mut().filter(|open| !is_valid(&open.key)) {
            let close = CloseFrame::new(1008, format!("squall: the API key {} was revoked", open.key));
            open.stop.take().map(|stop| stop.send(close));
        }
    }

    /// Compares the sessions with those that the store knows, and ends those of lost workers.
    pub(crate) fn compare(&self, known: &[SlotSessionId]) {
        let known: HashSet<&SlotSessionId> = known.iter().collect();
        for (id, open) in self.lock().iter_mut() {
            open.misses = if known.contains(id) { 0 } else { open.misses + 1 };
            if open.misses >= MAX_MISSES
                && let Some(stop) = open.stop.take()
            {
                let _ = stop.send(worker_lost(&open.worker, id));
            }
        }
    }
}

/// The close frame for a client whose worker is lost.
pub(crate) fn worker_lost(worker: &str, session: &SlotSessionId) -> CloseFrame {
    CloseFrame::new(1011, format!("squall: worker {worker} was lost (session {session})"))
}

/// Releases sessions in the store until `ended`, and then those that are left.
pub(crate) async fn release_sessions<S: SlotStore>(store: S, mut releases: ReleaseReceiver, ended: &CancellationToken) {
    loop {
        let next = tokio::select! {
            biased;
            next = releases.recv() => next,
            () = ended.cancelled() => None,
        };
        let Some((id, cause)) = next else { return };
        release_with_retries(&store, &id, cause).await;
    }
}

async fn release_with_retries<S: SlotStore>(store: &S, id: &SlotSessionId, cause: ReleaseCause) {
    for _ in 0..RELEASE_ATTEMPTS {
        match store.release(id, cause).await {
            Ok(_) => return,
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(session = %id, error, "a session could not be released; trying again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
