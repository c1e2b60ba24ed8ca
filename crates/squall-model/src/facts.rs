//! The facts of a run besides its measurements: when it ran, why it ended, the results of its
//! thresholds and the cost of the generator. The orchestrator writes them, the report reads them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::Threshold;

/// The facts of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Wall-clock start in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long the engine made load. Rates are calculated over this time, without the warm-up.
    pub active: Duration,
    /// From the start until the last response.
    pub elapsed: Duration,
    pub stop: StopReason,
    pub thresholds: Vec<ThresholdResult>,
    pub generator: GeneratorStats,
    /// The most requests that lost workers may have sent and that are not reported, including those
    /// they had begun and never recorded. 0 for a local run.
    #[serde(default)]
    pub lost_at_most: u64,
    /// The workers that made the load, if it was a fleet.
    #[serde(default)]
    pub fleet: Option<FleetFacts>,
    /// What happened in a local run. The events of a fleet are in `fleet`.
    #[serde(default)]
    pub events: Vec<FleetEvent>,
}

impl RunFacts {
    /// What happened during the run, in order.
    pub fn events(&self) -> &[FleetEvent] {
        self.fleet.as_ref().map_or(&self.events, |fleet| &fleet.events)
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The profile or the iteration limit was completed.
    Completed,
    /// A person stopped it (Ctrl-C, SIGTERM); iterations in progress finished.
    Interrupted,
    /// The run could not be completed (no worker could carry it out, set-up failed), a person
    /// aborted it, or a stop outlasted the grace period. Iterations in progress may have finished:
    /// a fleet cuts them off only if [`crate::RunStopRequest::abort`] says so.
    Aborted,
    /// A threshold marked `!abort` was breached.
    Threshold,
}

/// The result of one threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdResult {
    pub threshold: Threshold,
    /// The final value, or that of the worst window. `None` without samples, which counts as a
    /// breach.
    pub value: Option<f64>,
    pub passed: bool,
    /// The second at which a window first breached it.
    pub breached_at_s: Option<u32>,
}

/// The generator's own cost and whether it kept up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorStats {
    pub threads: u32,
    /// User and system time of the whole process during the run.
    pub cpu_s: f64,
    pub max_rss_bytes: u64,
    /// Whether the generator was the bottleneck, so that the results understate what the target can
    /// do.
    pub saturated: bool,
    /// The reasons, with what to do about them.
    pub saturated_because: Vec<String>,
}

/// The workers of a run and how each ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FleetFacts {
    pub workers: Vec<WorkerFacts>,
    /// What happened to the fleet, in order.
    pub events: Vec<FleetEvent>,
    /// Starts of an open load that were due and were reported neither as made nor as dropped: no
    /// worker held their share, its holder had no right to send, or a lost worker made them and
    /// could not report them. For users with an iteration limit: iterations that no worker made.
    /// Also 0 if the number is unknown: for users without an iteration limit, for users with one if
    /// the run was stopped early, and if no leader stored a result.
    pub missed_starts: u64,
}

/// One instance of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerFacts {
    pub id: String,
    /// Distinguishes the instances of a worker that was restarted.
    pub instance: String,
    /// Requests that it sent and recorded and that are merged into the results, warm-up included.
    pub requests: u64,
    pub state: WorkerState,
    /// Seconds from the start of the run.
    pub joined_s: f64,
    /// `None` if it stayed until the end.
    pub ended_s: Option<f64>,
    /// The most requests that this worker may have sent and that are not reported. The values of
    /// all workers may add up to more than [`RunFacts::lost_at_most`], because a limit of the whole
    /// run caps each value and the total separately.
    pub lost_at_most: u64,
}

/// How a worker's part in a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It stayed to the end, and all its samples are reported.
    Finished,
    /// Its last delta is missing: it stopped reporting, or ended its part early, before it had
    /// shipped all its samples.
    Lost,
    /// It left before the end, and all its samples are reported.
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

/// Something that happened to the fleet, or that a person noted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEvent {
    /// Seconds from the start of the run.
    pub t_s: f64,
    pub text: String,
    #[serde(default)]
    pub kind: FleetEventKind,
    /// The worker, orchestrator or threshold that the event is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Of a change of the load: the first revision of the run record that has it. A worker whose report
    /// names it, or a later one, has taken the change up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// What an event says, for programs. People read its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetEventKind {
    /// A worker joined a run under way.
    Joined,
    /// A worker that was lost reports again.
    Back,
    /// A worker left with everything reported.
    Left,
    /// A worker stopped reporting, or ended its part early.
    Lost,
    /// A worker cannot carry out the run.
    Unable,
    /// A worker takes part, and a person should look at it.
    Notice,
    /// Another orchestrator leads.
    Leader,
    /// A threshold was breached.
    Threshold,
    /// A person or a program changed the level of the load.
    LoadChanged,
    Paused,
    Resumed,
    /// The run was stopped with a message.
    Stopped,
    /// A person's note.
    Note,
    /// Anything else, and every kind of a later release.
    #[default]
    #[serde(other)]
    Other,
}

impl FleetEventKind {
    pub fn name(self) -> &'static str {
        match self {
            FleetEventKind::Joined => "joined",
            FleetEventKind::Back => "back",
            FleetEventKind::Left => "left",
            FleetEventKind::Lost => "lost",
            FleetEventKind::Unable => "unable",
            FleetEventKind::Notice => "notice",
            FleetEventKind::Leader => "leader",
            FleetEventKind::Threshold => "threshold",
            FleetEventKind::LoadChanged => "load_changed",
            FleetEventKind::Paused => "paused",
            FleetEventKind::Resumed => "resumed",
            FleetEventKind::Stopped => "stopped",
            FleetEventKind::Note => "note",
            FleetEventKind::Other => "other",
        }
    }

    /// Whether the leader logs the event as a warning.
    pub fn is_problem(self) -> bool {
        matches!(self, FleetEventKind::Lost | FleetEventKind::Unable | FleetEventKind::Notice)
    }
}

impl FleetEvent {
    pub fn new(t_s: f64, kind: FleetEventKind, text: impl Into<String>) -> FleetEvent {
        FleetEvent { t_s, text: text.into(), kind, subject: None, revision: None }
    }

    /// The same event about `subject`.
    #[must_use]
    pub fn about(mut self, subject: &str) -> FleetEvent {
        self.subject = Some(subject.to_owned());
        self
    }
}
