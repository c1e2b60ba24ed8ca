//! Pools in this process: the embedded default, and the model the Redis scripts are tested against.
//! Refuses to outlive the process. Who is alive is what its [`MemoryStore`] says.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    Answer, Ask, CALLS, Hold, Item, ItemId, Listed, PATIENCE, PoolCounts, PoolName, PoolStore, Released, Ticket,
};
use crate::{Epoch, MemberId, MemoryStore, Revision, StoreError};

/// The pools of the members of one [`MemoryStore`]. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryPools {
    members: MemoryStore,
    state: Arc<Mutex<State>>,
    calls: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    run: Epoch,
    pools: BTreeMap<PoolName, Pool>,
    /// How often anybody was called.
    calls: u64,
}

#[derive(Debug, Default)]
struct Pool {
    payloads: BTreeMap<ItemId, String>,
    available: BTreeSet<ItemId>,
    held: BTreeMap<ItemId, Record>,
    grants: u64,
    arrivals: u64,
    /// For which run it was last emptied.
    renewed: Option<Epoch>,
    /// For which run numbers were last given out, and the next one to look at.
    numbered: Option<Epoch>,
    numbers: u64,
    /// By the order in which they came.
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Clone, Debug)]
struct Record {
    holder: MemberId,
    run: Epoch,
    grant: Epoch,
    ticket: Ticket,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    holder: MemberId,
    run: Epoch,
    until: Instant,
    /// When, and by which call.
    called: Option<(Instant, u64)>,
}

/// What a step has to know of the world around the pools.
struct Moment<'a> {
    now: Instant,
    run: Epoch,
    members: &'a MemoryStore,
}

impl Moment<'_> {
    fn counts(&self, holder: &MemberId, run: Epoch) -> bool {
        run >= self.run && self.members.is_alive(holder)
    }

    fn waits(&self, waiter: &Waiter) -> bool {
        let patient = waiter.called.is_none_or(|(at, _)| self.now < at + PATIENCE);
        waiter.until > self.now && patient && self.counts(&waiter.holder, waiter.run)
    }
}

impl Pool {
    fn give_back(&mut self, id: &ItemId) {
        if self.held.remove(id).is_some() {
            self.available.insert(id.clone());
        }
    }

    /// Takes back what is held by nobody that counts.
    fn reap(&mut self, moment: &Moment<'_>) -> u64 {
        let lost: Vec<ItemId> = self
            .held
            .iter()
            .filter(|(_, record)| !moment.counts(&record.holder, record.run))
            .map(|(id, _)| id.clone())
            .collect();
        lost.iter().for_each(|id| self.give_back(id));
        lost.len() as u64
    }

    /// Removes tickets that wait no longer from among the first `count`.
    fn clean(&mut self, moment: &Moment<'_>, count: usize) {
        let mut checked = 0;
        self.waiting.retain(|_, waiter| {
            let stays = checked >= count || moment.waits(waiter);
            checked += usize::from(stays);
            stays
        });
    }

    fn place(&self, ticket: &Ticket) -> Option<u64> {
        self.waiting.iter().find(|(_, waiter)| waiter.ticket == *ticket).map(|(place, _)| *place)
    }

    /// Calls those whose turn it is and who have not been called yet; says whether there was anybody.
    fn call(&mut self, moment: &Moment<'_>, number: u64) -> bool {
        let window = self.available.len().min(CALLS);
        self.clean(moment, window);
        let mut any = false;
        for waiter in self.waiting.values_mut().take(window).filter(|waiter| waiter.called.is_none()) {
            waiter.called = Some((moment.now, number));
            any = true;
        }
        any
    }

    fn hold(&self, name: &PoolName, id: &ItemId) -> Option<Hold> {
        let Record { holder, run, grant, .. } = self.held.get(id)?.clone();
        Some(Hold { pool: name.clone(), id: id.clone(), holder, run, grant, payload: self.payloads[id].clone() })
    }
}

impl MemoryPools {
    /// Pools for the members of `members`; there are none yet.
    pub fn new(members: &MemoryStore) -> Self {
        Self { members: members.clone(), state: Arc::default(), calls: Arc::default() }
    }

    /// Says that a run has begun: everything of earlier ones is over. A lower one changes nothing. (In Redis the key
    /// `test:epoch` says it.)
    pub fn begin_run(&self, run: Epoch) {
        let mut state = self.lock();
        state.run = state.run.max(run);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no step panics")
    }

    /// Does something to one pool at one moment, then calls whoever is next.
    fn step<T>(&self, state: &mut State, name: &PoolName, act: impl FnOnce(&mut Pool, &Moment<'_>) -> T) -> Option<T> {
        let moment = Moment { now: self.members.now(), run: state.run, members: &self.members };
        let pool = state.pools.get_mut(name)?;
        let outcome = act(pool, &moment);
        if pool.call(&moment, state.calls + 1) {
            state.calls += 1;
            self.calls.notify_waiters();
        }
        Some(outcome)
    }

    /// Whether the ticket is in the queue and has not been called after `seen`.
    fn is_waiting(&self, ask: &Ask, seen: Revision) -> bool {
        let state = self.lock();
        let Some(pool) = state.pools.get(&ask.pool) else { return false };
        let waiter = pool.place(&ask.ticket).and_then(|place| pool.waiting.get(&place));
        waiter.is_some_and(|waiter| waiter.called.is_none_or(|(_, call)| call <= seen.0))
    }

    fn names(&self) -> Vec<PoolName> {
        self.lock().pools.keys().cloned().collect()
    }
}

impl PoolStore for MemoryPools {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[Item],
        up_to: Option<u64>,
        run: Option<Epoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        let mut state = self.lock();
        if run.is_some_and(|run| run < state.run) {
            return Ok(Vec::new());
        }
        state.pools.entry(pool.clone()).or_default();
        let added = self.step(&mut state, pool, |pool, _| {
            let mut added = Vec::new();
            for item in items {
                let full = up_to.is_some_and(|limit| pool.payloads.len() as u64 >= limit);
                if full || pool.payloads.contains_key(&item.id) {
                    continue;
                }
                pool.payloads.insert(item.id.clone(), item.payload.clone());
                pool.available.insert(item.id.clone());
                added.push(item.id.clone());
            }
            added
        });
        Ok(added.unwrap_or_default())
    }

    async fn renew(&self, pool: &PoolName, run: Epoch) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if run < state.run || state.pools.get(pool).is_some_and(|pool| pool.renewed >= Some(run)) {
            return Ok(false);
        }
        let old = state.pools.remove(pool).unwrap_or_default();
        let empty = Pool { grants: old.grants, arrivals: old.arrivals, renewed: Some(run), ..Pool::default() };
        state.pools.insert(pool.clone(), empty);
        Ok(true)
    }

    async fn number(&self, pool: &PoolName, run: Epoch, limit: Option<u64>) -> Result<Option<u64>, StoreError> {
        let mut state = self.lock();
        if run < state.run {
            return Ok(None);
        }
        let pool = state.pools.entry(pool.clone()).or_default();
        if pool.numbered < Some(run) {
            (pool.numbered, pool.numbers) = (Some(run), 0);
        }
        while pool.payloads.contains_key(&ItemId::from(pool.numbers)) {
            pool.numbers += 1;
        }
        let number = Some(pool.numbers).filter(|number| limit.is_none_or(|limit| *number < limit));
        pool.numbers += u64::from(number.is_some());
        Ok(number)
    }

    async fn ask(&self, ask: &Ask, wait: Duration) -> Result<Answer, StoreError> {
        let mut state = self.lock();
        let seen = Revision(state.calls);
        if ask.run < state.run {
            return Ok(Answer::Stale(state.run));
        }
        if !self.members.is_alive(&ask.holder) {
            return Ok(Answer::Gone);
        }
        let answer = self.step(&mut state, &ask.pool, |pool, moment| {
            if let Some((id, _)) = pool.held.iter().find(|(_, record)| record.ticket == ask.ticket) {
                return Answer::Granted(pool.hold(&ask.pool, id).expect("found just now"));
            }
            if pool.available.is_empty() {
                pool.reap(moment);
            }
            let place = pool.place(&ask.ticket);
            if let Some(waiter) = place.and_then(|place| pool.waiting.get_mut(&place)) {
                waiter.called = None;
            }
            pool.clean(moment, pool.available.len().min(CALLS));
            let place = pool.place(&ask.ticket);
            let ahead = place.map_or(pool.waiting.len(), |place| pool.waiting.range(..place).count());
            if ahead < pool.available.len() {
                let id = pool.available.pop_first().expect("more than ahead");
                place.map(|place| pool.waiting.remove(&place));
                pool.grants += 1;
                let (holder, ticket) = (ask.holder.clone(), ask.ticket.clone());
                pool.held.insert(id.clone(), Record { holder, run: ask.run, grant: Epoch(pool.grants), ticket });
                return Answer::Granted(pool.hold(&ask.pool, &id).expect("inserted just now"));
            }
            if wait.is_zero() {
                place.map(|place| pool.waiting.remove(&place));
                return Answer::Empty;
            }
            if place.is_none() {
                pool.arrivals += 1;
                let (ticket, holder) = (ask.ticket.clone(), ask.holder.clone());
                let waiter = Waiter { ticket, holder, run: ask.run, until: moment.now + wait, called: None };
                pool.waiting.insert(pool.arrivals, waiter);
            }
            Answer::Waiting { ahead: ahead as u64, seen }
        });
        Ok(answer.unwrap_or(Answer::NoPool))
    }

    async fn forget(&self, pool: &PoolName, ticket: &Ticket) -> Result<bool, StoreError> {
        let outcome = self.step(&mut self.lock(), pool, |pool, _| {
            let id = pool.held.iter().find(|(_, record)| record.ticket == *ticket).map(|(id, _)| id.clone());
            if let Some(id) = &id {
                pool.give_back(id);
            }
            let place = pool.place(ticket).map(|place| pool.waiting.remove(&place));
            id.is_some() || place.is_some()
        });
        Ok(outcome.unwrap_or(false))
    }

    async fn called(&self, ask: &Ask, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let waiting = async {
            loop {
                let mut call = pin!(self.calls.notified());
                call.as_mut().enable();
                if !self.is_waiting(ask, seen) {
                    return;
                }
                call.await;
            }
        };
        let _ = tokio::time::timeout(within, waiting).await;
        Ok(())
    }

    async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        let mut state = self.lock();
        if hold.run < state.run {
            return Ok(Released::Stale(state.run));
        }
        let done = self.step(&mut state, &hold.pool, |pool, _| {
            let given = (&hold.holder, hold.run, hold.grant);
            let ours =
                pool.held.get(&hold.id).is_some_and(|record| (&record.holder, record.run, record.grant) == given);
            if ours {
                pool.give_back(&hold.id);
            }
            ours
        });
        Ok(if done == Some(true) { Released::Done } else { Released::NotHeld })
    }

    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        let returned = self.names().into_iter().filter_map(|name| {
            self.step(&mut self.lock(), &name, |pool, _| {
                let ids: Vec<ItemId> =
                    pool.held.iter().filter(|(_, r)| r.holder == *holder).map(|(id, _)| id.clone()).collect();
                ids.iter().for_each(|id| pool.give_back(id));
                pool.waiting.retain(|_, waiter| waiter.holder != *holder);
                ids.len() as u64
            })
        });
        Ok(returned.sum())
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        let returned = self.names().into_iter().filter_map(|name| {
            self.step(&mut self.lock(), &name, |pool, moment| {
                pool.clean(moment, usize::MAX);
                pool.reap(moment)
            })
        });
        Ok(returned.sum())
    }

    async fn names(&self) -> Result<Vec<PoolName>, StoreError> {
        Ok(self.lock().pools.keys().cloned().collect())
    }

    async fn count(&self, pool: &PoolName) -> Result<PoolCounts, StoreError> {
        let state = self.lock();
        let (total, available, held, waiting) = state.pools.get(pool).map_or((0, 0, 0, 0), |pool| {
            (pool.payloads.len(), pool.available.len(), pool.held.len(), pool.waiting.len())
        });
        let [total, available, held, waiting] = [total, available, held, waiting].map(|count| count as u64);
        Ok(PoolCounts { pool: pool.clone(), total, available, held, waiting })
    }

    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let state = self.lock();
        let Some(pool) = state.pools.get(pool) else { return Ok(Vec::new()) };
        let list = |(id, payload): (&ItemId, &String)| Listed {
            id: id.clone(),
            payload: payload.clone(),
            held: pool.held.get(id).map(|record| (record.holder.clone(), record.run, record.grant)),
        };
        Ok(pool.payloads.iter().take(limit).map(list).collect())
    }
}
