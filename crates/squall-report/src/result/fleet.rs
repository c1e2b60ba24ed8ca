//! The fleet in the result file. This module only converts [`FleetFacts`]; it judges nothing.

use serde::{Deserialize, Serialize};
use squall_model::{FleetEvent, FleetFacts, WorkerFacts};

use crate::format::round;

/// The fleet that made the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetJson {
    /// One entry per worker instance: a worker that restarts has several.
    pub workers: Vec<WorkerJson>,
    /// Events of the fleet, in order.
    pub events: Vec<FleetEventJson>,
    /// Starts that were due and are not reported: no worker held them, or a lost worker made them.
    /// 0 if unknown.
    pub missed_starts: u64,
}

/// One instance of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerJson {
    pub id: String,
    /// Distinguishes the instances of a restarted worker.
    pub instance: String,
    /// Requests that the worker recorded and that are part of the results or of the warm-up.
    pub requests: u64,
    /// `finished`, `lost`, `left` or `unable`.
    pub state: String,
    pub joined_s: f64,
    /// Null if the worker stayed until the end.
    pub ended_s: Option<f64>,
    /// The worker's part of `accounting.lost_at_most`.
    pub lost_at_most: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEventJson {
    pub t_s: f64,
    pub text: String,
    /// What the event says, for programs; see docs/results.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The worker, orchestrator or threshold that the event is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Of a change of the load: the revision of the run with which it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

impl FleetEventJson {
    pub(super) fn of(event: &FleetEvent) -> FleetEventJson {
        FleetEventJson {
            t_s: round(event.t_s),
            text: event.text.clone(),
            kind: Some(event.kind.name().to_owned()),
            subject: event.subject.clone(),
            revision: event.revision,
        }
    }
}

impl FleetJson {
    pub(super) fn of(fleet: &FleetFacts) -> FleetJson {
        FleetJson {
            workers: fleet.workers.iter().map(WorkerJson::of).collect(),
            events: fleet.events.iter().map(FleetEventJson::of).collect(),
            missed_starts: fleet.missed_starts,
        }
    }
}

impl WorkerJson {
    fn of(worker: &WorkerFacts) -> WorkerJson {
        WorkerJson {
            id: worker.id.clone(),
            instance: worker.instance.clone(),
            requests: worker.requests,
            state: worker.state.name().to_owned(),
            joined_s: round(worker.joined_s),
            ended_s: worker.ended_s.map(round),
            lost_at_most: worker.lost_at_most,
        }
    }
}
