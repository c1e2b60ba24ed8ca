//! A driver's access to the recorder of its thread. Every request is an [`InFlightRequest`]: it
//! counts as begun and is recorded exactly once, even if its future is dropped. This keeps
//! begun = recorded.

use squall_metrics::{
    EngineDelta, ErrorNote, MetricDelta, MetricId, MetricKey, MetricRecorder, Outcome, OutcomeCategory, OutcomeCode,
    PhaseTimes, RecorderConfig, Sample,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{ResourceClient, ResourceError, SendPermit, thread_counters::ThreadActivity};

/// The request was not sent, because this process had lost its membership or used up its send
/// budget.
pub const FENCED: Outcome = Outcome { category: OutcomeCategory::TransportError, code: OutcomeCode::Named("FENCED") };

const NO_MEMBERSHIP: &str = "not sent: the worker had lost its membership, and other workers make its load";
const NO_BUDGET: &str = "not sent: the worker's send budget was used up";

/// A handle on the recorder of its thread. Clones share it.
#[derive(Clone)]
pub struct ThreadRecorder {
    shared: Rc<RecorderState>,
}

struct RecorderState {
    recorder: RefCell<MetricRecorder>,
    /// Requests due earlier belong to the warm-up.
    measure_from: Cell<Instant>,
    /// This thread's number and the worker's permission to send, in a fleet.
    send_permit: Option<(usize, SendPermit)>,
    resources: Option<ResourceClient>,
    /// Counts that other threads read.
    activity: Arc<ThreadActivity>,
    /// Requests that were recorded but never sent.
    unsent_requests: Cell<u64>,
    /// The outcome of requests that are dropped, and how many were.
    cancel_outcome: Cell<(Outcome, u64)>,
}

impl ThreadRecorder {
    /// A recorder of its own, for tests of drivers. The engine makes one for each thread.
    pub fn new(config: RecorderConfig, measure_from: Instant) -> ThreadRecorder {
        ThreadRecorder::with_limits(config, measure_from, None, (None, Arc::default()))
    }

    /// As [`ThreadRecorder::new`], with a client for resources.
    pub fn with_resources(config: RecorderConfig, measure_from: Instant, resources: ResourceClient) -> ThreadRecorder {
        ThreadRecorder::with_limits(config, measure_from, None, (Some(resources), Arc::default()))
    }

    pub(crate) fn with_limits(
        config: RecorderConfig,
        measure_from: Instant,
        send_permit: Option<(usize, SendPermit)>,
        (resources, activity): (Option<ResourceClient>, Arc<ThreadActivity>),
    ) -> ThreadRecorder {
        let (recorder, measure_from) = (RefCell::new(MetricRecorder::new(config)), Cell::new(measure_from));
        ThreadRecorder {
            shared: Rc::new(RecorderState {
                recorder,
                measure_from,
                send_permit,
                resources,
                activity,
                unsent_requests: Cell::new(0),
                cancel_outcome: Cell::new((Outcome::ABORTED, 0)),
            }),
        }
    }

    /// The client through which this thread's users lease resources.
    pub fn resources(&self) -> Result<&ResourceClient, ResourceError> {
        let none = || ResourceError::Refused("this run has no resource pools".to_owned());
        self.shared.resources.as_ref().ok_or_else(none)
    }

    /// How often this process may have lost all its leases.
    pub(crate) fn lease_generation(&self) -> u64 {
        self.shared.resources.as_ref().map_or(0, ResourceClient::lease_generation)
    }

    /// The id of `key`. Look it up once, not per request.
    pub fn metric(&self, key: MetricKey) -> MetricId {
        self.shared.recorder.borrow_mut().metric(key)
    }

    /// Returns when a request that should start at `started` can begin: at `started`, or after a
    /// wait if the send budget is used up.
    #[inline]
    pub async fn wait_for_budget(&self, started: Instant) -> Instant {
        match &self.shared.send_permit {
            Some((thread, permit)) if permit.is_exhausted(*thread) => {
                // Boxed, because few users wait and the future would make every user larger.
                Box::pin(permit.wait_available(*thread)).await;
                Instant::now()
            }
            _ => started,
        }
    }

    /// As [`ThreadRecorder::wait_for_budget`], for a redirect. The worker reports that redirects
    /// occur before it sends the first one.
    pub async fn wait_for_redirect_budget(&self, started: Instant) -> Instant {
        match &self.shared.send_permit {
            Some((_, permit)) if !permit.redirects_allowed() => {
                Box::pin(permit.wait_redirects_allowed()).await;
                self.wait_for_budget(Instant::now()).await
            }
            _ => self.wait_for_budget(started).await,
        }
    }

    /// Begins a request that should have started at `intended` and starts at `started`. `None`: it
    /// must not be sent, and was recorded as [`FENCED`].
    #[inline]
    pub fn begin(&self, metric: MetricId, intended: Instant, started: Instant) -> Option<InFlightRequest<'_>> {
        // Not `started`, which may be before a stall of the whole process.
        if let Some((thread, permit)) = &self.shared.send_permit {
            let refusal = match () {
                () if !permit.is_valid_at(Instant::now()) => Some(NO_MEMBERSHIP),
                () => (!permit.try_acquire(*thread)).then_some(NO_BUDGET),
            };
            if let Some(reason) = refusal {
                self.record_fenced(metric, intended, started, reason);
                return None;
            }
        }
        self.shared.activity.count_request();
        self.shared.recorder.borrow_mut().count_begun();
        Some(InFlightRequest { recorder: self, metric, intended, started, recorded: false, in_send_budget: true })
    }

    #[cold]
    fn record_fenced(&self, metric: MetricId, intended: Instant, started: Instant, reason: &str) {
        self.record_unsent(metric, intended, started, FENCED);
        self.note_error(metric, intended, FENCED, reason);
    }

    /// Records a request that failed before it could begin with [`ThreadRecorder::begin`]: an error
    /// of the run that the target never saw. It counts as begun and as unsent, and takes nothing of
    /// the send budget.
    pub fn record_unsent(&self, metric: MetricId, intended: Instant, started: Instant, outcome: Outcome) {
        self.shared.unsent_requests.set(self.shared.unsent_requests.get() + 1);
        self.shared.activity.count_request();
        self.shared.recorder.borrow_mut().count_begun();
        InFlightRequest { recorder: self, metric, intended, started, recorded: false, in_send_budget: false }
            .end_unsent(Instant::now(), outcome);
    }

    /// Drops `work` and records its open requests with `outcome` instead of as aborted. Returns how
    /// many there were.
    pub fn cancel_as<W>(&self, work: W, outcome: Outcome) -> u64 {
        self.shared.cancel_outcome.set((outcome, 0));
        drop(work);
        self.shared.cancel_outcome.replace((Outcome::ABORTED, 0)).1
    }

    /// Begins a span of work in each of `metrics`. It was due at `intended`: its response time
    /// includes the delay of its start. A span that is dropped is recorded as aborted.
    pub fn open_span<'p>(&'p self, metrics: &'p [MetricId], intended: Instant, started: Instant) -> OpenSpan<'p> {
        OpenSpan { recorder: self, metrics, intended, started }
    }

    /// Records a span that is not a request: a group, a whole task, a custom metric.
    pub fn record_span(&self, metric: MetricId, started: Instant, ended: Instant, outcome: Outcome) {
        self.record(metric, started, started, ended, outcome, (0, 0));
    }

    /// As [`ThreadRecorder::record_span`], for work that was due at `intended`.
    pub fn record_scheduled_span(
        &self,
        metric: MetricId,
        intended: Instant,
        started: Instant,
        ended: Instant,
        outcome: Outcome,
    ) {
        self.record(metric, intended, started, ended, outcome, (0, 0));
    }

    /// Adds bytes to a request that was due at `intended` and is already recorded.
    pub fn add_bytes(&self, metric: MetricId, intended: Instant, bytes_in: u64, bytes_out: u64) {
        if intended >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().add_bytes(metric, bytes_in, bytes_out);
        }
    }

    /// Keeps a failure message for the report. What was due during the warm-up is not reported,
    /// like its samples, even if it fails later.
    pub fn note_error(&self, metric: MetricId, intended: Instant, outcome: Outcome, message: &str) {
        if intended >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().note_error(metric, outcome, message);
        }
    }

    /// Sets the thread's final send limit, because its load is over. `most` returns the most
    /// requests of the thread in total, given those it has made.
    pub(crate) fn set_final_send_limit(&self, most: impl FnOnce(u64) -> u64) {
        if let Some((thread, permit)) = &self.shared.send_permit {
            let unsent = self.shared.unsent_requests.get();
            permit.set_final_send_limit(
                *thread,
                most(permit.requests_charged_by(*thread) + unsent).saturating_sub(unsent),
            );
        }
    }

    pub(crate) fn measure_from(&self, at: Instant) {
        self.shared.measure_from.set(at);
    }

    /// Counts an iteration and its lag, unless it was due in the warm-up.
    pub(crate) fn record_iteration(&self, intended: Instant, lag: Duration, late: bool) {
        if intended >= self.shared.measure_from.get() {
            self.shared.activity.count_iteration();
            self.shared.recorder.borrow_mut().record_iteration(lag, late);
        }
    }

    pub(crate) fn record_users(&self, alive: u64) {
        self.shared.recorder.borrow_mut().record_users(alive);
    }

    /// Counts starts, due at these instants, that will not be made. Those of the warm-up do not
    /// count.
    pub(crate) fn record_dropped(&self, intended: impl IntoIterator<Item = Instant>) {
        let measured = intended.into_iter().filter(|due| *due >= self.shared.measure_from.get()).count();
        self.shared.activity.count_dropped(measured as u64);
        self.shared.recorder.borrow_mut().count_dropped(measured as u64);
    }

    /// Records that the thread was stalled for `lag` since `since`.
    pub(crate) fn record_stall(&self, since: Instant, lag: Duration) {
        if since >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().record_lag(lag);
        }
    }

    /// Takes everything recorded since the last harvest.
    pub fn harvest(&self, users: u64, busy: u64) -> (Vec<MetricDelta>, Vec<ErrorNote>, EngineDelta) {
        self.shared.recorder.borrow_mut().harvest(users, busy)
    }

    #[inline]
    fn record(
        &self,
        metric: MetricId,
        intended: Instant,
        started: Instant,
        ended: Instant,
        outcome: Outcome,
        bytes: (u64, u64),
    ) {
        self.shared.recorder.borrow_mut().record(&Sample {
            metric,
            wait: started.saturating_duration_since(intended),
            service: ended.saturating_duration_since(started),
            outcome,
            bytes_in: bytes.0,
            bytes_out: bytes.1,
            due_in_warm_up: intended < self.shared.measure_from.get(),
        });
    }
}

/// A request in progress. Dropping it without [`InFlightRequest::end`] records it as aborted, with
/// its time so far.
#[must_use = "a request that is dropped at once is recorded as aborted"]
pub struct InFlightRequest<'p> {
    recorder: &'p ThreadRecorder,
    metric: MetricId,
    intended: Instant,
    started: Instant,
    recorded: bool,
    /// Whether it took one request of the send budget, which `end_unsent` then returns. The
    /// recorder counts every request as begun, whether this is set or not.
    in_send_budget: bool,
}

impl InFlightRequest<'_> {
    /// Adds the request's phases to its metric, unless the request belongs to the warm-up.
    #[inline]
    pub fn record_phases(&self, times: &PhaseTimes) {
        let shared = &self.recorder.shared;
        if self.intended >= shared.measure_from.get() {
            shared.recorder.borrow_mut().record_phases(self.metric, times);
        }
    }

    /// Notes that the request was sent later than it began: its service time counts from `sent`.
    #[inline]
    pub fn sent_at(&mut self, sent: Instant) {
        self.started = self.started.max(sent);
    }

    /// Records how the request ended.
    #[inline]
    pub fn end(mut self, ended: Instant, outcome: Outcome, bytes_in: u64, bytes_out: u64) {
        self.recorded = true;
        self.recorder.record(self.metric, self.intended, self.started, ended, outcome, (bytes_in, bytes_out));
    }

    /// Records a cancelled request, as if it had been dropped, with the bytes that it has
    /// transferred.
    pub fn cancel(mut self, bytes_in: u64, bytes_out: u64) {
        self.recorded = true;
        self.record_cancelled((bytes_in, bytes_out));
    }

    fn record_cancelled(&self, bytes: (u64, u64)) {
        let (outcome, cancelled) = self.recorder.shared.cancel_outcome.get();
        self.recorder.shared.cancel_outcome.set((outcome, cancelled + 1));
        self.recorder.record(self.metric, self.intended, self.started, Instant::now(), outcome, bytes);
    }

    /// Records a request that failed before it was sent: an error of the run that the target never
    /// saw. It returns what it took of the send budget.
    pub fn end_unsent(self, ended: Instant, outcome: Outcome) {
        self.recorder.shared.recorder.borrow_mut().count_unsent();
        if let Some((thread, permit)) = self.recorder.shared.send_permit.as_ref().filter(|_| self.in_send_budget) {
            permit.release(*thread);
            self.recorder.shared.unsent_requests.set(self.recorder.shared.unsent_requests.get() + 1);
        }
        self.end(ended, outcome, 0, 0);
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.record_cancelled((0, 0));
        }
    }
}

/// A span in progress. Dropping it without [`OpenSpan::end`] records it as aborted, with its time
/// so far.
#[must_use = "a span that is dropped at once is recorded as aborted"]
pub struct OpenSpan<'p> {
    recorder: &'p ThreadRecorder,
    /// Empty once they are recorded.
    metrics: &'p [MetricId],
    intended: Instant,
    started: Instant,
}

impl OpenSpan<'_> {
    /// Records how the span ended.
    pub fn end(mut self, ended: Instant, outcome: Outcome) {
        self.record(ended, outcome);
    }

    fn record(&mut self, ended: Instant, outcome: Outcome) {
        for metric in std::mem::take(&mut self.metrics) {
            self.recorder.record_scheduled_span(*metric, self.intended, self.started, ended, outcome);
        }
    }
}

impl Drop for OpenSpan<'_> {
    fn drop(&mut self) {
        if !self.metrics.is_empty() {
            self.record(Instant::now(), Outcome::ABORTED);
        }
    }
}

#[cfg(test)]
mod tests;
