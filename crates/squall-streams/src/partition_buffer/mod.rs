//! One partition in this process while it is leased: what is fetched, in hand, done and not yet acknowledged.
//! Refuses to talk to Redis; fetcher, acker and consumer meet here.

mod acks;
mod prefetch;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use squall_coord::{Lease, LeaseValidity};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use prefetch::FetchRequest;

use crate::{
    entry::{Entry, EntryId},
    executor_context::ExecutorContext,
    leased_partition::LeasedPartition,
    metrics::add,
    middleware::BoxError,
    raw_events::RawEvent,
};

pub(crate) struct PartitionBuffer {
    pub(crate) partition: LeasedPartition,
    pub(crate) lease: Lease,
    pub(crate) lease_validity: LeaseValidity,
    /// Finish what is in hand, then stop.
    pub(crate) drain: CancellationToken,
    /// Stop at once: the lease is gone.
    pub(crate) abort: CancellationToken,
    context: Arc<ExecutorContext>,
    state: Mutex<PartitionBufferState>,
    /// Something for the consumer: events, or an end to quarantine.
    changed: Notify,
    /// Every acknowledgement is written.
    acks_written: Notify,
}

/// Where the next events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPosition {
    /// What earlier owners left unacknowledged, after this id.
    Pending(EntryId),
    New,
    /// Nothing new after this id; somebody has to watch it.
    Idle(EntryId),
}

#[derive(Default)]
struct PartitionBufferState {
    queue: VecDeque<Entry>,
    /// Being looked at by middleware.
    in_middleware: Option<Entry>,
    /// Taken out of the queue for the processor.
    outstanding: Vec<Entry>,
    /// The last so many of `outstanding` have not reached the processor.
    undelivered: usize,
    /// Processed; to be acknowledged.
    to_ack: Vec<EntryId>,
    /// Being acknowledged.
    acks_in_flight: usize,
    ack_scheduled: bool,
    fetching: bool,
    read_position: Option<ReadPosition>,
    /// The last event fetched since the lane began.
    last_fetched: EntryId,
    /// Events up to this one were in an earlier owner's hands.
    replayed_to: EntryId,
    /// How often the lane has begun.
    generation: u64,
    quarantined: bool,
    quarantine_count: u64,
    undecodable: Option<(Entry, BoxError)>,
    /// Whether the processor took anything since it was last called.
    polled: bool,
}

/// What the consumer finds in the queue.
pub(crate) enum NextEvent<T> {
    Ready(T),
    Empty,
    /// The processor should return now.
    End,
}

impl PartitionBuffer {
    pub(crate) fn new(
        partition: LeasedPartition,
        lease: Lease,
        lease_validity: LeaseValidity,
        drain: CancellationToken,
        context: Arc<ExecutorContext>,
    ) -> Arc<Self> {
        Arc::new(Self {
            partition,
            lease,
            lease_validity,
            drain,
            abort: CancellationToken::new(),
            context,
            state: Mutex::default(),
            changed: Notify::new(),
            acks_written: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, PartitionBufferState> {
        self.state.lock().expect("no code panics while holding a lane")
    }

    /// The fence refused a step: somebody else is the owner.
    pub(crate) fn abort_fenced(&self) {
        if !self.abort.is_cancelled() {
            add(&self.context.metrics.fenced, 1);
            tracing::warn!(processor = %self.context.processor, partition = self.partition.number, epoch = %self.lease.epoch, "fenced off");
        }
        self.abort.cancel();
    }

    /// Starts, or starts again after a quarantine, with what is pending.
    pub(crate) fn restart(&self, quarantined: bool) {
        let mut state = self.state();
        self.context.metrics.buffered.fetch_sub(state.queue.len() as u64, std::sync::atomic::Ordering::Relaxed);
        state.queue.clear();
        state.quarantined = quarantined;
        state.read_position = Some(ReadPosition::Pending(EntryId::default()));
        state.last_fetched = EntryId::default();
        state.generation += 1;
        drop(state);
        self.context.fetch_wanted.notify_one();
    }

    /// Forgets what was fetched ahead; it is pending for the next owner.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        self.context.metrics.buffered.fetch_sub(state.queue.len() as u64, std::sync::atomic::Ordering::Relaxed);
        state.queue.clear();
        state.quarantined = true; // takes nothing in any more
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.state().quarantined
    }

    /// How often this owner has put the partition in quarantine.
    pub(crate) fn quarantine_count(&self) -> u64 {
        self.state().quarantine_count
    }

    /// This owner has put the partition in quarantine.
    pub(crate) fn enter_quarantine(&self) {
        self.state().quarantine_count += 1;
        self.restart(true);
    }

    /// What a renewal found in Redis that was sent when there were so many marks; an answer from before the last mark is no news.
    pub(crate) fn sync_quarantine(&self, quarantined: bool, known_count: u64) {
        if self.quarantine_count() == known_count && self.is_quarantined() != quarantined {
            self.restart(quarantined);
            self.changed.notify_one();
        }
    }

    /// Waits for events, or for anything else worth looking.
    pub(crate) async fn wait_changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the next event and decodes it with `decode`; what cannot be decoded ends the call and is remembered.
    pub(crate) fn take_decoded<T>(&self, decode: impl FnOnce(&Entry) -> Result<T, BoxError>) -> NextEvent<T> {
        let mut state = self.state();
        let Some(entry) = self.pop(&mut state) else { return self.empty_or_end(&state) };
        match decode(&entry) {
            Ok(record) => {
                state.outstanding.push(entry);
                state.undelivered += 1;
                state.polled = true;
                NextEvent::Ready(record)
            }
            Err(error) => {
                state.undecodable = Some((entry, error));
                NextEvent::End
            }
        }
    }

    /// Takes the next event as it is; it counts as having reached the processor.
    pub(crate) fn take_raw(&self) -> NextEvent<RawEvent> {
        let mut state = self.state();
        let Some(entry) = self.pop(&mut state) else { return self.empty_or_end(&state) };
        state.outstanding.push(entry.clone());
        state.polled = true;
        NextEvent::Ready(RawEvent { replayed: entry.id <= state.replayed_to, entry })
    }

    /// Puts the last `count` events that the processor took back to the front.
    pub(crate) fn requeue_last(&self, count: usize) {
        let mut state = self.state();
        let from = state.outstanding.len().saturating_sub(count);
        let requeued = state.outstanding.split_off(from);
        self.requeue_locked(&mut state, requeued);
    }

    /// The last event that the processor took cannot be decoded.
    pub(crate) fn reject_last(&self, error: BoxError) {
        let mut state = self.state();
        if let Some(entry) = state.outstanding.pop() {
            state.undecodable = Some((entry, error));
        }
    }

    /// Waits for anything worth looking: events, an end to quarantine, or a reason to return.
    pub(crate) async fn wait_changed_or_stopped(&self) {
        tokio::select! {
            () = self.wait_changed() => {}
            () = self.drain.cancelled() => {}
            () = self.abort.cancelled() => {}
        }
    }

    /// Takes the next event for middleware to look at. Taken again if nobody finished looking.
    pub(crate) fn take_for_middleware(&self) -> NextEvent<Entry> {
        let mut state = self.state();
        if let Some(entry) = &state.in_middleware {
            return NextEvent::Ready(entry.clone());
        }
        let Some(entry) = self.pop(&mut state) else { return self.empty_or_end(&state) };
        state.in_middleware = Some(entry.clone());
        NextEvent::Ready(entry)
    }

    /// What became of the event that middleware looked at.
    pub(crate) fn finish_middleware<T>(&self, outcome: Result<Option<T>, BoxError>) -> NextEvent<T> {
        let mut state = self.state();
        let Some(entry) = state.in_middleware.take() else { return NextEvent::End };
        match outcome {
            Ok(Some(record)) => {
                state.outstanding.push(entry);
                state.undelivered += 1;
                state.polled = true;
                NextEvent::Ready(record)
            }
            Ok(None) => {
                state.polled = true;
                self.queue_acks(&mut state, [entry.id]);
                NextEvent::Empty
            }
            Err(error) => {
                state.undecodable = Some((entry, error));
                NextEvent::End
            }
        }
    }

    fn pop(&self, state: &mut PartitionBufferState) -> Option<Entry> {
        if self.should_return(state) {
            return None;
        }
        let entry = state.queue.pop_front()?;
        self.context.metrics.buffered.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if state.queue.len() * 2 == self.context.settings.prefetch || state.queue.is_empty() {
            self.context.fetch_wanted.notify_one();
        }
        Some(entry)
    }

    fn should_return(&self, state: &PartitionBufferState) -> bool {
        state.undecodable.is_some() || state.quarantined || self.drain.is_cancelled() || !self.lease_validity.is_valid()
    }

    fn empty_or_end<T>(&self, state: &PartitionBufferState) -> NextEvent<T> {
        if self.should_return(state) { NextEvent::End } else { NextEvent::Empty }
    }

    /// The processor has got so many events.
    pub(crate) fn mark_delivered(&self, count: usize) {
        let mut state = self.state();
        state.undelivered -= count.min(state.undelivered);
    }

    /// Everything the processor has got is processed.
    pub(crate) fn complete_delivered(&self) {
        let mut state = self.state();
        let delivered = state.outstanding.len() - state.undelivered;
        if delivered > 0 {
            let ids: Vec<EntryId> = state.outstanding.drain(..delivered).map(|entry| entry.id).collect();
            self.queue_acks(&mut state, ids);
        }
    }

    fn queue_acks(&self, state: &mut PartitionBufferState, ids: impl IntoIterator<Item = EntryId>) {
        state.to_ack.extend(ids);
        if !std::mem::replace(&mut state.ack_scheduled, true) {
            self.context.schedule_ack(self.lease.clone());
        }
    }

    /// Whether there is something for the processor, or a reason for it to return.
    pub(crate) fn has_events(&self) -> bool {
        let state = self.state();
        !state.queue.is_empty() || state.in_middleware.is_some() || self.should_return(&state)
    }

    /// Whether an event waits for the processor.
    pub(crate) fn has_queued(&self) -> bool {
        !self.state().queue.is_empty()
    }

    /// Whether the processor took anything since the last time this was asked.
    pub(crate) fn take_polled(&self) -> bool {
        std::mem::take(&mut self.state().polled)
    }

    /// The event that could not be decoded, if that is why the call ended.
    pub(crate) fn take_undecodable(&self) -> Option<(Entry, BoxError)> {
        self.state().undecodable.take()
    }

    /// Whether events were taken for the processor that have not reached it.
    pub(crate) fn has_undelivered(&self) -> bool {
        let state = self.state();
        state.undelivered > 0 || state.in_middleware.is_some()
    }

    /// Takes back what the processor had and what it had not got yet; the latter goes back to the queue.
    pub(crate) fn reclaim_outstanding(&self) -> Vec<Entry> {
        let mut state = self.state();
        let delivered = state.outstanding.len() - state.undelivered;
        let undelivered = state.outstanding.split_off(delivered);
        let in_middleware = state.in_middleware.take();
        state.undelivered = 0;
        self.requeue_locked(&mut state, in_middleware.into_iter().collect());
        self.requeue_locked(&mut state, undelivered);
        std::mem::take(&mut state.outstanding)
    }

    /// Puts events back to the front, in order.
    pub(crate) fn requeue(&self, entries: Vec<Entry>) {
        self.requeue_locked(&mut self.state(), entries);
    }

    fn requeue_locked(&self, state: &mut PartitionBufferState, entries: Vec<Entry>) {
        add(&self.context.metrics.buffered, entries.len());
        for entry in entries.into_iter().rev() {
            state.queue.push_front(entry);
        }
    }

    /// Counts events as processed that the processor did not process.
    pub(crate) fn skip_failed(&self, entries: &[Entry]) {
        add(&self.context.metrics.given_up, entries.len());
        self.queue_acks(&mut self.state(), entries.iter().map(|entry| entry.id));
    }
}
