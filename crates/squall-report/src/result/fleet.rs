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
}

impl FleetJson {
    pub(super) fn of(fleet: &FleetFacts) -> FleetJson {
        let event = |event: &FleetEvent| FleetEventJson { t_s: round(event.t_s), text: event.text.clone() };
        FleetJson {
            workers: fleet.workers.iter().map(WorkerJson::of).collect(),
            events: fleet.events.iter().map(event).collect(),
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
