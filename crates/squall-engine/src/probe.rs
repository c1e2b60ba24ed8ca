//! A driver's access to its thread's recorder. Every request is a [`Flight`]: it counts as sent when it begins and is
//! recorded exactly once, even if its future is dropped half-way. That is what keeps sent = recorded.

use squall_metrics::{EngineDelta, ErrorNote};
use squall_metrics::{MetricDelta, MetricId, MetricKey, Outcome, PhaseTimes, Recorder, RecorderConfig, Sample};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

/// Handle on the recorder of the thread it lives on. Cloning shares it.
#[derive(Clone)]
pub struct Probe {
    shared: Rc<Shared>,
}

struct Shared {
    recorder: RefCell<Recorder>,
    /// Requests due before this are warm-up.
    measure_from: Cell<Instant>,
}

impl Probe {
    /// A recorder of its own. The engine makes one for each thread; tests of drivers make their own.
    pub fn new(config: RecorderConfig, measure_from: Instant) -> Probe {
        let recorder = RefCell::new(Recorder::new(config));
        Probe { shared: Rc::new(Shared { recorder, measure_from: Cell::new(measure_from) }) }
    }

    /// The place of `key`; look it up once, not per request.
    pub fn metric(&self, key: MetricKey) -> MetricId {
        self.shared.recorder.borrow_mut().metric(key)
    }

    /// Begins a request that should have started at `intended` and starts at `started`.
    #[inline]
    pub fn begin(&self, metric: MetricId, intended: Instant, started: Instant) -> Flight<'_> {
        self.shared.recorder.borrow_mut().sent();
        Flight { probe: self, metric, intended, started, landed: false }
    }

    /// Records a request that failed before there was anything to send: it is an error of the run, but the target never saw it.
    pub fn unsent(&self, metric: MetricId, intended: Instant, started: Instant, outcome: Outcome) {
        self.shared.recorder.borrow_mut().unsent();
        self.record(metric, intended, started, Instant::now(), outcome, (0, 0));
    }

    /// Records a span that is no request: a group, a whole task, a custom metric.
    pub fn span(&self, metric: MetricId, started: Instant, ended: Instant, outcome: Outcome) {
        self.record(metric, started, started, ended, outcome, (0, 0));
    }

    /// Adds the phases of the request that was just recorded.
    pub fn phases(&self, metric: MetricId, times: &PhaseTimes) {
        self.shared.recorder.borrow_mut().record_phases(metric, times);
    }

    /// Keeps a failure in words for the report; what fails during warm-up is not reported.
    pub fn note(&self, metric: MetricId, outcome: Outcome, message: &str) {
        if Instant::now() < self.shared.measure_from.get() {
            return;
        }
        self.shared.recorder.borrow_mut().note(metric, outcome, message);
    }

    pub(crate) fn measure_from(&self, at: Instant) {
        self.shared.measure_from.set(at);
    }

    /// Counts an iteration; how punctual it was is kept only outside warm-up.
    pub(crate) fn iteration(&self, intended: Instant, lag: Duration, late: bool) {
        if intended >= self.shared.measure_from.get() {
            self.shared.recorder.borrow_mut().iteration(lag, late);
        }
    }

    pub(crate) fn users(&self, alive: u64) {
        self.shared.recorder.borrow_mut().users(alive);
    }

    pub(crate) fn dropped(&self, starts: u64) {
        self.shared.recorder.borrow_mut().dropped(starts);
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

/// A request under way. Dropping it without [`Flight::end`] records it as aborted, with the time it took so far.
#[must_use = "a flight that is dropped at once is recorded as aborted"]
pub struct Flight<'p> {
    probe: &'p Probe,
    metric: MetricId,
    intended: Instant,
    started: Instant,
    landed: bool,
}

impl Flight<'_> {
    /// Records how the request ended.
    #[inline]
    pub fn end(mut self, ended: Instant, outcome: Outcome, bytes_in: u64, bytes_out: u64) {
        self.landed = true;
        self.probe.record(self.metric, self.intended, self.started, ended, outcome, (bytes_in, bytes_out));
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.probe.record(self.metric, self.intended, self.started, Instant::now(), Outcome::ABORTED, (0, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_flight_is_recorded_as_aborted() {
        let now = Instant::now();
        let probe = Probe::new(RecorderConfig::default(), now);
        let metric = probe.metric(MetricKey::request("a"));
        drop(probe.begin(metric, now, now));
        probe.begin(metric, now, now).end(now, Outcome::of_status(200), 1, 1);
        let (metrics, _, engine) = probe.harvest(0, 0);
        assert_eq!((engine.sent, engine.recorded), (2, 2));
        assert_eq!(metrics[0].outcomes, [(Outcome::ABORTED, 1), (Outcome::of_status(200), 1)]);
    }

    #[test]
    fn what_was_due_before_the_measured_part_is_warm_up() {
        let now = Instant::now();
        let probe = Probe::new(RecorderConfig::default(), now + Duration::from_secs(5));
        let metric = probe.metric(MetricKey::request("a"));
        probe.begin(metric, now, now).end(now, Outcome::of_status(500), 1, 1);
        probe.note(metric, Outcome::of_status(500), "it failed");
        let (metrics, messages, engine) = probe.harvest(0, 0);
        assert_eq!((metrics.len(), messages.len(), engine.warm_up), (0, 0, 1));
    }
}
