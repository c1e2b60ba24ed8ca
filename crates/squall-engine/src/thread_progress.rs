//! What an engine knows of one of its threads from outside: the deltas that it sent, and its counts.
//! If the thread is given up, its last delta is made from them. It reads no state of the thread itself.

use squall_metrics::{Delta, MetricKey, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, Sample, SourceId};
use std::{sync::Arc, time::Duration};

use crate::thread_counters::ThreadActivity;

/// A thread was given up, because its code blocked it and could not be interrupted.
const GIVEN_UP: &str = "HELD_THREAD";

/// The reports of one thread so far.
pub(crate) struct ThreadProgress {
    source: SourceId,
    activity: Arc<ThreadActivity>,
    pub(crate) state: ThreadReporting,
    next_seq: u64,
    iterations: u64,
    dropped: u64,
    recorded: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadReporting {
    Running,
    /// It has sent its last delta, or has failed.
    Ended,
    GivenUp,
}

/// Why and when a thread was given up.
pub(crate) struct GivenUpThread<'a> {
    pub(crate) blocking_code: &'a str,
    /// The run time at that moment.
    pub(crate) elapsed: Duration,
    /// The starts of an open model that this thread had to make in the whole run, without those of
    /// the warm-up.
    pub(crate) due_starts: u64,
}

impl ThreadProgress {
    pub(crate) fn new(source: SourceId, activity: Arc<ThreadActivity>) -> ThreadProgress {
        let state = ThreadReporting::Running;
        ThreadProgress { source, activity, state, next_seq: 0, iterations: 0, dropped: 0, recorded: 0 }
    }

    /// Whether `delta` belongs to the result. What a thread sends after it was given up comes too late.
    pub(crate) fn accept(&mut self, delta: &Delta) -> bool {
        if self.state == ThreadReporting::GivenUp {
            return false;
        }
        self.next_seq = delta.seq + 1;
        self.iterations += delta.engine.iterations;
        self.dropped += delta.engine.dropped;
        self.recorded += delta.engine.recorded;
        if delta.last {
            self.state = ThreadReporting::Ended;
        }
        true
    }

    /// The most requests that the thread has sent and that no delta has recorded.
    pub(crate) fn unreported_requests(&self) -> u64 {
        self.activity.requests_begun().saturating_sub(self.recorded)
    }

    /// Gives the thread up and makes its last delta: it counts the starts that the thread did not make
    /// as dropped, and names the code that blocked it.
    pub(crate) fn give_up(&mut self, thread: &GivenUpThread<'_>) -> Delta {
        self.state = ThreadReporting::GivenUp;
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::group("(held thread)"));
        let outcome = Outcome::new(OutcomeCategory::Exception, GIVEN_UP);
        let message = format!(
            "{} did not return before the end of the run and cannot be interrupted: the run ended without its thread, \
             and what that thread measured in its last second is missing",
            thread.blocking_code
        );
        recorder.note_error(metric, outcome, &message);
        let (wait, service, bytes_in, bytes_out) = (Duration::ZERO, Duration::ZERO, 0, 0);
        recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up: false });
        let (made, dropped) = (self.activity.iterations(), self.activity.dropped());
        let (metrics, errors, mut engine) = recorder.harvest(0, self.activity.busy_users());
        engine.iterations = made.saturating_sub(self.iterations);
        engine.dropped = dropped.saturating_sub(self.dropped) + thread.due_starts.saturating_sub(made + dropped);
        let second = thread.elapsed.as_secs() as u32;
        Delta { source: self.source, seq: self.next_seq, second, metrics, errors, engine, last: true }
    }
}
