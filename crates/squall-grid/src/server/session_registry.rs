//! The sessions of one server: relays under way, and releases that the store has not yet confirmed.
//! It keeps no slots; the store does. [`super::connect`] adds sessions, and the server's heartbeat
//! finds those whose worker is lost.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use squall_coord::{ReleaseCause, SlotSessionId, StoreError, api_key_name};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{error_text::with_causes, relay::frame::CloseFrame};

/// Heartbeats in a row in which the store does not know a session before its worker counts as lost. A
/// store that lost its data knows no session until the worker's next offer.
const MAX_MISSES: u32 = 4;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const RELEASE_ATTEMPTS: u32 = 20;
/// Releases at once, so that a slow one does not keep the slots of others.
const CONCURRENT_RELEASES: usize = 32;
/// How long releases may take when the server has ended. Afterwards the sessions end with its membership.
const LAST_RELEASES: Duration = Duration::from_secs(5);

/// The sessions of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct SessionRegistry {
    open: Arc<Mutex<HashMap<SlotSessionId, OpenSession>>>,
    /// Ends sessions whose relay begins after [`SessionRegistry::end_all`].
    ended: Arc<OnceLock<CloseFrame>>,
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
        // Unbounded, because dropping cannot wait; each entry is a session that had a client.
        let (releases, receiver) = mpsc::unbounded_channel();
        (Self { open: Arc::default(), ended: Arc::default(), releases }, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SlotSessionId, OpenSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that is about to be claimed.
    pub(crate) fn claim(&self) -> ClaimedSession {
        self.attached(SlotSessionId::unique(), false)
    }

    /// A session that has a slot already, and may have had a client.
    pub(crate) fn attached(&self, id: SlotSessionId, begun: bool) -> ClaimedSession {
        let cause = if begun { ReleaseCause::Ended } else { ReleaseCause::NeverBegan };
        ClaimedSession { registry: self.clone(), id, cause: Some(cause) }
    }

    /// Adds a session whose relay begins.
    pub(crate) fn open(&self, session: &ClaimedSession, worker: &str, key: &str) -> oneshot::Receiver<CloseFrame> {
        let (stop, stopped) = oneshot::channel();
        let mut open = OpenSession { worker: worker.to_owned(), key: key.to_owned(), misses: 0, stop: Some(stop) };
        let mut sessions = self.lock();
        if let Some(close) = self.ended.get() {
            open.stop.take().map(|stop| stop.send(close.clone()));
        }
        sessions.insert(session.id.clone(), open);
        stopped
    }

    /// Number of relays.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends all sessions with `close`, and those that begin later.
    pub(crate) fn end_all(&self, close: &CloseFrame) {
        let mut sessions = self.lock();
        let close = self.ended.get_or_init(|| close.clone());
        for open in sessions.values_mut() {
            open.stop.take().map(|stop| stop.send(close.clone()));
        }
    }

    /// Ends the sessions of revoked keys.
    pub(crate) fn end_revoked(&self, is_revoked: impl Fn(&str) -> bool) {
        for open in self.lock().values_mut().filter(|open| is_revoked(&open.key)) {
            let close = CloseFrame::new(1008, format!("squall: the API key {} was revoked", api_key_name(&open.key)));
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

/// Calls `release` for each session until `ended`, and then, for a while, for those that are left.
pub(crate) async fn release_sessions<F>(
    release: impl Fn(SlotSessionId, ReleaseCause) -> F,
    releases: ReleaseReceiver,
    ended: &CancellationToken,
) where
    F: Future<Output = Result<bool, StoreError>>,
{
    let released = stream::unfold(releases, |mut releases| async move {
        let next = tokio::select! {
            biased;
            next = releases.recv() => next,
            () = ended.cancelled() => None,
        };
        next.map(|next| (next, releases))
    });
    let releasing =
        released.for_each_concurrent(CONCURRENT_RELEASES, |(id, cause)| release_with_retries(&release, id, cause));
    let too_late = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_RELEASES).await;
    };
    tokio::select! {
        () = releasing => {}
        () = too_late => tracing::warn!("sessions could not be released; they end with the server's membership"),
    }
}

async fn release_with_retries<F>(
    release: impl Fn(SlotSessionId, ReleaseCause) -> F,
    id: SlotSessionId,
    cause: ReleaseCause,
) where
    F: Future<Output = Result<bool, StoreError>>,
{
    for _ in 0..RELEASE_ATTEMPTS {
        match release(id.clone(), cause).await {
            Ok(_) => return,
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(session = %id, error, "a session could not be released; trying again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> StoreError {
        StoreError::Unreachable(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
    }

    #[tokio::test(start_paused = true)]
    async fn releases_do_not_wait_for_one_another_and_end_with_the_server_if_the_store_is_away() {
        let (registry, releases) = SessionRegistry::new();
        let sessions: Vec<SlotSessionId> = (0..100).map(|_| SlotSessionId::unique()).collect();
        sessions.iter().for_each(|id| drop(registry.attached(id.clone(), true)));
        let (ended, answered) = (CancellationToken::new(), Mutex::new(HashSet::new()));
        let release = |id: SlotSessionId, _| {
            // The store does not answer for every tenth, and is away for every other.
            let hangs = sessions.iter().position(|other| *other == id).is_some_and(|at| at % 10 == 0);
            answered.lock().unwrap().insert(id);
            async move { if hangs { std::future::pending().await } else { Err(unreachable()) } }
        };
        ended.cancel();
        release_sessions(release, releases, &ended).await;
        assert!(answered.lock().unwrap().len() > 30, "the first release has not kept the others");
    }

    #[tokio::test]
    async fn session_whose_relay_begins_after_the_end_ends_at_once() {
        let (registry, _releases) = SessionRegistry::new();
        registry.end_all(&CloseFrame::new(1001, "the end"));
        let session = registry.claim();
        assert_eq!(registry.open(&session, "w1", "").await.unwrap().code, Some(1001));
    }
}
