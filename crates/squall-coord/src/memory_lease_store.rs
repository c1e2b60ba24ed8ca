//! The lease store of this process: the default for an embedded fleet, and the model that tests
//! compare the Redis scripts with.
//! It does not outlive the process. Its clock is tokio's, so a paused runtime makes it
//! deterministic.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseEpoch, LeaseHolder, LeaseSnapshot, LeaseStore, LiveMember,
    MemberId, Revision, StoreError, UnitAssignment, UnitId,
};

/// A lease store in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryLeaseStore {
    state: Arc<Mutex<MemoryLeaseState>>,
    /// Wakes waiters in the order in which they began to wait. A watch channel does not, and the
    /// simulation test depends on the order.
    changes: Arc<Notify>,
}

#[derive(Debug, Default)]
struct MemoryLeaseState {
    skew: Duration,
    revision: Revision,
    /// The revision of the last assignment.
    assignment_revision: Revision,
    last_epoch: u64,
    members: BTreeMap<MemberId, MemberEntry>,
    leases: BTreeMap<UnitId, LeaseHolder>,
}

#[derive(Debug)]
struct MemberEntry {
    joined: Instant,
    /// Orders members that joined at the same instant.
    join_order: u64,
    expires_at: Instant,
    leaving: bool,
    assigned: Vec<UnitId>,
}

impl MemoryLeaseStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.state.lock().expect("no operation panics while it holds the lock").skew += by;
    }

    /// The store's clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.state.lock().expect("no operation panics while it holds the lock").skew
    }

    /// Whether `member` is a member that has not expired.
    pub(crate) fn is_alive(&self, member: &MemberId) -> bool {
        let state = self.state.lock().expect("no operation panics while it holds the lock");
        state.members.get(member).is_some_and(|entry| entry.expires_at > Instant::now() + state.skew)
    }

    /// Locks the state and sweeps it. Returns the current time, the state and the removed members.
    fn lock_and_sweep(&self) -> (Instant, MutexGuard<'_, MemoryLeaseState>, Vec<MemberId>) {
        let mut state = self.state.lock().expect("no operation panics while it holds the lock");
        let now = Instant::now() + state.skew;
        let dead: Vec<MemberId> =
            state.members.iter().filter(|(_, entry)| entry.expires_at <= now).map(|(id, _)| id.clone()).collect();
        for id in &dead {
            state.remove(id);
        }
        if !dead.is_empty() {
            self.bump_revision(&mut state);
        }
        (now, state, dead)
    }

    fn bump_revision(&self, state: &mut MemoryLeaseState) -> Revision {
        state.revision.0 += 1;
        self.changes.notify_waiters();
        state.revision
    }
}

impl MemoryLeaseState {
    fn remove(&mut self, id: &MemberId) {
        self.members.remove(id);
        self.leases.retain(|_, holder| holder.member != *id);
    }
}

impl LeaseStore for MemoryLeaseStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        let (now, mut state, _) = self.lock_and_sweep();
        if let Some(entry) = state.members.get_mut(member) {
            entry.expires_at = now + ttl;
            return Ok(state.revision);
        }
        let revision = self.bump_revision(&mut state);
        let entry = MemberEntry {
            joined: now,
            join_order: revision.0,
            expires_at: now + ttl,
            leaving: false,
            assigned: Vec::new(),
        };
        state.members.insert(member.clone(), entry);
        Ok(revision)
    }

    async fn heartbeat(&self, member: &MemberId, ttl: Duration) -> Result<HeartbeatOutcome, StoreError> {
        let (now, mut state, _) = self.lock_and_sweep();
        let Some(entry) = state.members.get_mut(member) else { return Ok(HeartbeatOutcome::Expired) };
        entry.expires_at = now + ttl;
        Ok(HeartbeatOutcome::Alive { revision: state.revision, assignment_revision: state.assignment_revision })
    }

    async fn mark_leaving(&self, member: &MemberId) -> Result<(), StoreError> {
        let (_, mut state, _) = self.lock_and_sweep();
        if let Some(entry) = state.members.get_mut(member)
            && !std::mem::replace(&mut entry.leaving, true)
        {
            self.bump_revision(&mut state);
        }
        Ok(())
    }

    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        let (_, mut state, _) = self.lock_and_sweep();
        if state.members.contains_key(member) {
            state.remove(member);
            self.bump_revision(&mut state);
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        Ok(self.lock_and_sweep().2)
    }

    async fn snapshot(&self) -> Result<LeaseSnapshot, StoreError> {
        let (now, state, _) = self.lock_and_sweep();
        let mut places: Vec<(&MemberId, &MemberEntry)> = state.members.iter().collect();
        places.sort_by_key(|(_, entry)| entry.join_order);
        Ok(LeaseSnapshot {
            revision: state.revision,
            members: places
                .iter()
                .map(|(id, entry)| LiveMember {
                    id: (*id).clone(),
                    age: now - entry.joined,
                    expires_in: entry.expires_at - now,
                    leaving: entry.leaving,
                })
                .collect(),
            assignment: places.iter().map(|(id, entry)| ((*id).clone(), entry.assigned.clone())).collect(),
            leases: state.leases.clone(),
        })
    }

    async fn assign(&self, expected: Revision, assignment: &UnitAssignment) -> Result<bool, StoreError> {
        let (_, mut state, _) = self.lock_and_sweep();
        if state.revision != expected {
            return Ok(false);
        }
        for (id, entry) in &mut state.members {
            entry.assigned = assignment.get(id).cloned().unwrap_or_default();
        }
        state.assignment_revision = self.bump_revision(&mut state);
        Ok(true)
    }

    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<LeaseAcquireOutcome, StoreError> {
        let (_, mut state, _) = self.lock_and_sweep();
        if !state.members.contains_key(member) {
            return Ok(LeaseAcquireOutcome::NotMember);
        }
        let grants = units.iter().map(|unit| {
            if let Some(holder) = state.leases.get(unit) {
                // The caller's own lease is returned again, because the reply to its first request
                // may be lost.
                return (holder.member == *member).then_some(holder.epoch);
            }
            state.last_epoch += 1;
            let epoch = LeaseEpoch(state.last_epoch);
            state.leases.insert(unit.clone(), LeaseHolder { member: member.clone(), epoch });
            Some(epoch)
        });
        Ok(LeaseAcquireOutcome::Granted(grants.collect()))
    }

    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        let (_, mut state, _) = self.lock_and_sweep();
        let before = state.leases.len();
        for lease in leases {
            let holder = LeaseHolder { member: member.clone(), epoch: lease.epoch };
            if state.leases.get(&lease.unit) == Some(&holder) {
                state.leases.remove(&lease.unit);
            }
        }
        let released = before - state.leases.len();
        if released > 0 {
            self.bump_revision(&mut state);
        }
        Ok(released)
    }

    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let mut change = pin!(self.changes.notified());
        change.as_mut().enable();
        if self.state.lock().expect("no operation panics while it holds the lock").revision <= seen {
            let _ = tokio::time::timeout(within, change).await;
        }
        Ok(())
    }
}
