//! The store in this process: the embedded default, and the model the Redis scripts are tested against.
//! Refuses to outlive the process. Its clock is tokio's, so a paused runtime makes it deterministic.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{Acquired, Assignment, Beat, Epoch, Lease, Member, MemberId, Revision, Store, StoreError, UnitId, View};

/// One space in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Wakes waiters in the order they came, unlike a watch channel: a simulation depends on it.
    changes: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    skew: Duration,
    revision: Revision,
    /// Of the last assignment.
    assigned: Revision,
    epoch: u64,
    members: BTreeMap<MemberId, Place>,
    leases: BTreeMap<UnitId, (MemberId, Epoch)>,
}

#[derive(Debug)]
struct Place {
    joined: Instant,
    /// Orders members that joined at the same instant.
    entry: u64,
    until: Instant,
    leaving: bool,
    assigned: Vec<UnitId>,
}

impl MemoryStore {
    /// An empty space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.state.lock().expect("no step panics").skew += by;
    }

    /// The store's clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.state.lock().expect("no step panics").skew
    }

    /// Whether somebody is a member whose time is not over.
    pub(crate) fn is_alive(&self, member: &MemberId) -> bool {
        let state = self.state.lock().expect("no step panics");
        state.members.get(member).is_some_and(|place| place.until > Instant::now() + state.skew)
    }

    /// Enters a step: the time now, and the state after the sweep with the names of those it removed.
    fn enter(&self) -> (Instant, MutexGuard<'_, State>, Vec<MemberId>) {
        let mut state = self.state.lock().expect("no step panics");
        let now = Instant::now() + state.skew;
        let dead: Vec<MemberId> =
            state.members.iter().filter(|(_, place)| place.until <= now).map(|(id, _)| id.clone()).collect();
        for id in &dead {
            state.remove(id);
        }
        if !dead.is_empty() {
            self.announce(&mut state);
        }
        (now, state, dead)
    }

    fn announce(&self, state: &mut State) -> Revision {
        state.revision.0 += 1;
        self.changes.notify_waiters();
        state.revision
    }
}

impl State {
    fn remove(&mut self, id: &MemberId) {
        self.members.remove(id);
        self.leases.retain(|_, (holder, _)| holder != id);
    }
}

impl Store for MemoryStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        let (now, mut state, _) = self.enter();
        if let Some(place) = state.members.get_mut(member) {
            place.until = now + ttl;
            return Ok(state.revision);
        }
        let revision = self.announce(&mut state);
        let place = Place { joined: now, entry: revision.0, until: now + ttl, leaving: false, assigned: Vec::new() };
        state.members.insert(member.clone(), place);
        Ok(revision)
    }

    async fn beat(&self, member: &MemberId, ttl: Duration) -> Result<Beat, StoreError> {
        let (now, mut state, _) = self.enter();
        let Some(place) = state.members.get_mut(member) else { return Ok(Beat::Gone) };
        place.until = now + ttl;
        Ok(Beat::Alive { revision: state.revision, assigned: state.assigned })
    }

    async fn retire(&self, member: &MemberId) -> Result<(), StoreError> {
        let (_, mut state, _) = self.enter();
        if let Some(place) = state.members.get_mut(member)
            && !std::mem::replace(&mut place.leaving, true)
        {
            self.announce(&mut state);
        }
        Ok(())
    }

    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        let (_, mut state, _) = self.enter();
        if state.members.contains_key(member) {
            state.remove(member);
            self.announce(&mut state);
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        Ok(self.enter().2)
    }

    async fn view(&self) -> Result<View, StoreError> {
        let (now, state, _) = self.enter();
        let mut places: Vec<(&MemberId, &Place)> = state.members.iter().collect();
        places.sort_by_key(|(_, place)| place.entry);
        Ok(View {
            revision: state.revision,
            members: places
                .iter()
                .map(|(id, place)| Member {
                    id: (*id).clone(),
                    age: now - place.joined,
                    expires_in: place.until - now,
                    leaving: place.leaving,
                })
                .collect(),
            assignment: places.iter().map(|(id, place)| ((*id).clone(), place.assigned.clone())).collect(),
            leases: state.leases.clone(),
        })
    }

    async fn assign(&self, expected: Revision, assignment: &Assignment) -> Result<bool, StoreError> {
        let (_, mut state, _) = self.enter();
        if state.revision != expected {
            return Ok(false);
        }
        for (id, place) in &mut state.members {
            place.assigned = assignment.get(id).cloned().unwrap_or_default();
        }
        state.assigned = self.announce(&mut state);
        Ok(true)
    }

    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<Acquired, StoreError> {
        let (_, mut state, _) = self.enter();
        if !state.members.contains_key(member) {
            return Ok(Acquired::Gone);
        }
        let grants = units.iter().map(|unit| {
            if let Some((holder, epoch)) = state.leases.get(unit) {
                // Of its own it is told again: its first answer may have got lost.
                return (holder == member).then_some(*epoch);
            }
            state.epoch += 1;
            let epoch = Epoch(state.epoch);
            state.leases.insert(unit.clone(), (member.clone(), epoch));
            Some(epoch)
        });
        Ok(Acquired::Units(grants.collect()))
    }

    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        let (_, mut state, _) = self.enter();
        let before = state.leases.len();
        for lease in leases {
            if state.leases.get(&lease.unit) == Some(&(member.clone(), lease.epoch)) {
                state.leases.remove(&lease.unit);
            }
        }
        let released = before - state.leases.len();
        if released > 0 {
            self.announce(&mut state);
        }
        Ok(released)
    }

    async fn changed(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let mut change = pin!(self.changes.notified());
        change.as_mut().enable();
        if self.state.lock().expect("no step panics").revision <= seen {
            let _ = tokio::time::timeout(within, change).await;
        }
        Ok(())
    }
}
