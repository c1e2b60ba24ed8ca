//! The slot store of this process: the default for a grid in one process, and the model that tests
//! compare the Redis scripts with.
//! It does not outlive the process. Its clock is tokio's, so a paused runtime makes it
//! deterministic.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    AttachOutcome, ClaimOutcome, EndReason, OfferOutcome, ReleaseCause, SlotAttach, SlotClaim, SlotGrant, SlotOffer,
    SlotSessionId, SlotSnapshot, SlotStore, SlotWorkerId, StoredApiKey,
    records::{ANY_VERSION, OfferRecord, SessionRecord, SessionState, TicketRecord},
};
use crate::{MemberId, Revision, StoreError};

/// How long a released session is not adopted again, because an offer that lists it may be on its
/// way.
const RELEASED_FOR: Duration = Duration::from_secs(10);
/// How long the store knows that an API key was revoked.
const REVOKED_FOR: Duration = Duration::from_secs(86_400);

/// A slot store in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemorySlotStore {
    state: Arc<Mutex<SlotState>>,
    grants: Arc<Notify>,
}

#[derive(Debug)]
struct SlotState {
    /// The clock counts from here.
    origin: Instant,
    skew: Duration,
    workers: BTreeMap<SlotWorkerId, WorkerEntry>,
    servers: BTreeMap<MemberId, u64>,
    sessions: BTreeMap<SlotSessionId, SessionEntry>,
    /// In order of arrival.
    queue: BTreeMap<u64, Ticket>,
    last_arrival: u64,
    released: HashMap<SlotSessionId, u64>,
    /// Servers whose membership ended, and until when that is known.
    lost: HashMap<MemberId, u64>,
    notifications: u64,
    api_keys: BTreeMap<String, StoredApiKey>,
    /// Ids of revoked keys, and until when that is known.
    revoked_api_keys: BTreeMap<String, u64>,
}

impl Default for SlotState {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            skew: Duration::ZERO,
            workers: BTreeMap::new(),
            servers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            queue: BTreeMap::new(),
            last_arrival: 0,
            released: HashMap::new(),
            lost: HashMap::new(),
            notifications: 0,
            api_keys: BTreeMap::new(),
            revoked_api_keys: BTreeMap::new(),
        }
    }
}

#[derive(Debug)]
struct WorkerEntry {
    offer: OfferRecord,
    expires_at: u64,
}

#[derive(Debug)]
struct SessionEntry {
    worker: SlotWorkerId,
    record: SessionRecord,
    /// When the worker must have listed it.
    dial_until: u64,
}

#[derive(Debug)]
struct Ticket {
    session: SlotSessionId,
    claim: TicketRecord,
    until: u64,
}

impl MemorySlotStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.lock().skew += by;
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().expect("no operation panics while it holds the lock")
    }

    /// Sweeps, performs `step`, gives free slots to waiting claims, and wakes their waiters.
    fn run_step<T>(&self, step: impl FnOnce(&mut SlotState, u64) -> T) -> T {
        let mut state = self.lock();
        let now = millis(state.origin.elapsed() + state.skew);
        let before = state.notifications;
        state.sweep(now);
        state.serve_waiting(now);
        let outcome = step(&mut state, now);
        state.serve_waiting(now);
        if state.notifications > before {
            self.grants.notify_waiters();
        }
        outcome
    }
}

impl SlotState {
    fn sweep(&mut self, now: u64) {
        self.workers.retain(|_, entry| entry.expires_at > now);
        for (server, _) in self.servers.extract_if(.., |_, deadline| *deadline <= now) {
            self.lost.insert(server, now + millis(RELEASED_FOR));
        }
        self.released.retain(|_, until| *until > now);
        let (workers, servers) = (&self.workers, &self.servers);
        self.sessions.retain(|_, session| workers.contains_key(&session.worker));
        // Their worker has not listed them.
        let never_began: Vec<SlotSessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                let granted = session.record.state == SessionState::Granted;
                let server_alive = servers.contains_key(&MemberId::new(session.record.server.as_str()));
                granted && (!server_alive || session.dial_until <= now)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in never_began {
            self.remove_session_that_never_began(&id);
        }
        let servers = &self.servers;
        self.queue.retain(|_, ticket| {
            ticket.until > now && servers.contains_key(&MemberId::new(ticket.claim.server.as_str()))
        });
    }

    /// Removes a session, and takes it back from its worker's lifetime.
    fn remove_session_that_never_began(&mut self, id: &SlotSessionId) -> Option<SessionEntry> {
        let session = self.sessions.remove(id)?;
        if let Some(entry) = self.workers.get_mut(&session.worker) {
            entry.offer.lifetime = entry.offer.lifetime.saturating_sub(1);
        }
        Some(session)
    }

    fn active(&self, worker: &SlotWorkerId) -> u32 {
        let count = self.sessions.values().filter(|session| session.worker == *worker).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Sessions until the worker's limit and sessions now, if the worker can take one more.
    fn rank(&self, worker: &SlotWorkerId, offer: &OfferRecord) -> Option<(u64, u32)> {
        let left = match offer.max_lifetime {
            0 => u64::MAX,
            limit => limit.saturating_sub(offer.lifetime),
        };
        let active = self.active(worker);
        let open = !offer.draining && !offer.drain_wish && !offer.unreachable && active < offer.slots && left > 0;
        open.then_some((left, active))
    }

    /// The worker that is nearest to its lifetime limit but not within the margin, so that workers
    /// reach their limits one after another.
    fn choose(&self, kind: &str, version: &str) -> Option<SlotWorkerId> {
        let fits = |worker: &SlotWorkerId, offer: &OfferRecord| worker.kind() == kind && offer.fits(version);
        let fitting: Vec<_> = self.workers.iter().filter(|(worker, entry)| fits(worker, &entry.offer)).collect();
        let mut ranked: Vec<(u64, u32, &SlotWorkerId, u64)> = fitting
            .iter()
            .filter_map(|(worker, entry)| {
                let (left, active) = self.rank(worker, &entry.offer)?;
                Some((left, active, *worker, entry.offer.max_lifetime))
            })
            .collect();
        ranked.sort_unstable();
        let (_, _, first, limit) = ranked.first()?;
        let margin = if *limit == 0 { 0 } else { (limit / fitting.len() as u64).max(1) };
        let outside_margin = ranked.iter().find(|(left, ..)| *left > margin).map(|(_, _, worker, _)| *worker);
        Some(outside_margin.unwrap_or(first).clone())
    }

    fn grant(&mut self, session: SlotSessionId, claim: &TicketRecord, worker: &SlotWorkerId, now: u64) {
        let Some(entry) = self.workers.get_mut(worker) else { return };
        entry.offer.lifetime += 1;
        let record = SessionRecord {
            worker: worker.to_string(),
            version: entry.offer.version_for(&claim.version),
            server: claim.server.clone(),
            key: claim.key.clone(),
            since: now,
            state: SessionState::Granted,
            ending: false,
            reserved: claim.reserved,
            detached: false,
        };
        self.sessions.insert(session, SessionEntry { worker: worker.clone(), record, dial_until: now + claim.dial });
    }

    fn granted(&self, session: &SlotSessionId) -> Option<ClaimOutcome> {
        self.grant_of(session).map(ClaimOutcome::Granted)
    }

    fn grant_of(&self, session: &SlotSessionId) -> Option<SlotGrant> {
        let session = self.sessions.get(session)?;
        let offer = &self.workers.get(&session.worker)?.offer;
        Some(SlotGrant {
            worker: session.worker.clone(),
            version: session.record.version.clone(),
            endpoint: offer.endpoint.clone(),
            secret: offer.secret.clone(),
        })
    }

    fn attach(&mut self, attach: &SlotAttach, now: u64) -> AttachOutcome {
        if !self.servers.contains_key(&attach.server) {
            return AttachOutcome::NotMember;
        }
        let of_key = |record: &SessionRecord| attach.key.as_ref().is_none_or(|key| record.key == *key);
        let Some(session) = self.sessions.get_mut(&attach.session).filter(|session| of_key(&session.record)) else {
            let ended = self.released.contains_key(&attach.session);
            return if ended { AttachOutcome::Ended } else { AttachOutcome::Unknown };
        };
        let record = &mut session.record;
        if record.ending {
            return AttachOutcome::Ended;
        }
        if !record.reserved && !record.detached {
            return AttachOutcome::Taken;
        }
        let begun = record.detached;
        (record.reserved, record.detached) = (false, false);
        record.server = attach.server.as_str().to_owned();
        session.dial_until = now + millis(attach.listed_within);
        let grant = self.grant_of(&attach.session);
        grant.map_or(AttachOutcome::Unknown, |grant| AttachOutcome::Attached { grant, begun })
    }

    fn serve_waiting(&mut self, now: u64) {
        let workers: Vec<SlotWorkerId> = self.workers.keys().cloned().collect();
        let mut served = false;
        for worker in workers {
            while let Some(arrival) = self.first_waiting(&worker) {
                let Some(ticket) = self.queue.remove(&arrival) else { break };
                self.grant(ticket.session, &ticket.claim, &worker, now);
                served = true;
            }
        }
        self.notifications += u64::from(served);
    }

    /// The arrival of the claim that has waited longest for this worker, if the worker has a free slot.
    fn first_waiting(&self, worker: &SlotWorkerId) -> Option<u64> {
        let offer = &self.workers.get(worker)?.offer;
        self.rank(worker, offer)?;
        let fits = |claim: &TicketRecord| claim.kind == worker.kind() && offer.fits(&claim.version);
        self.queue.iter().find(|(_, ticket)| fits(&ticket.claim)).map(|(arrival, _)| *arrival)
    }

    /// Sessions and waiting claims of a key.
    fn count_of_key(&self, key: &str) -> u64 {
        let sessions = self.sessions.values().filter(|session| session.record.key == key).count();
        sessions as u64 + self.waiting_of_key(key)
    }

    fn waiting_of_key(&self, key: &str) -> u64 {
        self.queue.values().filter(|ticket| ticket.claim.key == key).count() as u64
    }

    /// Claims of the same queue before `arrival`.
    fn ahead(&self, claim: &TicketRecord, arrival: u64) -> u64 {
        let same = |ticket: &&Ticket| ticket.claim.kind == claim.kind && ticket.claim.version == claim.version;
        self.queue.range(..arrival).map(|(_, ticket)| ticket).filter(same).count() as u64
    }

    fn claim(&mut self, claim: &SlotClaim, now: u64) -> ClaimOutcome {
        if !self.servers.contains_key(&claim.server) {
            return ClaimOutcome::NotMember;
        }
        if let Some(granted) = self.granted(&claim.session) {
            return granted;
        }
        let ticket = TicketRecord {
            kind: claim.kind.clone(),
            version: claim.version.clone().unwrap_or_else(|| ANY_VERSION.to_owned()),
            key: claim.key.clone(),
            server: claim.server.as_str().to_owned(),
            dial: millis(claim.listed_within),
            reserved: claim.reserved,
            since: now,
        };
        let waiting =
            |ahead, state: &Self| ClaimOutcome::Waiting { ahead, seen_notifications: Revision(state.notifications) };
        let versions: BTreeSet<&String> = self
            .workers
            .iter()
            .filter(|(id, _)| id.kind() == claim.kind)
            .flat_map(|(_, entry)| &entry.offer.versions)
            .collect();
        if ticket.version != ANY_VERSION && !versions.is_empty() && !versions.contains(&ticket.version) {
            let versions = versions.into_iter().cloned().collect();
            self.queue.retain(|_, ticket| ticket.session != claim.session);
            return ClaimOutcome::NoVersion(versions);
        }
        if let Some((arrival, _)) = self.queue.iter().find(|(_, ticket)| ticket.session == claim.session) {
            return waiting(self.ahead(&ticket, *arrival), self);
        }
        if claim.key_limit.is_some_and(|limit| self.count_of_key(&claim.key) >= limit) {
            return ClaimOutcome::KeyFull;
        }
        if let Some(worker) = self.choose(&ticket.kind, &ticket.version) {
            self.grant(claim.session.clone(), &ticket, &worker, now);
            return self.granted(&claim.session).expect("granted just now");
        }
        if claim.wait.is_zero() || self.queue.len() as u64 >= claim.queue_limit {
            return ClaimOutcome::QueueFull;
        }
        if claim.key_queue_limit.is_some_and(|limit| self.waiting_of_key(&claim.key) >= limit) {
            return ClaimOutcome::KeyQueueFull;
        }
        self.last_arrival += 1;
        let ahead = self.ahead(&ticket, self.last_arrival);
        let queued = Ticket { session: claim.session.clone(), claim: ticket, until: now + millis(claim.wait) };
        self.queue.insert(self.last_arrival, queued);
        waiting(ahead, self)
    }

    fn offer(&mut self, offer: &SlotOffer, expires_at: u64, now: u64) -> OfferOutcome {
        let mut record = OfferRecord::new(offer);
        let old = self.workers.get(&offer.worker).map(|old| &old.offer);
        if old.is_some_and(|old| old.secret != record.secret) {
            return OfferOutcome { name_taken: true, ..OfferOutcome::default() };
        }
        record.drain_wish = old.is_some_and(|old| old.drain_wish);
        let mut outcome = OfferOutcome { drain: record.drain_wish, ..OfferOutcome::default() };
        for held in &offer.sessions {
            if let Some(session) = self.sessions.get_mut(&held.id) {
                session.record.list(held);
            } else if self.released.contains_key(&held.id) {
                outcome.end.push((held.id.clone(), EndReason::Deleted));
                continue;
            } else {
                let adopted = SessionRecord {
                    worker: offer.worker.to_string(),
                    version: held.version.clone(),
                    server: held.server.as_str().to_owned(),
                    key: held.key.clone(),
                    since: now,
                    state: SessionState::Held,
                    ending: false,
                    reserved: false,
                    detached: held.detached,
                };
                let entry = SessionEntry { worker: offer.worker.clone(), record: adopted, dial_until: now };
                self.sessions.insert(held.id.clone(), entry);
            }
            if self.sessions.get(&held.id).is_some_and(|session| session.record.ending) {
                outcome.end.push((held.id.clone(), EndReason::Deleted));
            } else if !held.detached && !held.direct && !self.servers.contains_key(&held.server) {
                let lost = self.lost.contains_key(&held.server);
                let reason = if lost { EndReason::ServerLost } else { EndReason::ServerUnknown };
                outcome.end.push((held.id.clone(), reason));
            }
        }
        let listed: BTreeSet<&SlotSessionId> = offer.sessions.iter().map(|held| &held.id).collect();
        let is_over = |id: &SlotSessionId, session: &SessionEntry| {
            let listed_before = session.record.state == SessionState::Held;
            session.worker == offer.worker && !listed.contains(id) && (listed_before || offer.ended.contains(id))
        };
        for (id, _) in self.sessions.extract_if(.., |id, session| is_over(id, session)) {
            self.released.insert(id, now + millis(RELEASED_FOR));
        }
        let unlisted =
            self.sessions.iter().filter(|(id, session)| session.worker == offer.worker && !listed.contains(id));
        outcome.pending = unlisted.count() as u64;
        record.lifetime += outcome.pending;
        self.workers.insert(offer.worker.clone(), WorkerEntry { offer: record, expires_at });
        outcome
    }

    fn release(&mut self, id: &SlotSessionId, cause: ReleaseCause, now: u64) -> bool {
        if cause == ReleaseCause::Detached {
            return self.sessions.get_mut(id).map(|session| session.record.detached = true).is_some();
        }
        let queued = self.queue.iter().find(|(_, ticket)| ticket.session == *id).map(|(arrival, _)| *arrival);
        if let Some(arrival) = queued {
            return self.queue.remove(&arrival).is_some();
        }
        let removed = match cause {
            ReleaseCause::Ended | ReleaseCause::Detached => self.sessions.remove(id),
            ReleaseCause::NeverBegan | ReleaseCause::WorkerUnreachable => self.remove_session_that_never_began(id),
        };
        let Some(session) = removed else { return false };
        self.released.insert(id.clone(), now + millis(RELEASED_FOR));
        if let Some(entry) = self.workers.get_mut(&session.worker) {
            entry.offer.unreachable |= cause == ReleaseCause::WorkerUnreachable;
        }
        true
    }

    fn end_session(&mut self, id: &SlotSessionId, now: u64) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        if session.record.reserved {
            return self.release(id, ReleaseCause::NeverBegan, now);
        }
        session.record.ending = true;
        true
    }

    fn snapshot(&self, now: u64) -> SlotSnapshot {
        let workers = self.workers.iter();
        let sessions = self.sessions.iter();
        let mut snapshot = SlotSnapshot {
            workers: workers.map(|(id, entry)| entry.offer.clone().view(id.clone(), self.active(id))).collect(),
            sessions: sessions.filter_map(|(id, entry)| entry.record.clone().view(id.clone(), now)).collect(),
            servers: self.servers.keys().cloned().collect(),
            ..SlotSnapshot::default()
        };
        for Ticket { claim, .. } in self.queue.values() {
            snapshot.add_waiting(claim.kind.clone(), now.saturating_sub(claim.since));
        }
        snapshot.waiting.sort_unstable();
        snapshot
    }
}

impl SlotStore for MemorySlotStore {
    async fn offer(&self, offer: &SlotOffer, ttl: Duration) -> Result<OfferOutcome, StoreError> {
        Ok(self.run_step(|state, now| state.offer(offer, now + millis(ttl), now)))
    }

    async fn leave_worker(&self, worker: &SlotWorkerId) -> Result<(), StoreError> {
        self.run_step(|state, _| {
            state.workers.remove(worker);
            state.sessions.retain(|_, session| session.worker != *worker);
        });
        Ok(())
    }

    async fn renew_server(&self, server: &MemberId, ttl: Duration) -> Result<Vec<SlotSessionId>, StoreError> {
        Ok(self.run_step(|state, now| {
            state.lost.remove(server);
            state.lost.retain(|_, until| *until > now);
            state.servers.insert(server.clone(), now + millis(ttl));
            let own = state.sessions.iter().filter(|(_, session)| session.record.server == server.as_str());
            own.map(|(id, _)| id.clone()).collect()
        }))
    }

    async fn leave_server(&self, server: &MemberId) -> Result<(), StoreError> {
        self.run_step(|state, now| {
            state.servers.remove(server);
            state.lost.insert(server.clone(), now + millis(RELEASED_FOR));
            state.sweep(now);
        });
        Ok(())
    }

    async fn claim(&self, claim: &SlotClaim) -> Result<ClaimOutcome, StoreError> {
        Ok(self.run_step(|state, now| state.claim(claim, now)))
    }

    async fn attach(&self, attach: &SlotAttach) -> Result<AttachOutcome, StoreError> {
        Ok(self.run_step(|state, now| state.attach(attach, now)))
    }

    async fn wait_for_grant(
        &self,
        session: &SlotSessionId,
        _seen: Revision,
        within: Duration,
    ) -> Result<(), StoreError> {
        let waiting = async {
            loop {
                let mut notified = pin!(self.grants.notified());
                notified.as_mut().enable();
                if !self.lock().queue.values().any(|ticket| ticket.session == *session) {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(within, waiting).await;
        Ok(())
    }

    async fn release(&self, session: &SlotSessionId, cause: ReleaseCause) -> Result<bool, StoreError> {
        Ok(self.run_step(|state, now| state.release(session, cause, now)))
    }

    async fn end_session(&self, session: &SlotSessionId) -> Result<bool, StoreError> {
        Ok(self.run_step(|state, now| state.end_session(session, now)))
    }

    async fn drain(&self, worker: &SlotWorkerId) -> Result<bool, StoreError> {
        Ok(self.run_step(|state, _| state.workers.get_mut(worker).map(|entry| entry.offer.drain_wish = true).is_some()))
    }

    async fn snapshot(&self) -> Result<SlotSnapshot, StoreError> {
        Ok(self.run_step(|state, now| state.snapshot(now)))
    }

    async fn add_api_key(&self, key: &StoredApiKey) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let free = !state.api_keys.contains_key(&key.name);
        state.api_keys.entry(key.name.clone()).or_insert_with(|| key.clone());
        Ok(free)
    }

    async fn revoke_api_key(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.run_step(|state, now| {
            let Some(key) = state.api_keys.remove(name) else { return false };
            state.revoked_api_keys.retain(|_, until| *until > now);
            state.revoked_api_keys.insert(key.id(), now + millis(REVOKED_FOR));
            true
        }))
    }

    async fn revoked_api_keys(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().revoked_api_keys.keys().cloned().collect())
    }

    async fn api_keys(&self) -> Result<Vec<StoredApiKey>, StoreError> {
        Ok(self.lock().api_keys.values().cloned().collect())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
