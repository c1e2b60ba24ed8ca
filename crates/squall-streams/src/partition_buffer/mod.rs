//! One leased partition in this process: the events that are fetched, outstanding, processed and
//! not yet acknowledged. Does not call Redis. The fetcher, the acker and the consumer of the
//! executor share it.

mod acks;
mod prefetch;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use squall_coord::{Lease, MembershipValidity};
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
    pub(crate) membership_validity: MembershipValidity,
    /// Cancelled: finish the current iteration, then stop.
    pub(crate) drain: CancellationToken,
    /// Cancelled: stop at once, because the lease is lost.
    pub(crate) abort: CancellationToken,
    context: Arc<ExecutorContext>,
    state: Mutex<PartitionBufferState>,
    /// Notifies the consumer of new events, or of the end of a quarantine.
    changed: Notify,
    /// Notified when acknowledgements are written.
    acks_written: Notify,
}

/// Where the next read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPosition {
    /// Events after this id that earlier owners did not acknowledge.
    Pending(EntryId),
    New,
    /// There are no events after this id yet. The fetcher watches the stream.
    Idle(EntryId),
}

#[derive(Default)]
struct PartitionBufferState {
    queue: VecDeque<Entry>,
    /// The event that middleware handles now.
    in_middleware: Option<Entry>,
    /// Events taken out of the queue for the processor.
    outstanding: Vec<Entry>,
    /// How many events at the end of `outstanding` have not reached the processor.
    undelivered: usize,
    /// Processed events that must be acknowledged.
    to_ack: Vec<EntryId>,
    /// How many acknowledgements are in flight.
    acks_in_flight: usize,
    ack_scheduled: bool,
    fetching: bool,
    read_position: Option<ReadPosition>,
    /// The last event fetched since the last restart.
    last_fetched: EntryId,
    /// Earlier owners had fetched the events up to this one.
    replayed_to: EntryId,
    /// How often the buffer has restarted.
    generation: u64,
    quarantined: bool,
    quarantine_count: u64,
    undecodable: Option<(Entry, BoxError)>,
    /// Whether the processor took an event since its last call.
    polled: bool,
}

/// The result of taking an event from the queue.
pub(crate) enum NextEvent<T> {
    Ready(T),
    Empty,
    /// The processor must return now.
    End,
}

impl PartitionBuffer {
    pub(crate) fn new(
        partition: LeasedPartition,
        lease: Lease,
        membership_validity: MembershipValidity,
        drain: CancellationToken,
        context: Arc<ExecutorContext>,
    ) -> Arc<Self> {
        Arc::new(Self {
            partition,
            lease,
            membership_validity,
            drain,
            abort: CancellationToken::new(),
            context,
            state: Mutex::default(),
            changed: Notify::new(),
            acks_written: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, PartitionBufferState> {
        self.state.lock().expect("no code panics while it holds this lock")
    }

    /// Stops the partition, because the fence rejected a step: another worker is the owner.
    pub(crate) fn abort_fenced(&self) {
        if !self.abort.is_cancelled() {
            add(&self.context.metrics.fenced, 1);
            tracing::warn!(processor = %self.context.processor, partition = self.partition.number, epoch = %self.lease.epoch, "fenced off");
        }
        self.abort.cancel();
    }

    /// Starts with the pending events, or restarts with them when a quarantine begins or ends.
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

    /// Drops the prefetched events. They stay pending in Redis for the next owner.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        self.context.metrics.buffered.fetch_sub(state.queue.len() as u64, std::sync::atomic::Ordering::Relaxed);
        state.queue.clear();
        state.quarantined = true; // rejects reads that are still in flight
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.state().quarantined
    }

    /// How often this owner has put the partition in quarantine.
    pub(crate) fn quarantine_count(&self) -> u64 {
        self.state().quarantine_count
    }

    /// Stops processing after this owner has stored a quarantine.
    pub(crate) fn enter_quarantine(&self) {
        self.state().quarantine_count += 1;
        self.restart(true);
    }

    /// Applies the quarantine state that a renewal found in Redis. `known_count` is the quarantine
    /// count when the renewal was sent: if this owner has stored a quarantine since then, the state
    /// is outdated and ignored.
    pub(crate) fn sync_quarantine(&self, quarantined: bool, known_count: u64) {
        if self.quarantine_count() == known_count && self.is_quarantined() != quarantined {
            self.restart(quarantined);
            self.changed.notify_one();
        }
    }

    /// Waits for new events, or for a change of the quarantine.
    pub(crate) async fn wait_changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the next event and decodes it with `decode`. An event that cannot be decoded is kept
    /// for the failure policy and ends the call.
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

    /// Takes the next event without decoding it. The event counts as delivered to the processor.
    pub(crate) fn take_raw(&self) -> NextEvent<RawEvent> {
        let mut state = self.state();
        let Some(entry) = self.pop(&mut state) else { return self.empty_or_end(&state) };
        state.outstanding.push(entry.clone());
        state.polled = true;
        NextEvent::Ready(RawEvent { replayed: entry.id <= state.replayed_to, entry })
    }

    /// Puts the last `count` events that the processor took back to the front of the queue.
    pub(crate) fn requeue_last(&self, count: usize) {
        let mut state = self.state();
        let from = state.outstanding.len().saturating_sub(count);
        let requeued = state.outstanding.split_off(from);
        self.requeue_locked(&mut state, requeued);
    }

    /// Keeps the last event that the processor took for the failure policy, because it cannot be
    /// decoded.
    pub(crate) fn reject_last(&self, error: BoxError) {
        let mut state = self.state();
        if let Some(entry) = state.outstanding.pop() {
            state.undecodable = Some((entry, error));
        }
    }

    /// Waits for new events, a change of the quarantine, or a reason to return.
    pub(crate) async fn wait_changed_or_stopped(&self) {
        tokio::select! {
            () = self.wait_changed() => {}
            () = self.drain.cancelled() => {}
            () = self.abort.cancelled() => {}
        }
    }

    /// Takes the next event for middleware. Returns the same event again until `finish_middleware`,
    /// so that a cancelled call loses no event.
    pub(crate) fn take_for_middleware(&self) -> NextEvent<Entry> {
        let mut state = self.state();
        if let Some(entry) = &state.in_middleware {
            return NextEvent::Ready(entry.clone());
        }
        let Some(entry) = self.pop(&mut state) else { return self.empty_or_end(&state) };
        state.in_middleware = Some(entry.clone());
        NextEvent::Ready(entry)
    }

    /// Applies the outcome of middleware to its event.
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
        state.undecodable.is_some()
            || state.quarantined
            || self.drain.is_cancelled()
            || !self.membership_validity.is_valid()
    }

    fn empty_or_end<T>(&self, state: &PartitionBufferState) -> NextEvent<T> {
        if self.should_return(state) { NextEvent::End } else { NextEvent::Empty }
    }

    /// Counts `count` events as delivered to the processor.
    pub(crate) fn mark_delivered(&self, count: usize) {
        let mut state = self.state();
        state.undelivered -= count.min(state.undelivered);
    }

    /// Counts all delivered events as processed.
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

    /// Whether an event waits for the processor, or it has a reason to return.
    pub(crate) fn has_events(&self) -> bool {
        let state = self.state();
        !state.queue.is_empty() || state.in_middleware.is_some() || self.should_return(&state)
    }

    /// Whether an event waits in the queue.
    pub(crate) fn has_queued(&self) -> bool {
        !self.state().queue.is_empty()
    }

    /// Whether the processor took an event since the last call of this function.
    pub(crate) fn take_polled(&self) -> bool {
        std::mem::take(&mut self.state().polled)
    }

    /// The event that could not be decoded, if the call ended because of it.
    pub(crate) fn take_undecodable(&self) -> Option<(Entry, BoxError)> {
        self.state().undecodable.take()
    }

    /// Whether events were taken out of the queue that have not reached the processor.
    pub(crate) fn has_undelivered(&self) -> bool {
        let state = self.state();
        state.undelivered > 0 || state.in_middleware.is_some()
    }

    /// Takes all outstanding events back. Requeues the undelivered ones and returns the delivered
    /// ones.
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

    /// Puts events back to the front of the queue, in order.
    pub(crate) fn requeue(&self, entries: Vec<Entry>) {
        self.requeue_locked(&mut self.state(), entries);
    }

    fn requeue_locked(&self, state: &mut PartitionBufferState, entries: Vec<Entry>) {
        add(&self.context.metrics.buffered, entries.len());
        for entry in entries.into_iter().rev() {
            state.queue.push_front(entry);
        }
    }

    /// Counts failed events as processed.
    pub(crate) fn skip_failed(&self, entries: &[Entry]) {
        add(&self.context.metrics.given_up, entries.len());
        self.queue_acks(&mut self.state(), entries.iter().map(|entry| entry.id));
    }
}
