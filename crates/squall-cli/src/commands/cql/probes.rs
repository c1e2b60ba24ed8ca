//! The probes of `squall cql … --find-max`: short runs of the command at a rate. It searches nothing:
//! `find_max` does.

use squall_cql::{CqlDriver, DatabaseTarget, DriverWork, Pacing, StressSettings, ThreadPlan, Workload};
use squall_model::Plan;
use squall_orchestrator::{RunControl, RunObserver, RunResult, run_local};

use super::{
    fleet_target::sequence_limit,
    run_plan::{RunIdentity, RunPlace, RunShape, engine_threads, plan, run_options},
    run_report::name_words,
};
use crate::{
    args::CqlArgs,
    exit::CliError,
    find_max::{ProbeTarget, SearchSettings},
};

/// The command, ready to be probed.
pub(super) struct CqlProbes {
    settings: StressSettings,
    target: DatabaseTarget,
    workload: Workload,
    shape: RunShape,
    plan: Plan,
}

impl CqlProbes {
    /// `identity` holds the thresholds that each probe is judged by, too.
    pub(super) fn new(
        settings: StressSettings,
        target: DatabaseTarget,
        workload: Workload,
        identity: RunIdentity,
    ) -> Result<CqlProbes, CliError> {
        let ThreadPlan::Fixed(threads) = settings.rate.threads else {
            return Err(CliError::new("--find-max searches the rate of one number of threads: give -rate threads=N"));
        };
        if sequence_limit(&settings).is_some() {
            return Err(CliError::new("--find-max makes many runs, and no-wrap ends one: remove no-wrap"));
        }
        let stop = settings.command.stop;
        let shape = RunShape { threads, pacing: Pacing::Unlimited, stop, place: RunPlace::ThisProcess };
        let plan = plan(&settings, &workload, shape, identity)?;
        Ok(CqlProbes { settings, target, workload, shape, plan })
    }
}

/// The settings of the search; `None` without `--find-max`. It begins at the rate of the command.
pub(super) fn search_settings(args: &CqlArgs, settings: &StressSettings) -> Option<SearchSettings> {
    let first_rate = match settings.rate.pacing {
        Pacing::Unlimited => None,
        Pacing::Throttle(rate) | Pacing::Fixed(rate) => Some(rate as f64),
    };
    SearchSettings::new(&args.search(), &args.output, args.strict, first_rate)
}

impl ProbeTarget for CqlProbes {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    async fn run_probe(
        &self,
        plan: Plan,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, CliError> {
        let engine_threads = engine_threads(&self.settings, self.shape.threads);
        let work = DriverWork { workload: self.workload.clone(), partitions: None, engine_threads };
        // A failed operation does not end a probe: its thresholds judge it.
        let driver = CqlDriver::new(&self.settings, &self.target, work);
        let options = run_options(&self.settings, self.shape, 1);
        let mut result = run_local(&plan, driver, options, control, observers).await?;
        name_words(&mut result);
        Ok(result)
    }
}
