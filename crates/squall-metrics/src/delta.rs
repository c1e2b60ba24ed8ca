//! What a thread or worker ships once a second: everything recorded since its last delta, numbered so that it can be merged
//! exactly once. Raw samples never travel.

use std::sync::Arc;

use crate::{Histogram, MetricKey, Outcome, OutcomeCategory, recorder::PHASES};

/// Who a delta comes from: one life of one engine thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The worker's instance; 0 for a local run.
    pub instance: u64,
    pub thread: u32,
}

/// One source's second.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    pub source: SourceId,
    /// Counts up from 0 for each source without gaps.
    pub seq: u64,
    /// The second of the run that these samples ended in, 0 for the first.
    pub second: u32,
    pub metrics: Vec<MetricDelta>,
    pub errors: Vec<ErrorNote>,
    pub engine: EngineDelta,
    /// Nothing follows from this source.
    pub last: bool,
}

/// What one metric gained.
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

/// A failure in words, with how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorNote {
    pub metric: Arc<MetricKey>,
    pub outcome: Outcome,
    pub message: String,
    pub count: u64,
}

/// What the engine itself has to say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineDelta {
    /// Requests begun, warm-up included.
    pub sent: u64,
    /// Requests ended and recorded, warm-up included.
    pub recorded: u64,
    /// Of those, the ones kept out of the results because they were due during warm-up.
    pub warm_up: u64,
    /// Of those begun, the ones that never left this machine: there was nothing to send, or nothing to send it by.
    pub unsent: u64,
    /// Iterations started.
    pub iterations: u64,
    /// Starts that were due and never happened, because no user was free and no more could be added.
    pub dropped: u64,
    /// Starts that happened later than the allowance after they were due.
    pub late: u64,
    /// How much later than due the engine itself got round to each start.
    pub schedule_lag: Histogram,
    /// Virtual users alive at the end of the second.
    pub users: u64,
    /// Most virtual users alive at any moment of the second.
    pub peak_users: u64,
    /// Users in an iteration at the end of the second.
    pub busy: u64,
    /// Metrics refused because the cap on their number was reached.
    pub metrics_refused: u64,
}
