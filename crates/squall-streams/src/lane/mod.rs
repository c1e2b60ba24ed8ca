//! One partition in this process while it is leased: what is fetched, in hand, done and not yet acknowledged.
//! Refuses to talk to Redis; fetcher, acker and consumer meet here.

mod settle;
mod supply;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use squall_coord::{Lease, LeaseValidity};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use supply::Fetch;

use crate::{
    entry::{Entry, EntryId},
    hub::Hub,
    metrics::add,
    middleware::BoxError,
    partition::Partition,
    raw::RawEvent,
};

pub(crate) struct Lane {
    pub(crate) partition: Partition,
    pub(crate) lease: Lease,
    pub(crate) tenure: LeaseValidity,
    /// Finish what is in hand, then stop.
    pub(crate) drain: CancellationToken,
    /// Stop at once: the lease is gone.
    pub(crate) abort: CancellationToken,
    hub: Arc<Hub>,
    state: Mutex<State>,
    /// Something for the consumer: events, or an end to quarantine.
    ready: Notify,
    /// Every acknowledgement is written.
    flushed: Notify,
}

/// Where the next events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What earlier owners left unacknowledged, after this id.
    Pending(EntryId),
    New,
    /// Nothing new after this id; somebody has to watch it.
    Idle(EntryId),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Entry>,
    /// Being looked at by middleware.
    preparing: Option<Entry>,
    /// Taken out of the queue for the processor.
    outstanding: Vec<Entry>,
    /// The last so many of `outstanding` have not reached the processor.
    undelivered: usize,
    /// Processed; to be acknowledged.
    done: Vec<EntryId>,
    /// Being acknowledged.
    flushing: usize,
    listed_dirty: bool,
    fetching: bool,
    source: Option<Source>,
    /// The last event fetched since the lane began.
    last: EntryId,
    /// Events up to this one were in an earlier owner's hands.
    replayed_to: EntryId,
    /// How often the lane has begun.
    generation: u64,
    quarantined: bool,
    marks: u64,
    broken: Option<(Entry, BoxError)>,
    /// Whether the processor took anything since it was last called.
    touched: bool,
}

/// What the consumer finds in the queue.
pub(crate) enum Next<T> {
    Got(T),
    Empty,
    /// The processor should return now.
    End,
}

impl Lane {
    pub(crate) fn new(
        partition: Partition,
        lease: Lease,
        tenure: LeaseValidity,
        drain: CancellationToken,
        hub: Arc<Hub>,
    ) -> Arc<Self> {
        Arc::new(Self {
            partition,
            lease,
            tenure,
            drain,
            abort: CancellationToken::new(),
            hub,
            state: Mutex::default(),
            ready: Notify::new(),
            flushed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding a lane")
    }

    /// The fence refused a step: somebody else is the owner.
    pub(crate) fn lost(&self) {
        if !self.abort.is_cancelled() {
            add(&self.hub.metrics.fenced, 1);
            tracing::warn!(processor = %self.hub.name, partition = self.partition.number, epoch = %self.lease.epoch, "fenced off");
        }
        self.abort.cancel();
    }

    /// Starts, or starts again after a quarantine, with what is pending.
    pub(crate) fn begin(&self, quarantined: bool) {
        let mut state = self.state();
        self.hub.metrics.buffered.fetch_sub(state.queue.len() as u64, std::sync::atomic::Ordering::Relaxed);
        state.queue.clear();
        state.quarantined = quarantined;
        state.source = Some(Source::Pending(EntryId::default()));
        state.last = EntryId::default();
        state.generation += 1;
        drop(state);
        self.hub.hungry.notify_one();
    }

    /// Forgets what was fetched ahead; it is pending for the next owner.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        self.hub.metrics.buffered.fetch_sub(state.queue.len() as u64, std::sync::atomic::Ordering::Relaxed);
        state.queue.clear();
        state.quarantined = true; // takes nothing in any more
    }

    pub(crate) fn quarantined(&self) -> bool {
        self.state().quarantined
    }

    /// How often this owner has put the partition in quarantine.
    pub(crate) fn marks(&self) -> u64 {
        self.state().marks
    }

    /// This owner has put the partition in quarantine.
    pub(crate) fn mark(&self) {
        self.state().marks += 1;
        self.begin(true);
    }

    /// What a renewal found in Redis that was sent when there were so many marks; an answer from before the last mark is no news.
    pub(crate) fn set_quarantined(&self, quarantined: bool, marks: u64) {
        if self.marks() == marks && self.quarantined() != quarantined {
            self.begin(quarantined);
            self.ready.notify_one();
        }
    }

    /// Waits for events, or for anything else worth looking.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Takes the next event and decodes it with `decode`; what cannot be decoded ends the call and is remembered.
    pub(crate) fn take<T>(&self, decode: impl FnOnce(&Entry) -> Result<T, BoxError>) -> Next<T> {
        let mut state = self.state();
        let Some(entry) = self.pop(&mut state) else { return self.none(&state) };
        match decode(&entry) {
            Ok(record) => {
                state.outstanding.push(entry);
                state.undelivered += 1;
                state.touched = true;
                Next::Got(record)
            }
            Err(error) => {
                state.broken = Some((entry, error));
                Next::End
            }
        }
    }

    /// Takes the next event as it is; it counts as having reached the processor.
    pub(crate) fn take_raw(&self) -> Next<RawEvent> {
        let mut state = self.state();
        let Some(entry) = self.pop(&mut state) else { return self.none(&state) };
        state.outstanding.push(entry.clone());
        state.touched = true;
        Next::Got(RawEvent { replayed: entry.id <= state.replayed_to, entry })
    }

    /// Puts the last `count` events that the processor took back to the front.
    pub(crate) fn give_back(&self, count: usize) {
        let mut state = self.state();
        let from = state.outstanding.len().saturating_sub(count);
        let back = state.outstanding.split_off(from);
        self.requeue_in(&mut state, back);
    }

    /// The last event that the processor took cannot be decoded.
    pub(crate) fn spoil(&self, error: BoxError) {
        let mut state = self.state();
        if let Some(entry) = state.outstanding.pop() {
            state.broken = Some((entry, error));
        }
    }

    /// Waits for anything worth looking: events, an end to quarantine, or a reason to return.
    pub(crate) async fn stirred(&self) {
        tokio::select! {
            () = self.ready() => {}
            () = self.drain.cancelled() => {}
            () = self.abort.cancelled() => {}
        }
    }

    /// Takes the next event for middleware to look at. Taken again if nobody finished looking.
    pub(crate) fn prepare(&self) -> Next<Entry> {
        let mut state = self.state();
        if let Some(entry) = &state.preparing {
            return Next::Got(entry.clone());
        }
        let Some(entry) = self.pop(&mut state) else { return self.none(&state) };
        state.preparing = Some(entry.clone());
        Next::Got(entry)
    }

    /// What became of the event that middleware looked at.
    pub(crate) fn prepared<T>(&self, outcome: Result<Option<T>, BoxError>) -> Next<T> {
        let mut state = self.state();
        let Some(entry) = state.preparing.take() else { return Next::End };
        match outcome {
            Ok(Some(record)) => {
                state.outstanding.push(entry);
                state.undelivered += 1;
                state.touched = true;
                Next::Got(record)
            }
            Ok(None) => {
                state.touched = true;
                self.finish(&mut state, [entry.id]);
                Next::Empty
            }
            Err(error) => {
                state.broken = Some((entry, error));
                Next::End
            }
        }
    }

    fn pop(&self, state: &mut State) -> Option<Entry> {
        if self.ended(state) {
            return None;
        }
        let entry = state.queue.pop_front()?;
        self.hub.metrics.buffered.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if state.queue.len() * 2 == self.hub.settings.prefetch || state.queue.is_empty() {
            self.hub.hungry.notify_one();
        }
        Some(entry)
    }

    fn ended(&self, state: &State) -> bool {
        state.broken.is_some() || state.quarantined || self.drain.is_cancelled() || !self.tenure.is_valid()
    }

    fn none<T>(&self, state: &State) -> Next<T> {
        if self.ended(state) { Next::End } else { Next::Empty }
    }

    /// The processor has got so many events.
    pub(crate) fn delivered(&self, count: usize) {
        let mut state = self.state();
        state.undelivered -= count.min(state.undelivered);
    }

    /// Everything the processor has got is processed.
    pub(crate) fn complete(&self) {
        let mut state = self.state();
        let delivered = state.outstanding.len() - state.undelivered;
        if delivered > 0 {
            let ids: Vec<EntryId> = state.outstanding.drain(..delivered).map(|entry| entry.id).collect();
            self.finish(&mut state, ids);
        }
    }

    fn finish(&self, state: &mut State, ids: impl IntoIterator<Item = EntryId>) {
        state.done.extend(ids);
        if !std::mem::replace(&mut state.listed_dirty, true) {
            self.hub.list_dirty(self.lease.clone());
        }
    }

    /// Whether there is something for the processor, or a reason for it to return.
    pub(crate) fn has_events(&self) -> bool {
        let state = self.state();
        !state.queue.is_empty() || state.preparing.is_some() || self.ended(&state)
    }

    /// Whether an event waits for the processor.
    pub(crate) fn has_queued(&self) -> bool {
        !self.state().queue.is_empty()
    }

    /// Whether the processor took anything since the last time this was asked.
    pub(crate) fn touched(&self) -> bool {
        std::mem::take(&mut self.state().touched)
    }

    /// The event that could not be decoded, if that is why the call ended.
    pub(crate) fn broken(&self) -> Option<(Entry, BoxError)> {
        self.state().broken.take()
    }

    /// Whether events were taken for the processor that have not reached it.
    pub(crate) fn waiting(&self) -> bool {
        let state = self.state();
        state.undelivered > 0 || state.preparing.is_some()
    }

    /// Takes back what the processor had and what it had not got yet; the latter goes back to the queue.
    pub(crate) fn recall(&self) -> Vec<Entry> {
        let mut state = self.state();
        let delivered = state.outstanding.len() - state.undelivered;
        let waiting = state.outstanding.split_off(delivered);
        let preparing = state.preparing.take();
        state.undelivered = 0;
        self.requeue_in(&mut state, preparing.into_iter().collect());
        self.requeue_in(&mut state, waiting);
        std::mem::take(&mut state.outstanding)
    }

    /// Puts events back to the front, in order.
    pub(crate) fn requeue(&self, entries: Vec<Entry>) {
        self.requeue_in(&mut self.state(), entries);
    }

    fn requeue_in(&self, state: &mut State, entries: Vec<Entry>) {
        add(&self.hub.metrics.buffered, entries.len());
        for entry in entries.into_iter().rev() {
            state.queue.push_front(entry);
        }
    }

    /// Counts events as processed that the processor did not process.
    pub(crate) fn give_up(&self, entries: &[Entry]) {
        add(&self.hub.metrics.given_up, entries.len());
        self.finish(&mut self.state(), entries.iter().map(|entry| entry.id));
    }
}
