//! The fleet as the result file has it. Decides nothing.

use serde::{Deserialize, Serialize};
use squall_model::{FleetEvent, FleetFacts, WorkerFacts};

use crate::format::round;

/// Who made the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetFile {
    /// One entry for each life of each worker.
    pub workers: Vec<WorkerFile>,
    /// What happened to the fleet, in order.
    pub events: Vec<FleetEventFile>,
    /// Starts that were due while no worker held them: the gap that a lost worker left.
    pub missed_starts: u64,
}

/// One life of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerFile {
    pub id: String,
    /// Tells the lives of a restarted worker apart.
    pub instance: String,
    /// Recorded by it, and part of the results (or of the warm-up).
    pub requests: u64,
    /// `finished`, `lost` or `left`.
    pub state: String,
    pub joined_s: f64,
    /// Null if it was there until the end.
    pub ended_s: Option<f64>,
    /// Its part of `accounting.lost_at_most`.
    pub lost_at_most: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEventFile {
    pub t_s: f64,
    pub text: String,
}

impl FleetFile {
    pub(super) fn of(fleet: &FleetFacts) -> FleetFile {
        let event = |event: &FleetEvent| FleetEventFile { t_s: round(event.t_s), text: event.text.clone() };
        FleetFile {
            workers: fleet.workers.iter().map(WorkerFile::of).collect(),
            events: fleet.events.iter().map(event).collect(),
            missed_starts: fleet.missed_starts,
        }
    }
}

impl WorkerFile {
    fn of(worker: &WorkerFacts) -> WorkerFile {
        WorkerFile {
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
