//! The workers that have taken part in a run, with what the report says about each. It is saved
//! with every checkpoint, so its field names are a stored format. It reads nothing; `RunAggregator`
//! fills it.

use serde::{Deserialize, Deserializer, Serialize};
use squall_model::{FleetEvent, FleetEventKind, WorkerState, protocol::SendBudgetReport};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::WorkerInfo;
use crate::threshold_judge::JudgeCheckpoint;

/// The workers of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WorkerRoster {
    /// Every worker that built its users for the run, by instance. Ended ones stay.
    #[serde(rename = "members")]
    pub(crate) workers: BTreeMap<u64, RosterEntry>,
    #[serde(deserialize_with = "read_events")]
    pub(crate) events: Vec<FleetEvent>,
    /// Entries in the delta stream that could not be decoded.
    pub(crate) refused: u64,
    /// The latest send budget of each worker, by instance.
    #[serde(default)]
    pub(crate) announced: BTreeMap<u64, SendBudgetReport>,
    /// Workers that gave the run up, by instance: they could not build their users, or ended their
    /// part early.
    #[serde(default, rename = "unable")]
    pub(crate) gave_up: BTreeMap<u64, GaveUpWorker>,
    /// Vikhry workers about which the leader has noticed something, by instance.
    #[serde(default)]
    pub(crate) noticed: BTreeSet<u64>,
    /// Member id of the leader that saved this roster.
    #[serde(default)]
    pub(crate) leader: Option<String>,
    /// What that leader's judge had seen.
    #[serde(default)]
    pub(crate) judged: JudgeCheckpoint,
}

impl WorkerRoster {
    /// Threads of all workers of the run, and the CPU time in seconds that they have used for it.
    pub(crate) fn generator_usage(&self) -> (u32, f64) {
        let threads = self.workers.values().map(|entry| entry.threads).sum();
        (threads, self.workers.values().map(|entry| entry.cpu_s - entry.first_cpu_s).sum())
    }
}

/// Also reads the events of a checkpoint of an earlier release: pairs of time and text.
fn read_events<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<FleetEvent>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Event(FleetEvent),
        Pair(f64, String),
    }
    let events = Vec::<Stored>::deserialize(from)?;
    let event = |stored| match stored {
        Stored::Event(event) => event,
        Stored::Pair(t_s, text) => FleetEvent::new(t_s, FleetEventKind::Other, text),
    };
    Ok(events.into_iter().map(event).collect())
}

/// One worker that built its users for the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RosterEntry {
    pub(crate) id: String,
    pub(crate) joined_s: f64,
    pub(crate) ended_s: Option<f64>,
    pub(crate) state: RosterEntryState,
    /// The most requests that the worker can have sent, as it noted when its load was over
    /// (`RunNote::FinalSendLimit`).
    #[serde(default, rename = "sealed")]
    pub(crate) final_send_limit: Option<u64>,
    pub(crate) first_cpu_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) max_rss_bytes: u64,
    pub(crate) threads: u32,
}

/// A worker that gave the run up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GaveUpWorker {
    pub(crate) id: String,
    pub(crate) since_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RosterEntryState {
    Working,
    Finished,
    /// The worker stopped reporting before the end of the run, and nothing of it is missing: it had
    /// shipped everything, or the load had not started.
    Left,
    Lost,
}

impl RosterEntry {
    pub(crate) fn new(id: &str, joined_s: f64) -> RosterEntry {
        RosterEntry {
            id: id.to_owned(),
            joined_s,
            ended_s: None,
            state: RosterEntryState::Working,
            final_send_limit: None,
            first_cpu_s: 0.0,
            cpu_s: 0.0,
            max_rss_bytes: 0,
            threads: 0,
        }
    }

    /// Whether the worker left before it could measure anything, so that nothing of it is missing.
    pub(crate) fn left_before_start(&self) -> bool {
        self.state == RosterEntryState::Left && self.ended_s == Some(0.0)
    }

    pub(crate) fn end(&mut self, state: RosterEntryState, at_s: f64) {
        (self.state, self.ended_s) = (state, Some(at_s));
    }

    /// Takes over the name and the resource use that the worker reports.
    pub(crate) fn record_usage(&mut self, worker: &WorkerInfo) {
        // A delta may have added this entry under the instance number, before the first report.
        self.id.clone_from(&worker.id);
        if worker.cpu_s > 0.0 {
            if self.first_cpu_s == 0.0 {
                self.first_cpu_s = worker.cpu_s;
            }
            self.cpu_s = worker.cpu_s;
        }
        self.max_rss_bytes = self.max_rss_bytes.max(worker.max_rss_bytes);
        self.threads = self.threads.max(worker.threads);
    }

    /// The state in the report of a run whose load ended at `active`.
    pub(crate) fn fact_state(&self, active: Duration) -> WorkerState {
        match self.state {
            RosterEntryState::Lost => WorkerState::Lost,
            RosterEntryState::Left if self.ended_s.is_some_and(|at| at < active.as_secs_f64()) => WorkerState::Left,
            RosterEntryState::Working | RosterEntryState::Finished | RosterEntryState::Left => WorkerState::Finished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_with_events_as_pairs_is_read() {
        let text = r#"{"members":{},"events":[[1.5,"worker w1 joined"],{"t_s":2.0,"text":"x","kind":"lost","subject":"w2"}],"refused":0}"#;
        let roster: WorkerRoster = serde_json::from_str(text).unwrap();
        let expected = [
            FleetEvent::new(1.5, FleetEventKind::Other, "worker w1 joined"),
            FleetEvent::new(2.0, FleetEventKind::Lost, "x").about("w2"),
        ];
        assert_eq!(roster.events, expected);
    }
}
