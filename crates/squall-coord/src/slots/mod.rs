//! Slots of workers that many servers share: a worker offers some, a server claims one for each
//! session. This module has the operations of a slot store and their outcomes.
//! It does not know what happens in a session, and it opens no connection to a worker. squall-grid
//! uses it for browsers: the kind of a worker is its browser.

mod api_keys;
mod memory;
mod records;
mod redis;

use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

pub use api_keys::{ApiKeyScope, StoredApiKey, api_key_id, api_key_name};
pub use memory::MemorySlotStore;
pub use redis::RedisSlotStore;

use crate::{MemberId, Revision, StoreError};

const MAX_NAME_LENGTH: usize = 64;

/// The id of a session. It is also the id of its claim, so that a repeated claim counts once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotSessionId(String);

impl SlotSessionId {
    /// A new unique id.
    pub fn unique() -> Self {
        Self(crate::unique_id())
    }

    /// An id that came from outside: 1 to 64 letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    /// The id as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SlotSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker: its kind and its name. Two live workers of a kind must not share a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotWorkerId {
    kind: String,
    name: String,
}

impl SlotWorkerId {
    /// Checks kind and name: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn new(kind: &str, name: &str) -> Option<Self> {
        (is_name(kind) && is_name(name)).then(|| Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    /// Reads `kind:name`.
    pub fn parse(text: &str) -> Option<Self> {
        text.split_once(':').and_then(|(kind, name)| Self::new(kind, name))
    }

    /// What its slots are for.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its name among workers of its kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for SlotWorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

/// Names are parts of Redis keys.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= MAX_NAME_LENGTH && text.chars().all(allowed)
}

/// What a worker offers. It offers again at every heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotOffer {
    /// The worker.
    pub worker: SlotWorkerId,
    /// The versions that a claim may ask for, at least one. A claim of any version gets the first.
    pub versions: Vec<String>,
    /// Where servers reach it.
    pub endpoint: String,
    /// What a server must show to the worker. No view for other programs contains it.
    pub secret: String,
    /// The most sessions at once.
    pub slots: u32,
    /// Sessions that it has begun since its start, with those that it lists.
    pub lifetime: u64,
    /// The worker takes no more sessions when `lifetime` reaches this number.
    pub max_lifetime: Option<u64>,
    /// Whether it takes no more sessions.
    pub draining: bool,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The sessions that it has.
    pub sessions: Vec<HeldSession>,
    /// Sessions that ended before an offer listed them. Without them the store would count each twice, in
    /// `lifetime` and as one that is still to come.
    pub ended: Vec<SlotSessionId>,
}

/// A session that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Its id.
    pub id: SlotSessionId,
    /// The [id](api_key_id) of the API key of its claim.
    pub key: String,
    /// The version that it uses.
    pub version: String,
    /// The server that claimed it or attached to it last.
    pub server: MemberId,
    /// Whether its client is connected to the worker itself, so that it does not end with its server.
    pub direct: bool,
    /// Whether no client is connected to it, so that a server may attach.
    pub detached: bool,
}

/// What a worker should do after an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferOutcome {
    /// The worker should take no more sessions, and leave when it has none.
    pub drain: bool,
    /// How many granted sessions the worker has not listed yet. Their servers or clients still come.
    pub pending: u64,
    /// Another live worker has this name, and the offer changed nothing.
    pub name_taken: bool,
    /// Sessions that it should end.
    pub end: Vec<(SlotSessionId, EndReason)>,
}

/// Why a worker should end a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// [`SlotStore::end_session`] asked for it, or its server has released it.
    Deleted,
    /// The server's membership has ended. After an outage of the store this can be said of a server that
    /// is just about to renew it.
    ServerLost,
    /// The store does not know the server: it has lost its data, until the server's next heartbeat, or
    /// the server was lost long ago.
    ServerUnknown,
}

/// A claim of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotClaim {
    /// The id of the session to be.
    pub session: SlotSessionId,
    /// The kind of worker.
    pub kind: String,
    /// The version that the worker must have; `None` for any.
    pub version: Option<String>,
    /// The [id](api_key_id) of the client's API key, for limits; empty without one.
    pub key: String,
    /// The server that claims.
    pub server: MemberId,
    /// How long the claim may wait; zero to get an outcome at once.
    pub wait: Duration,
    /// How long the worker may take to list the session before its slot is free again.
    pub listed_within: Duration,
    /// Whether the session waits for [`SlotStore::attach`] instead of being dialled at once.
    pub reserved: bool,
    /// The most claims that wait, of all servers.
    pub queue_limit: u64,
    /// The most sessions and waiting claims of the key.
    pub key_limit: Option<u64>,
    /// The most waiting claims of the key, so that one key does not fill the queue.
    pub key_queue_limit: Option<u64>,
}

/// A granted slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotGrant {
    /// The worker.
    pub worker: SlotWorkerId,
    /// The version of the session.
    pub version: String,
    /// Where to reach it.
    pub endpoint: String,
    /// What to show to it.
    pub secret: String,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The session has a slot.
    Granted(SlotGrant),
    /// The claim waits. It gets a slot without another call; [`SlotStore::wait_for_grant`] waits for
    /// that, and a repeated claim returns it.
    Waiting {
        /// How many earlier claims wait for the same kind and version.
        ahead: u64,
        /// Notifications up to this one are not for this claim.
        seen_notifications: Revision,
    },
    /// No slot is free, and the queue has no place or the claim did not want to wait.
    QueueFull,
    /// The key has as many sessions and waiting claims as it may have.
    KeyFull,
    /// No slot is free, and the key has as many waiting claims as it may have.
    KeyQueueFull,
    /// Workers of this kind have only these other versions.
    NoVersion(Vec<String>),
    /// The server is not a member.
    NotMember,
}

/// A server that connects a client to a session that has a slot already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotAttach {
    /// The session.
    pub session: SlotSessionId,
    /// The server that attaches.
    pub server: MemberId,
    /// The [id](api_key_id) of the API key that the session must belong to; `None` for any.
    pub key: Option<String>,
    /// How long the worker may take to list the session before its slot is free again.
    pub listed_within: Duration,
}

/// The outcome of an attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachOutcome {
    /// The session belongs to the server that attached.
    Attached {
        /// Its slot.
        grant: SlotGrant,
        /// Whether the session has had a client already, so that it counts in its worker's lifetime.
        begun: bool,
    },
    /// A client is connected to the session.
    Taken,
    /// The session is over.
    Ended,
    /// There is no such session of this key.
    Unknown,
    /// The server is not a member.
    NotMember,
}

/// How a session ended, as its server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// It is over.
    Ended,
    /// No browser took it: the worker refused it, or the client left first. It costs its worker no lifetime.
    NeverBegan,
    /// The server could not reach the worker, so it never began. The worker gets no more sessions until its next
    /// offer.
    WorkerUnreachable,
    /// The client left, and the worker keeps the session for another.
    Detached,
}

/// A live worker at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWorkerView {
    /// The worker.
    pub worker: SlotWorkerId,
    /// Its versions.
    pub versions: Vec<String>,
    /// Where servers reach it.
    pub endpoint: String,
    /// The most sessions at once.
    pub slots: u32,
    /// Its sessions now.
    pub active: u32,
    /// Its sessions since its start.
    pub lifetime: u64,
    /// Its lifetime limit.
    pub max_lifetime: Option<u64>,
    /// Whether it takes no more sessions.
    pub draining: bool,
    /// Whether a server could not reach it since its last offer.
    pub unreachable: bool,
}

/// A session at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSessionView {
    /// Its id.
    pub id: SlotSessionId,
    /// Its worker.
    pub worker: SlotWorkerId,
    /// The version that it uses.
    pub version: String,
    /// The server that claimed it.
    pub server: MemberId,
    /// The [id](api_key_id) of the API key of its claim.
    pub key: String,
    /// How long it has its slot, by the store's clock.
    pub age: Duration,
    /// Whether its worker has listed it.
    pub held: bool,
    /// Whether its worker should end it.
    pub ending: bool,
    /// Whether a server may attach: it was reserved, or its client left.
    pub attachable: bool,
}

impl SlotWorkerView {
    /// Its state, as programs show it.
    pub fn state(&self) -> &'static str {
        match (self.draining, self.unreachable) {
            (true, _) => "draining",
            (false, true) => "unreachable",
            (false, false) => "available",
        }
    }
}

impl SlotSessionView {
    /// The name of its API key; empty without one.
    pub fn key_name(&self) -> &str {
        api_key_name(&self.key)
    }

    /// Its state, as programs show it. A reserved session is pending until its client connects.
    pub fn state(&self) -> &'static str {
        match (self.ending, self.held, self.attachable) {
            (true, ..) => "ending",
            (false, true, true) => "detached",
            (false, true, false) => "running",
            (false, false, _) => "pending",
        }
    }
}

/// Everything at one instant, sorted by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSnapshot {
    /// Live workers.
    pub workers: Vec<SlotWorkerView>,
    /// Sessions.
    pub sessions: Vec<SlotSessionView>,
    /// The kind of each waiting claim.
    pub waiting: Vec<String>,
    /// How long the oldest waiting claim of each kind has waited, in milliseconds.
    pub queue_oldest_ms: BTreeMap<String, u64>,
    /// Live servers.
    pub servers: Vec<MemberId>,
}

impl SlotSnapshot {
    fn add_waiting(&mut self, kind: String, waited_ms: u64) {
        let oldest = self.queue_oldest_ms.entry(kind.clone()).or_default();
        *oldest = waited_ms.max(*oldest);
        self.waiting.push(kind);
    }
}

/// Slots, sessions and the queue of claims. Every method except [`SlotStore::wait_for_grant`] is
/// atomic, and first removes what has expired by the store's clock: workers and servers without a
/// heartbeat, sessions that their worker did not list in time, and claims that waited too long.
pub trait SlotStore: Clone + Send + Sync + 'static {
    /// Offers slots for `ttl`. Sessions that the store does not know are adopted unless they were just
    /// released, and sessions that the worker listed earlier and lists no more are over. A worker with
    /// another secret than the live worker of the same name is refused.
    fn offer(&self, offer: &SlotOffer, ttl: Duration) -> impl Future<Output = Result<OfferOutcome, StoreError>> + Send;

    /// Ends a worker's membership and its sessions. A second leave changes nothing.
    fn leave_worker(&self, worker: &SlotWorkerId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes a server a member for another `ttl`, and returns its sessions.
    fn renew_server(
        &self,
        server: &MemberId,
        ttl: Duration,
    ) -> impl Future<Output = Result<Vec<SlotSessionId>, StoreError>> + Send;

    /// Ends a server's membership, its waiting claims, and the sessions that no worker has listed.
    fn leave_server(&self, server: &MemberId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Claims a slot.
    fn claim(&self, claim: &SlotClaim) -> impl Future<Output = Result<ClaimOutcome, StoreError>> + Send;

    /// Gives a reserved or detached session to a server.
    fn attach(&self, attach: &SlotAttach) -> impl Future<Output = Result<AttachOutcome, StoreError>> + Send;

    /// Waits until a waiting claim got a slot after `seen`, or for `within` at most.
    fn wait_for_grant(
        &self,
        session: &SlotSessionId,
        seen: Revision,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends a session or a waiting claim, or marks the session as detached. Returns whether there was one.
    fn release(
        &self,
        session: &SlotSessionId,
        cause: ReleaseCause,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Asks the worker of a session to end it, or ends a reserved session, which its worker does not know.
    /// Returns whether there is such a session.
    fn end_session(&self, session: &SlotSessionId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Asks a worker to take no more sessions and to leave when it has none. Returns whether there is
    /// such a worker.
    fn drain(&self, worker: &SlotWorkerId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Everything at one instant.
    fn snapshot(&self) -> impl Future<Output = Result<SlotSnapshot, StoreError>> + Send;

    /// Adds an API key. Returns `false` if its name is taken.
    fn add_api_key(&self, key: &StoredApiKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Removes an API key, and keeps for a day that it was revoked. Returns whether there was one.
    fn revoke_api_key(&self, name: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// All API keys, sorted by name.
    fn api_keys(&self) -> impl Future<Output = Result<Vec<StoredApiKey>, StoreError>> + Send;

    /// The [ids](api_key_id) of the API keys that were revoked during the last day, sorted. A key that the
    /// store has lost is not among them.
    fn revoked_api_keys(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;
}
