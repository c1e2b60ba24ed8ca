//! Resource pools of this process: the default for an embedded fleet, and the model that tests
//! compare the Redis scripts with.
//! They do not outlive the process. Their [`MemoryLeaseStore`] decides which holders are alive.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    ItemId, MAX_NOTIFIED_WAITERS, PoolCounts, PoolHolder, PoolItem, PoolItemStatus, PoolLease, PoolName,
    PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, TURN_TIMEOUT,
};
use crate::{LeaseEpoch, MemberId, MemoryLeaseStore, Revision, RunEpoch, StoreError};

/// The pools of the members of one [`MemoryLeaseStore`]. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryPoolStore {
    members: MemoryLeaseStore,
    state: Arc<Mutex<MemoryPoolState>>,
    turn_notify: Arc<Notify>,
}

#[derive(Debug, Default)]
struct MemoryPoolState {
    run: RunEpoch,
    pools: BTreeMap<PoolName, PoolState>,
    /// Number of notifications so far.
    notification_count: u64,
}

#[derive(Debug, Default)]
struct PoolState {
    payloads: BTreeMap<ItemId, String>,
    available: BTreeSet<ItemId>,
    held: BTreeMap<ItemId, HeldItem>,
    last_grant: u64,
    last_arrival: u64,
    /// The run for which the pool was last emptied.
    last_reset_run: Option<RunEpoch>,
    /// The run for which item numbers were last returned.
    numbering_run: Option<RunEpoch>,
    next_number: u64,
    /// Queued requests by arrival.
    queue: BTreeMap<u64, QueuedRequest>,
}

#[derive(Clone, Debug)]
struct HeldItem {
    holder: MemberId,
    run: RunEpoch,
    grant: LeaseEpoch,
    request_id: PoolRequestId,
}

#[derive(Debug)]
struct QueuedRequest {
    request_id: PoolRequestId,
    holder: MemberId,
    run: RunEpoch,
    expires_at: Instant,
    /// When it was notified, and by which notification.
    notified: Option<(Instant, u64)>,
}

/// The time, the current run and the members during one operation.
struct StepContext<'a> {
    now: Instant,
    run: RunEpoch,
    members: &'a MemoryLeaseStore,
}

impl StepContext<'_> {
    fn is_active_holder(&self, holder: &MemberId, run: RunEpoch) -> bool {
        run >= self.run && self.members.is_alive(holder)
    }

    fn is_still_waiting(&self, queued: &QueuedRequest) -> bool {
        let within_turn = queued.notified.is_none_or(|(at, _)| self.now < at + TURN_TIMEOUT);
        queued.expires_at > self.now && within_turn && self.is_active_holder(&queued.holder, queued.run)
    }
}

impl PoolState {
    fn return_item(&mut self, id: &ItemId) {
        if self.held.remove(id).is_some() {
            self.available.insert(id.clone());
        }
    }

    /// Frees items whose holders are not members or whose runs have ended.
    fn reclaim_abandoned(&mut self, context: &StepContext<'_>) -> u64 {
        let abandoned: Vec<ItemId> = self
            .held
            .iter()
            .filter(|(_, held_item)| !context.is_active_holder(&held_item.holder, held_item.run))
            .map(|(id, _)| id.clone())
            .collect();
        abandoned.iter().for_each(|id| self.return_item(id));
        abandoned.len() as u64
    }

    /// Removes requests that no longer wait from the first `count` requests.
    fn remove_expired_requests(&mut self, context: &StepContext<'_>, count: usize) {
        let mut checked = 0;
        self.queue.retain(|_, queued| {
            let keep = checked >= count || context.is_still_waiting(queued);
            checked += usize::from(keep);
            keep
        });
    }

    fn queue_position(&self, request_id: &PoolRequestId) -> Option<u64> {
        self.queue.iter().find(|(_, queued)| queued.request_id == *request_id).map(|(position, _)| *position)
    }

    /// Notifies the requests whose turn it is, once each. Returns whether there were any.
    fn notify_next(&mut self, context: &StepContext<'_>, number: u64) -> bool {
        let window = self.available.len().min(MAX_NOTIFIED_WAITERS);
        self.remove_expired_requests(context, window);
        let mut notified_any = false;
        for queued in self.queue.values_mut().take(window).filter(|queued| queued.notified.is_none()) {
            queued.notified = Some((context.now, number));
            notified_any = true;
        }
        notified_any
    }

    fn lease(&self, name: &PoolName, id: &ItemId) -> Option<PoolLease> {
        let HeldItem { holder, run, grant, .. } = self.held.get(id)?.clone();
        Some(PoolLease { pool: name.clone(), id: id.clone(), holder, run, grant, payload: self.payloads[id].clone() })
    }
}

impl MemoryPoolStore {
    /// Creates an empty set of pools for the members of `members`.
    pub fn new(members: &MemoryLeaseStore) -> Self {
        Self { members: members.clone(), state: Arc::default(), turn_notify: Arc::default() }
    }

    /// Records that a run has begun, which ends all earlier runs. A lower number changes nothing.
    /// Redis has the key `test:epoch` for this.
    pub fn begin_run(&self, run: RunEpoch) {
        let mut state = self.lock();
        state.run = state.run.max(run);
    }

    fn lock(&self) -> MutexGuard<'_, MemoryPoolState> {
        self.state.lock().expect("no operation panics while it holds the lock")
    }

    /// Performs `step` on one pool, then notifies the next waiters.
    fn run_step<T>(
        &self,
        state: &mut MemoryPoolState,
        name: &PoolName,
        step: impl FnOnce(&mut PoolState, &StepContext<'_>) -> T,
    ) -> Option<T> {
        let context = StepContext { now: self.members.now(), run: state.run, members: &self.members };
        let pool = state.pools.get_mut(name)?;
        let outcome = step(pool, &context);
        if pool.notify_next(&context, state.notification_count + 1) {
            state.notification_count += 1;
            self.turn_notify.notify_waiters();
        }
        Some(outcome)
    }

    /// Whether the request is queued and has not been notified after `seen`.
    fn is_waiting(&self, request: &PoolRequest, seen: Revision) -> bool {
        let state = self.lock();
        let Some(pool) = state.pools.get(&request.pool) else { return false };
        let queued = pool.queue_position(&request.request_id).and_then(|position| pool.queue.get(&position));
        queued.is_some_and(|queued| queued.notified.is_none_or(|(_, notified)| notified <= seen.0))
    }

    fn names(&self) -> Vec<PoolName> {
        self.lock().pools.keys().cloned().collect()
    }
}

impl PoolStore for MemoryPoolStore {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<RunEpoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        let mut state = self.lock();
        if run.is_some_and(|run| run < state.run) {
            return Ok(Vec::new());
        }
        state.pools.entry(pool.clone()).or_default();
        let added = self.run_step(&mut state, pool, |pool, _| {
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

    async fn reset_for_run(&self, pool: &PoolName, run: RunEpoch) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if run < state.run || state.pools.get(pool).is_some_and(|pool| pool.last_reset_run >= Some(run)) {
            return Ok(false);
        }
        let old = state.pools.remove(pool).unwrap_or_default();
        let empty = PoolState {
            last_grant: old.last_grant,
            last_arrival: old.last_arrival,
            last_reset_run: Some(run),
            ..PoolState::default()
        };
        state.pools.insert(pool.clone(), empty);
        Ok(true)
    }

    async fn next_item_number(
        &self,
        pool: &PoolName,
        run: RunEpoch,
        limit: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let mut state = self.lock();
        if run < state.run {
            return Ok(None);
        }
        let pool = state.pools.entry(pool.clone()).or_default();
        if pool.numbering_run < Some(run) {
            (pool.numbering_run, pool.next_number) = (Some(run), 0);
        }
        while pool.payloads.contains_key(&ItemId::from(pool.next_number)) {
            pool.next_number += 1;
        }
        let number = Some(pool.next_number).filter(|number| limit.is_none_or(|limit| *number < limit));
        pool.next_number += u64::from(number.is_some());
        Ok(number)
    }

    async fn try_acquire(&self, request: &PoolRequest, wait: Duration) -> Result<PoolRequestOutcome, StoreError> {
        let mut state = self.lock();
        let seen = Revision(state.notification_count);
        if request.run < state.run {
            return Ok(PoolRequestOutcome::RunEnded(state.run));
        }
        if !self.members.is_alive(&request.holder) {
            return Ok(PoolRequestOutcome::NotMember);
        }
        let outcome = self.run_step(&mut state, &request.pool, |pool, context| {
            if let Some((id, _)) = pool.held.iter().find(|(_, held_item)| held_item.request_id == request.request_id) {
                return PoolRequestOutcome::Granted(pool.lease(&request.pool, id).expect("found just now"));
            }
            if pool.available.is_empty() {
                pool.reclaim_abandoned(context);
            }
            let position = pool.queue_position(&request.request_id);
            if let Some(queued) = position.and_then(|position| pool.queue.get_mut(&position)) {
                queued.notified = None;
            }
            pool.remove_expired_requests(context, pool.available.len().min(MAX_NOTIFIED_WAITERS));
            let position = pool.queue_position(&request.request_id);
            let ahead = position.map_or(pool.queue.len(), |position| pool.queue.range(..position).count());
            if ahead < pool.available.len() {
                let id = pool.available.pop_first().expect("more than ahead");
                position.map(|position| pool.queue.remove(&position));
                pool.last_grant += 1;
                let (holder, request_id) = (request.holder.clone(), request.request_id.clone());
                pool.held.insert(
                    id.clone(),
                    HeldItem { holder, run: request.run, grant: LeaseEpoch(pool.last_grant), request_id },
                );
                return PoolRequestOutcome::Granted(pool.lease(&request.pool, &id).expect("inserted just now"));
            }
            if wait.is_zero() {
                position.map(|position| pool.queue.remove(&position));
                return PoolRequestOutcome::NoneAvailable;
            }
            if position.is_none() {
                pool.last_arrival += 1;
                let (request_id, holder) = (request.request_id.clone(), request.holder.clone());
                let queued = QueuedRequest {
                    request_id,
                    holder,
                    run: request.run,
                    expires_at: context.now + wait,
                    notified: None,
                };
                pool.queue.insert(pool.last_arrival, queued);
            }
            PoolRequestOutcome::Queued { ahead: ahead as u64, seen_notifications: seen }
        });
        Ok(outcome.unwrap_or(PoolRequestOutcome::NoPool))
    }

    async fn cancel_request(&self, pool: &PoolName, request_id: &PoolRequestId) -> Result<bool, StoreError> {
        let outcome = self.run_step(&mut self.lock(), pool, |pool, _| {
            let id =
                pool.held.iter().find(|(_, held_item)| held_item.request_id == *request_id).map(|(id, _)| id.clone());
            if let Some(id) = &id {
                pool.return_item(id);
            }
            let position = pool.queue_position(request_id).map(|position| pool.queue.remove(&position));
            id.is_some() || position.is_some()
        });
        Ok(outcome.unwrap_or(false))
    }

    async fn wait_for_turn(&self, request: &PoolRequest, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let waiting = async {
            loop {
                let mut notified = pin!(self.turn_notify.notified());
                notified.as_mut().enable();
                if !self.is_waiting(request, seen) {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(within, waiting).await;
        Ok(())
    }

    async fn release(&self, lease: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        let mut state = self.lock();
        if lease.run < state.run {
            return Ok(PoolReleaseOutcome::RunEnded(state.run));
        }
        let done = self.run_step(&mut state, &lease.pool, |pool, _| {
            let expected = (&lease.holder, lease.run, lease.grant);
            let is_current = pool
                .held
                .get(&lease.id)
                .is_some_and(|held_item| (&held_item.holder, held_item.run, held_item.grant) == expected);
            if is_current {
                pool.return_item(&lease.id);
            }
            is_current
        });
        Ok(if done == Some(true) { PoolReleaseOutcome::Released } else { PoolReleaseOutcome::NotHeld })
    }

    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        let returned = self.names().into_iter().filter_map(|name| {
            self.run_step(&mut self.lock(), &name, |pool, _| {
                let ids: Vec<ItemId> =
                    pool.held.iter().filter(|(_, r)| r.holder == *holder).map(|(id, _)| id.clone()).collect();
                ids.iter().for_each(|id| pool.return_item(id));
                pool.queue.retain(|_, queued| queued.holder != *holder);
                ids.len() as u64
            })
        });
        Ok(returned.sum())
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        let returned = self.names().into_iter().filter_map(|name| {
            self.run_step(&mut self.lock(), &name, |pool, context| {
                pool.remove_expired_requests(context, usize::MAX);
                pool.reclaim_abandoned(context)
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
            (pool.payloads.len(), pool.available.len(), pool.held.len(), pool.queue.len())
        });
        let [total, available, held, waiting] = [total, available, held, waiting].map(|count| count as u64);
        Ok(PoolCounts { pool: pool.clone(), total, available, held, waiting })
    }

    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<PoolItemStatus>, StoreError> {
        let state = self.lock();
        let Some(pool) = state.pools.get(pool) else { return Ok(Vec::new()) };
        let list = |(id, payload): (&ItemId, &String)| PoolItemStatus {
            id: id.clone(),
            payload: payload.clone(),
            held: pool.held.get(id).map(|HeldItem { holder, run, grant, .. }| PoolHolder {
                member: holder.clone(),
                run: *run,
                grant: *grant,
            }),
        };
        Ok(pool.payloads.iter().take(limit).map(list).collect())
    }
}
