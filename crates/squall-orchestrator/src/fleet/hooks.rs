//! Set-up and tear-down of a run. The leader assigns each to one worker in the record of the run,
//! so a successor of the leader does not assign it again. It runs no hook itself: hooks are code of
//! the scenario, which only workers have. `LeaderRun` calls it.

use squall_coord::{FleetStores, RunRecord, RunStore};
use squall_model::{
    Bundle, CommandType, HookAssignment, RunSpec,
    protocol::{HookOutcome, RunNotes},
};
use std::time::Duration;

use super::{FleetClient, FleetError, WorkerInfo, command_payload::start_payload, fleet_client::recorded_phase};

/// How long a tear-down may take before the run ends without it.
pub(super) const TEAR_DOWN_TIMEOUT: Duration = Duration::from_secs(600);

/// One of the two hooks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookKind {
    SetUp,
    TearDown,
}

/// The progress of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookProgress {
    /// The hook has no worker yet.
    NotAssigned,
    Running,
    Done,
    /// With the reason.
    Failed(String),
}

impl HookKind {
    fn assignment(self, spec: &RunSpec) -> Option<&HookAssignment> {
        match self {
            HookKind::SetUp => spec.set_up.as_ref(),
            HookKind::TearDown => spec.tear_down.as_ref(),
        }
    }

    fn noted_outcome(self, notes: &RunNotes) -> Option<HookOutcome> {
        match self {
            HookKind::SetUp => notes.set_up(),
            HookKind::TearDown => notes.tear_down(),
        }
    }

    fn label(self) -> &'static str {
        match self {
            HookKind::SetUp => "set-up",
            HookKind::TearDown => "tear-down",
        }
    }

    /// Whether the assigned worker is among `workers`; true if the hook is not assigned.
    pub(super) fn is_worker_present(self, spec: &RunSpec, workers: &[WorkerInfo]) -> bool {
        self.assignment(spec).is_none_or(|assigned| workers.iter().any(|worker| worker.instance == assigned.instance))
    }

    /// Reads the progress from the notes of the run. `lost`: the assigned worker no longer reports.
    pub(super) async fn progress<C: FleetStores>(
        self,
        fleet: &FleetClient<C>,
        epoch: u64,
        spec: &RunSpec,
        lost: bool,
    ) -> Result<HookProgress, FleetError> {
        let Some(assigned) = self.assignment(spec) else { return Ok(HookProgress::NotAssigned) };
        let (what, worker) = (self.label(), &assigned.worker);
        // Notes are read after the reports: an outcome that a worker noted before it died counts.
        let notes = RunNotes::from(fleet.stores().run().notes(epoch).await?);
        Ok(match self.noted_outcome(&notes) {
            Some(HookOutcome::Done(_)) => HookProgress::Done,
            Some(HookOutcome::Failed(reason)) => {
                HookProgress::Failed(format!("{what} failed on worker {worker}: {reason}"))
            }
            None if !lost => HookProgress::Running,
            None => HookProgress::Failed(format!("worker {worker} was lost during {what}, which is not repeated")),
        })
    }

    /// Assigns the hook to a worker that is ready. Returns `false` if there is none.
    pub(super) async fn assign<C: FleetStores>(
        self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        (spec, bundle): (&RunSpec, &Bundle),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let able = workers.iter().filter(|worker| worker.ready == record.epoch && worker.is_healthy());
        let Some(worker) = able.min_by(|a, b| a.id.cmp(&b.id)) else { return Ok(false) };
        let assignment = Some(HookAssignment { worker: worker.id.clone(), instance: worker.instance });
        let mut spec = spec.clone();
        match self {
            HookKind::SetUp => spec.set_up = assignment,
            HookKind::TearDown => spec.tear_down = assignment,
        }
        let phase = recorded_phase(record)?.name();
        if fleet.stores().run().compare_and_set(record, phase, &spec.encode(), false).await?.is_some() {
            let (kind, payload) = match self {
                HookKind::SetUp => (CommandType::StartTest, start_payload(&spec, bundle)),
                HookKind::TearDown => (CommandType::StopTest, serde_json::Map::new()),
            };
            fleet.wake_workers(kind, record.epoch, payload).await;
        }
        Ok(true)
    }
}
