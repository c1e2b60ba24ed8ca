//! What is known of a run besides its measurements: when it ran, why it ended, how its thresholds fared and how the generator
//! itself was doing. Written by the orchestrator, read by the report.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::Threshold;

/// The frame around a finished run's numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Wall-clock start in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long load was being made: rates are per this, less the warm-up.
    pub active: Duration,
    /// From the start until the last answer was in.
    pub elapsed: Duration,
    pub stop: StopReason,
    pub thresholds: Vec<ThresholdResult>,
    pub generator: GeneratorStats,
    /// Requests that lost workers may have sent and that are not reported, at the very most; those that they had begun and never
    /// recorded are part of it. 0 for a local run.
    #[serde(default)]
    pub lost_at_most: u64,
    /// Who made the load, if it was a fleet.
    #[serde(default)]
    pub fleet: Option<FleetFacts>,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The profile or the number of iterations was done.
    Completed,
    /// A person asked for it (Ctrl-C, SIGTERM); what was under way was finished.
    Interrupted,
    /// A person asked twice, or the grace was over; what was under way was cut off.
    Aborted,
    /// A threshold marked `!abort` was breached.
    Threshold,
}

/// How one threshold fared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdResult {
    pub threshold: Threshold,
    /// The final value, or the worst window's; `None` if there was nothing to judge, which counts as a breach.
    pub value: Option<f64>,
    pub passed: bool,
    /// The second at which a window first breached it.
    pub breached_at_s: Option<u32>,
}

/// The generator's own cost and whether it could keep up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorStats {
    pub threads: u32,
    /// User and system time of the whole process during the run.
    pub cpu_s: f64,
    pub max_rss_bytes: u64,
    /// The generator was the bottleneck: results understate what the target can do.
    pub saturated: bool,
    /// Why, in words people can act on.
    pub saturated_because: Vec<String>,
}

/// The workers of a run and what became of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FleetFacts {
    pub workers: Vec<WorkerFacts>,
    /// What happened to the fleet, in order.
    pub events: Vec<FleetEvent>,
    /// Starts that were due while nobody held their share.
    pub missed_starts: u64,
}

/// One life of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerFacts {
    pub id: String,
    /// Tells the lives of a worker that was restarted apart.
    pub instance: String,
    /// Recorded by it and merged into the results.
    pub requests: u64,
    pub state: WorkerState,
    /// Seconds from the start of the run.
    pub joined_s: f64,
    /// `None` if it was there until the end.
    pub ended_s: Option<f64>,
    /// Its part of [`RunFacts::lost_at_most`].
    pub lost_at_most: u64,
}

/// How a worker's part in a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It was there to the end, and everything it did is reported.
    Finished,
    /// It was not heard of again.
    Lost,
    /// It went before the end, and everything it did is reported.
    Left,
    /// It could not carry out the run and took no part.
    Unable,
}

impl WorkerState {
    pub fn name(self) -> &'static str {
        match self {
            WorkerState::Finished => "finished",
            WorkerState::Lost => "lost",
            WorkerState::Left => "left",
            WorkerState::Unable => "unable",
        }
    }
}

/// Something that happened to the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEvent {
    /// Seconds from the start of the run.
    pub t_s: f64,
    pub text: String,
}
