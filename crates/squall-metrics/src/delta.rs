//! What a thread or worker sends once a second: everything recorded since its last delta, numbered
//! so that it is merged exactly once. Raw samples are never sent.

use std::sync::Arc;

use crate::{Histogram, MetricKey, Outcome, OutcomeCategory, recorder::PHASES};

/// The source of a delta: one engine thread, or a whole worker (thread 0) in what a worker ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The worker's instance; 0 for a local run.
    pub instance: u64,
    pub thread: u32,
}

/// One second of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    pub source: SourceId,
    /// Counts from 0 for each source, without gaps.
    pub seq: u64,
    /// The second of the run in which these samples ended; 0 is the first.
    pub second: u32,
    pub metrics: Vec<MetricDelta>,
    pub errors: Vec<ErrorNote>,
    pub engine: EngineDelta,
    /// Whether this is the source's last delta.
    pub last: bool,
}

/// The samples of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricDelta {
    pub key: Arc<MetricKey>,
    pub outcomes: Vec<(Outcome, u64)>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub service: Histogram,
    pub response: Histogram,
    pub wait: Histogram,
    /// In the order of [`PHASES`]; present only when phases are recorded.
    pub phases: Option<Box<[Histogram; PHASES.len()]>>,
}

impl MetricDelta {
    pub fn requests(&self) -> u64 {
        self.service.count()
    }

    pub fn errors(&self) -> u64 {
        self.outcomes.iter().filter(|(outcome, _)| outcome.category != OutcomeCategory::Ok).map(|(_, n)| n).sum()
    }
}

/// A failure message, with the number of its occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorNote {
    pub metric: Arc<MetricKey>,
    pub outcome: Outcome,
    pub message: String,
    pub count: u64,
}

/// The engine's own figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineDelta {
    /// Requests begun, sent or not, warm-up included.
    pub begun: u64,
    /// Requests ended and recorded, warm-up included.
    pub recorded: u64,
    /// Recorded requests that are not in the results, because they were due during the warm-up.
    pub warm_up_requests: u64,
    /// Requests of `begun` that were never sent, because they failed on this machine.
    pub unsent: u64,
    /// Iterations started, without those due during the warm-up.
    pub iterations: u64,
    /// Starts that were due and will not be made, without those due during the warm-up.
    pub dropped: u64,
    /// Starts made later than `late_after` after they were due, without those due during the warm-up.
    pub late: u64,
    /// How late the engine itself was for each start.
    pub schedule_lag: Histogram,
    /// Virtual users alive at the end of the second.
    pub users: u64,
    /// The most virtual users alive at any moment of the second.
    pub peak_users: u64,
    /// Users in an iteration at the end of the second.
    pub busy: u64,
    /// Metrics refused because of the limit on their number.
    pub metrics_refused: u64,
}
