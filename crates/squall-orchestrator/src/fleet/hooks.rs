//! Set-up and tear-down of a run, as its leader sees to them: one worker is told, in the record itself, and nobody is told again, whoever
//! leads by then. Runs nothing itself: hooks are the scenario's code, and workers have it.

use squall_coord::{FleetStores, RunRecord, RunStore};
use squall_model::{Bundle, CommandType, HookAssignment, RunSpec};
use std::time::Duration;

use super::{
    Fleet, FleetError, WorkerInfo,
    steer::{phase_of, starting, text},
};

/// How long a tear-down may take before the run ends without it.
pub(super) const LONGEST_TEAR_DOWN: Duration = Duration::from_secs(600);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    SetUp,
    TearDown,
}

/// How far a hook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nobody has been told yet.
    NotAsked,
    UnderWay,
    Done,
    /// With the reason in words.
    Failed(String),
}

impl Which {
    fn order(self, order: &RunSpec) -> Option<&HookAssignment> {
        match self {
            Which::SetUp => order.set_up.as_ref(),
            Which::TearDown => order.tear_down.as_ref(),
        }
    }

    /// Under which name the worker notes how it ended.
    fn note(self) -> &'static str {
        match self {
            Which::SetUp => "set_up",
            Which::TearDown => "tear_down",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Which::SetUp => "set-up",
            Which::TearDown => "tear-down",
        }
    }

    /// Whether nobody was told, or the one who was is among `workers`.
    pub(super) fn is_heard(self, order: &RunSpec, workers: &[WorkerInfo]) -> bool {
        self.order(order).is_none_or(|asked| workers.iter().any(|worker| worker.instance == asked.instance))
    }

    /// How far it is, if the worker that was told is `lost` or not.
    pub(super) async fn progress<C: FleetStores>(
        self,
        fleet: &Fleet<C>,
        epoch: u64,
        order: &RunSpec,
        lost: bool,
    ) -> Result<Progress, FleetError> {
        let Some(asked) = self.order(order) else { return Ok(Progress::NotAsked) };
        let (what, worker) = (self.in_words(), &asked.worker);
        // After the look at who is alive: what a worker noted before it died counts.
        let note = fleet.cell().run().notes(epoch).await?.remove(self.note());
        Ok(match note.as_deref().map(|note| note.split_once(':').unwrap_or((note, ""))) {
            Some(("done", _)) => Progress::Done,
            Some((_, reason)) => Progress::Failed(format!("{what} failed on worker {worker}: {reason}")),
            None if !lost => Progress::UnderWay,
            None => Progress::Failed(format!("worker {worker} was lost during {what}, which is not repeated")),
        })
    }

    /// Tells a worker that has the scenario; `false` if there is none.
    pub(super) async fn ask<C: FleetStores>(
        self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        (order, bundle): (&RunSpec, &Bundle),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let able = workers.iter().filter(|worker| worker.ready == record.epoch && worker.is_healthy());
        let Some(worker) = able.min_by(|a, b| a.id.cmp(&b.id)) else { return Ok(false) };
        let asked = Some(HookAssignment { worker: worker.id.clone(), instance: worker.instance });
        let mut order = order.clone();
        match self {
            Which::SetUp => order.set_up = asked,
            Which::TearDown => order.tear_down = asked,
        }
        let phase = phase_of(record)?.name();
        if fleet.cell().run().compare_and_set(record, phase, &text(&order), false).await?.is_some() {
            let (kind, payload) = match self {
                Which::SetUp => (CommandType::StartTest, starting(&order, bundle)),
                Which::TearDown => (CommandType::StopTest, serde_json::Map::new()),
            };
            fleet.wake(kind, record.epoch, payload).await;
        }
        Ok(true)
    }
}
