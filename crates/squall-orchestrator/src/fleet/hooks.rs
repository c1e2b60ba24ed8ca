//! Set-up and tear-down of a run, as its leader sees to them: one worker is told, in the record itself, and nobody is told again, whoever
//! leads by then. Runs nothing itself: hooks are the scenario's code, and workers have it.

use squall_coord::{FleetStores, RunRecord, RunStore};
use squall_model::{
    Bundle, CommandType, HookAssignment, RunSpec,
    protocol::{HookOutcome, RunNotes},
};
use std::time::Duration;

use super::{
    FleetClient, FleetError, WorkerInfo,
    fleet_client::{recorded_phase, render_run_spec, start_payload},
};

/// How long a tear-down may take before the run ends without it.
pub(super) const TEAR_DOWN_TIMEOUT: Duration = Duration::from_secs(600);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookKind {
    SetUp,
    TearDown,
}

/// How far a hook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookProgress {
    /// Nobody has been told yet.
    NotAssigned,
    Running,
    Done,
    /// With the reason in words.
    Failed(String),
}

impl HookKind {
    fn assignment(self, order: &RunSpec) -> Option<&HookAssignment> {
        match self {
            HookKind::SetUp => order.set_up.as_ref(),
            HookKind::TearDown => order.tear_down.as_ref(),
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

    /// Whether nobody was told, or the one who was is among `workers`.
    pub(super) fn is_worker_present(self, order: &RunSpec, workers: &[WorkerInfo]) -> bool {
        self.assignment(order).is_none_or(|asked| workers.iter().any(|worker| worker.instance == asked.instance))
    }

    /// How far it is, if the worker that was told is `lost` or not.
    pub(super) async fn progress<C: FleetStores>(
        self,
        fleet: &FleetClient<C>,
        epoch: u64,
        order: &RunSpec,
        lost: bool,
    ) -> Result<HookProgress, FleetError> {
        let Some(asked) = self.assignment(order) else { return Ok(HookProgress::NotAssigned) };
        let (what, worker) = (self.label(), &asked.worker);
        // After the look at who is alive: what a worker noted before it died counts.
        let notes = RunNotes::from(fleet.cell().run().notes(epoch).await?);
        Ok(match self.noted_outcome(&notes) {
            Some(HookOutcome::Done(_)) => HookProgress::Done,
            Some(HookOutcome::Failed(reason)) => {
                HookProgress::Failed(format!("{what} failed on worker {worker}: {reason}"))
            }
            None if !lost => HookProgress::Running,
            None => HookProgress::Failed(format!("worker {worker} was lost during {what}, which is not repeated")),
        })
    }

    /// Tells a worker that has the scenario; `false` if there is none.
    pub(super) async fn assign<C: FleetStores>(
        self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        (order, bundle): (&RunSpec, &Bundle),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let able = workers.iter().filter(|worker| worker.ready == record.epoch && worker.is_healthy());
        let Some(worker) = able.min_by(|a, b| a.id.cmp(&b.id)) else { return Ok(false) };
        let asked = Some(HookAssignment { worker: worker.id.clone(), instance: worker.instance });
        let mut order = order.clone();
        match self {
            HookKind::SetUp => order.set_up = asked,
            HookKind::TearDown => order.tear_down = asked,
        }
        let phase = recorded_phase(record)?.name();
        if fleet.cell().run().compare_and_set(record, phase, &render_run_spec(&order), false).await?.is_some() {
            let (kind, payload) = match self {
                HookKind::SetUp => (CommandType::StartTest, start_payload(&order, bundle)),
                HookKind::TearDown => (CommandType::StopTest, serde_json::Map::new()),
            };
            fleet.wake_workers(kind, record.epoch, payload).await;
        }
        Ok(true)
    }
}
