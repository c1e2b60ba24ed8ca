//! What each worker of a run does at the moment, for live views: the figures of its latest delta,
//! and its part in the run. It keeps one second per worker and judges nothing; squall-web reads it.

use squall_coord::FleetStores;
use squall_metrics::Delta;

use super::RunAggregator;
use crate::fleet::worker_roster::RosterEntryState;

/// The latest second that a worker has shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSecond {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    /// Requests that ended in it, warm-up included.
    pub requests: u64,
    pub users: u64,
    pub busy: u64,
    /// How late the engine was for its starts, in nanoseconds.
    pub lag_p99: u64,
}

/// A worker's part in a run so far.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerActivity {
    pub id: String,
    pub instance: u64,
    /// `working`, `finished`, `left`, `lost` or `unable`.
    pub state: &'static str,
    /// Seconds from the start of the run.
    pub joined_s: f64,
    /// `None` while it takes part.
    pub ended_s: Option<f64>,
    /// The most requests that a lost worker may have sent and that are not reported.
    pub lost_at_most: u64,
    pub latest: Option<WorkerSecond>,
}

impl WorkerSecond {
    pub(super) fn of(delta: &Delta) -> WorkerSecond {
        let engine = &delta.engine;
        WorkerSecond {
            t_s: delta.second + 1,
            requests: engine.recorded,
            users: engine.users,
            busy: engine.busy,
            lag_p99: engine.schedule_lag.percentile(99.0),
        }
    }
}

impl<C: FleetStores> RunAggregator<C> {
    /// Every worker that has taken part in the run or could not.
    pub fn worker_activity(&self) -> Vec<WorkerActivity> {
        let roster = self.roster();
        let members = roster.workers.iter().map(|(instance, entry)| WorkerActivity {
            id: entry.id.clone(),
            instance: *instance,
            state: match entry.state {
                RosterEntryState::Working => "working",
                RosterEntryState::Finished => "finished",
                RosterEntryState::Left => "left",
                RosterEntryState::Lost => "lost",
            },
            joined_s: entry.joined_s,
            ended_s: entry.ended_s,
            lost_at_most: self.lost_at_most(*instance),
            latest: self.latest_seconds.get(instance).copied(),
        });
        let unable = roster.gave_up.iter().filter(|(instance, _)| !roster.workers.contains_key(instance));
        let unable = unable.map(|(instance, worker)| WorkerActivity {
            id: worker.id.clone(),
            instance: *instance,
            state: "unable",
            joined_s: worker.since_s,
            ended_s: Some(worker.since_s),
            lost_at_most: 0,
            latest: None,
        });
        members.chain(unable).collect()
    }
}
