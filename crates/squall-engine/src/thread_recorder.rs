//! A driver's access to its thread's recorder. Every request is a [`InFlightRequest`]: it counts as sent when it begins and is
//! recorded exactly once, even if its future is dropped half-way. That is what keeps sent = recorded.

use squall_metrics::{
    EngineDelta, ErrorNote, MetricDelta, MetricId, MetricKey, MetricRecorder, Outcome, OutcomeCategory, OutcomeCode,
    PhaseTimes, RecorderConfig, Sample,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{ResourceClient, ResourceError, SendBudget};

/// The request was held back: this process had lost its place in the fleet, or had sent all it had announced.
pub const FENCED: Outcome = Outcome { category: OutcomeCategory::TransportError, code: OutcomeCode::Named("FENCED") };

/// Handle on the recorder of the thread it lives on. Cloning shares it.
#[derive(Clone)]
pub struct ThreadRecorder {
    shared: Rc<RecorderState>,
}

struct RecorderState {
    recorder: RefCell<MetricRecorder>,
    /// Requests due before this are warm-up.
    measure_from: Cell<Instant>,
    /// This thread's number and what holds it back, in a fleet.
    send_budget: Option<(usize, SendBudget)>,
    resources: Option<ResourceClient>,
    /// Requests that were recorded without having been begun.
    unsent_requests: Cell<u64>,
    /// How flights that are dropped are recorded, and how many were.
    cancel_outcome: Cell<(Outcome, u64)>,
}

impl ThreadRecorder {
    /// A recorder of its own. The engine makes one for each thread; tests of drivers make their own.
    pub fn new(config: RecorderConfig, measure_from: Instant) -> ThreadRecorder {
        ThreadRecorder::with_limits(config, measure_from, None, None)
    }

    /// The same with somebody to borrow from.
    pub fn with_resources(config: RecorderConfig, measure_from: Instant, lender: ResourceClient) -> ThreadRecorder {
        ThreadRecorder::with_limits(config, measure_from, None, Some(lender))
    }

    pub(crate) fn with_limits(
        config: RecorderConfig,
        measure_from: Instant,
        leash: Option<(usize, SendBudget)>,
        lender: Option<ResourceClient>,
    ) -> ThreadRecorder {
        let (recorder, measure_from) = (RefCell::new(MetricRecorder::new(config)), Cell::new(measure_from));
        ThreadRecorder {
            shared: Rc::new(RecorderState {
                recorder,
                measure_from,
                send_budget: leash,
                resources: lender,
                unsent_requests: Cell::new(0),
                cancel_outcome: Cell::new((Outcome::ABORTED, 0)),
            }),
        }
    }

    /// Where this thread's users borrow things.
    pub fn resources(&self) -> Result<&ResourceClient, ResourceError> {
        let none = || ResourceError::Refused("there are no pools to borrow from here".to_owned());
        self.shared.resources.as_ref().ok_or_else(none)
    }

    /// How often what users had borrowed may have become others'.
    pub(crate) fn lease_generation(&self) -> u64 {
        self.shared.resources.as_ref().map_or(0, ResourceClient::lease_generation)
    }

    /// The place of `key`; look it up once, not per request.
    pub fn metric(&self, key: MetricKey) -> MetricId {
        self.shared.recorder.borrow_mut().metric(key)
    }

    /// When a request can be begun that was to start at `started`: then, unless this process has sent all that it has announced and waits
    /// until it may send more.
    #[inline]
    pub async fn wait_for_budget(&self, started: Instant) -> Instant {
        match &self.shared.send_budget {
            Some((thread, leash)) if leash.is_exhausted(*thread) => {
                // Boxed: hardly anybody waits, and no user should be larger for it.
                Box::pin(leash.wait_available(*thread)).await;
                Instant::now()
            }
            _ => started,
        }
    }

    /// The same of a request that another one has led to: the first of these is announced before it is sent.
    pub async fn wait_for_redirect_budget(&self, started: Instant) -> Instant {
        match &self.shared.send_budget {
            Some((_, leash)) if !leash.redirects_allowed() => {
                Box::pin(leash.wait_redirects_allowed()).await;
                self.wait_for_budget(Instant::now()).await
            }
            _ => self.wait_for_budget(started).await,
        }
    }

    /// Begins a request that should have started at `intended` and starts at `started`. `None`: it must not be sent, and has been
    /// recorded as [`FENCED`].
    #[inline]
    pub fn begin(&self, metric: MetricId, intended: Instant, started: Instant) -> Option<InFlightRequest<'_>> {
        // Not `started`, which may lie before a pause of the whole process.
        if let Some((thread, leash)) = &self.shared.send_budget
            && !(leash.is_valid_at(Instant::now()) && leash.try_acquire(*thread))
        {
            self.record_fenced(metric, intended, started);
            return None;
        }
        self.shared.recorder.borrow_mut().count_sent();
        Some(InFlightRequest { recorder: self, metric, intended, started, recorded: false, counted_as_sent: true })
    }

    #[cold]
    fn record_fenced(&self, metric: MetricId, intended: Instant, started: Instant) {
        self.record_unsent(metric, intended, started, FENCED);
        self.note_error(
            metric,
            FENCED,
            "not sent: the worker had lost its place in the fleet, and others make its load",
        );
    }

    /// Records a request that failed before there was anything to send: it is an error of the run, but the target never saw it.
    pub fn record_unsent(&self, metric: MetricId, intended: Instant, started: Instant, outcome: Outcome) {
        self.shared.unsent_requests.set(self.shared.unsent_requests.get() + 1);
        self.shared.recorder.borrow_mut().count_sent();
        InFlightRequest { recorder: self, metric, intended, started, recorded: false, counted_as_sent: false }
            .end_unsent(Instant::now(), outcome);
    }

    /// Drops `work`, and records the requests that it had under way with `outcome` instead of as aborted; says how many there were.
    pub fn cancel_as<W>(&self, work: W, outcome: Outcome) -> u64 {
        self.shared.cancel_outcome.set((outcome, 0));
        drop(work);
        self.shared.cancel_outcome.replace((Outcome::ABORTED, 0)).1
    }

    /// Begins a span of work, in each of `metrics`, that was due at `intended`: what delayed its start delayed whoever waited for its end.
    /// Dropped half-way it is recorded as aborted.
    pub fn open_span<'p>(&'p self, metrics: &'p [MetricId], intended: Instant, started: Instant) -> OpenSpan<'p> {
        OpenSpan { recorder: self, metrics, intended, started }
    }

    /// Records a span that is no request: a group, a whole task, a custom metric.
    pub fn record_span(&self, metric: MetricId, started: Instant, ended: Instant, outcome: Outcome) {
        self.record(metric, started, started, ended, outcome, (0, 0));
    }

    /// The same of work that was due at `intended`: what delayed its start delayed whoever waited for its end.
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

    /// Adds what was read and written, after it was recorded, for a request that was due at `intended`.
    pub fn add_bytes(&self, metric: MetricId, intended: Instant, bytes_in: u64, bytes_out: u64) {
        if intended >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().add_bytes(metric, bytes_in, bytes_out);
        }
    }

    /// Adds the phases of the request that was just recorded.
    pub fn record_phases(&self, metric: MetricId, times: &PhaseTimes) {
        self.shared.recorder.borrow_mut().record_phases(metric, times);
    }

    /// Keeps a failure in words for the report; what fails during warm-up is not reported.
    pub fn note_error(&self, metric: MetricId, outcome: Outcome, message: &str) {
        if Instant::now() < self.shared.measure_from.get() {
            return;
        }
        self.shared.recorder.borrow_mut().note_error(metric, outcome, message);
    }

    /// The load of this thread is over: `most` says how many requests it will have made at most, given how many it has.
    pub(crate) fn set_final_limit(&self, most: impl FnOnce(u64) -> u64) {
        if let Some((thread, leash)) = &self.shared.send_budget {
            let unsent = self.shared.unsent_requests.get();
            leash.set_final_limit(*thread, most(leash.requests_begun_by(*thread) + unsent).saturating_sub(unsent));
        }
    }

    pub(crate) fn measure_from(&self, at: Instant) {
        self.shared.measure_from.set(at);
    }

    /// Counts an iteration; how punctual it was is kept only outside warm-up.
    pub(crate) fn record_iteration(&self, intended: Instant, lag: Duration, late: bool) {
        if intended >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().record_iteration(lag, late);
        }
    }

    pub(crate) fn record_users(&self, alive: u64) {
        self.shared.recorder.borrow_mut().record_users(alive);
    }

    /// Counts starts, due at these instants, that will never happen; those of the warm-up are part of nothing.
    pub(crate) fn record_dropped(&self, intended: impl IntoIterator<Item = Instant>) {
        let measured = intended.into_iter().filter(|due| *due >= self.shared.measure_from.get()).count();
        self.shared.recorder.borrow_mut().count_dropped(measured as u64);
    }

    /// Takes note that the thread stood still for `lag` from `since` on.
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
            warm_up: intended < self.shared.measure_from.get(),
        });
    }
}

/// A request under way. Dropping it without [`InFlightRequest::end`] records it as aborted, with the time it took so far.
#[must_use = "a flight that is dropped at once is recorded as aborted"]
pub struct InFlightRequest<'p> {
    recorder: &'p ThreadRecorder,
    metric: MetricId,
    intended: Instant,
    started: Instant,
    recorded: bool,
    /// It counts as begun.
    counted_as_sent: bool,
}

impl InFlightRequest<'_> {
    /// Records how the request ended.
    #[inline]
    pub fn end(mut self, ended: Instant, outcome: Outcome, bytes_in: u64, bytes_out: u64) {
        self.recorded = true;
        self.recorder.record(self.metric, self.intended, self.started, ended, outcome, (bytes_in, bytes_out));
    }
}

impl InFlightRequest<'_> {
    /// Records a request that was given up half-way, as if it had been dropped, with what it had moved.
    pub fn cancel(mut self, bytes_in: u64, bytes_out: u64) {
        self.recorded = true;
        self.record_cancelled((bytes_in, bytes_out));
    }

    fn record_cancelled(&self, bytes: (u64, u64)) {
        let (outcome, given_up) = self.recorder.shared.cancel_outcome.get();
        self.recorder.shared.cancel_outcome.set((outcome, given_up + 1));
        self.recorder.record(self.metric, self.intended, self.started, Instant::now(), outcome, bytes);
    }

    /// Records a request that failed before it could leave this machine: an error of the run that the target never saw.
    pub fn end_unsent(self, ended: Instant, outcome: Outcome) {
        self.recorder.shared.recorder.borrow_mut().count_unsent();
        if let Some((thread, leash)) = self.recorder.shared.send_budget.as_ref().filter(|_| self.counted_as_sent) {
            leash.release(*thread);
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

/// A span under way. Dropping it without [`OpenSpan::end`] records it as aborted, with the time it took so far.
#[must_use = "a span that is dropped at once is recorded as aborted"]
pub struct OpenSpan<'p> {
    recorder: &'p ThreadRecorder,
    /// None once they are recorded.
    metrics: &'p [MetricId],
    intended: Instant,
    started: Instant,
}

impl OpenSpan<'_> {
    /// Records how it ended.
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
mod tests {
    use super::*;

    #[test]
    fn a_dropped_flight_is_recorded_as_aborted() {
        let now = Instant::now();
        let probe = ThreadRecorder::new(RecorderConfig::default(), now);
        let metric = probe.metric(MetricKey::request("a"));
        drop(probe.begin(metric, now, now));
        probe.begin(metric, now, now).unwrap().end(now, Outcome::of_status(200), 1, 1);
        let (metrics, _, engine) = probe.harvest(0, 0);
        assert_eq!((engine.sent, engine.recorded), (2, 2));
        assert_eq!(metrics[0].outcomes, [(Outcome::ABORTED, 1), (Outcome::of_status(200), 1)]);
    }

    #[test]
    fn what_is_given_up_is_recorded_as_its_reason_says() {
        let now = Instant::now();
        let probe = ThreadRecorder::new(RecorderConfig::default(), now);
        let metric = probe.metric(MetricKey::request("a"));
        let cut = Outcome::new(OutcomeCategory::Timeout, "TASK_TIMEOUT");
        assert_eq!(probe.cancel_as([probe.begin(metric, now, now), probe.begin(metric, now, now)], cut), 2);
        drop(probe.begin(metric, now, now));
        drop(probe.open_span(&[probe.metric(MetricKey::group("task"))], now, now));
        let (metrics, _, engine) = probe.harvest(0, 0);
        assert_eq!((engine.sent, engine.recorded), (3, 3));
        assert_eq!(metrics[0].outcomes, [(cut, 2), (Outcome::ABORTED, 1)]);
        assert_eq!(metrics[1].outcomes, [(Outcome::ABORTED, 1)]);
    }

    /// Also when it was begun in one second and found out in the next.
    #[test]
    fn what_never_left_is_not_counted_as_sent() {
        let now = Instant::now();
        let probe = ThreadRecorder::new(RecorderConfig::default(), now);
        let metric = probe.metric(MetricKey::request("a"));
        let source = squall_metrics::SourceId { instance: 0, thread: 0 };
        let mut collector = squall_metrics::Collector::new([source], 1);
        let starved = Outcome::new(squall_metrics::OutcomeCategory::TransportError, "LOCAL_LIMIT");
        let mut ship = |second: u32| {
            let (metrics, errors, engine) = probe.harvest(0, 0);
            let (seq, last) = (u64::from(second), second == 1);
            let delta = squall_metrics::Delta { source, seq, second, metrics, errors, engine, last };
            collector.merge(delta).expect("deltas in order");
        };
        let flight = probe.begin(metric, now, now).expect("nothing holds it back");
        ship(0);
        flight.end_unsent(now, starved);
        probe.record_unsent(metric, now, now, starved);
        probe.begin(metric, now, now).expect("nothing holds it back").end(now, Outcome::of_status(200), 1, 1);
        ship(1);
        let accounting = collector.finish().accounting();
        assert_eq!((accounting.sent, accounting.unsent, accounting.recorded), (1, 2, 3));
        assert!(accounting.balances());
    }

    #[test]
    fn a_process_without_its_place_or_over_its_announcement_sends_nothing() {
        let now = Instant::now();
        let leash = SendBudget::new(1);
        let probe = ThreadRecorder::with_limits(RecorderConfig::default(), now, Some((0, leash.clone())), None);
        let metric = probe.metric(MetricKey::request("a"));
        let send =
            || probe.begin(metric, now, now).map(|flight| flight.end(now, Outcome::of_status(200), 0, 0)).is_some();
        assert!(send(), "no limit was set");
        leash.raise_limits(&[2]);
        assert_eq!([send(), send()], [true, false]);
        leash.raise_limits(&[10]);
        leash.set_valid_until(now);
        assert!(!send());
        leash.set_valid_until(now + Duration::from_secs(3600));
        assert!(send());
        let (_, _, engine) = probe.harvest(0, 0);
        assert_eq!((engine.sent, engine.unsent, engine.recorded), (5, 2, 5));
    }

    #[test]
    fn what_was_due_before_the_measured_part_is_warm_up() {
        let now = Instant::now();
        let probe = ThreadRecorder::new(RecorderConfig::default(), now + Duration::from_secs(5));
        let metric = probe.metric(MetricKey::request("a"));
        probe.begin(metric, now, now).unwrap().end(now, Outcome::of_status(500), 1, 1);
        probe.note_error(metric, Outcome::of_status(500), "it failed");
        let (metrics, messages, engine) = probe.harvest(0, 0);
        assert_eq!((metrics.len(), messages.len(), engine.warm_up), (0, 0, 1));
    }
}
