//! Runs a loaded scenario on this machine: resource pools, set-up, load, tear-down. Shows and
//! writes nothing of the result: `commands::run` and `find_max` call it with their observers.

use squall_engine::{Driver, DriverError, EngineError};
use squall_metrics::{ErrorNote, MetricKey, Outcome, OutcomeCategory};
use squall_orchestrator::{
    RunControl, RunError, RunObserver, RunOptions, RunResult, processes::GeneratorProcesses, run_local, run_scenarios,
    run_with_generator,
};
use squall_worker::{PoolFillError, PoolSlice, run_hook, serve_local_pools};
use std::sync::Arc;

use super::{LoadedScenario, ScriptScenario};
use crate::exit::error_chain;

/// The environment variable in which the processes of a run find the data of its set-up.
pub(crate) const SET_UP_ENV: &str = "SQUALL_SET_UP";

impl<D: Driver> LoadedScenario<D> {
    pub(crate) async fn run(
        &self,
        mut options: RunOptions,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, RunError> {
        let (resources, pool_server) = serve_local_pools(&self.pools(), PoolSlice::ALL).await.map_err(pool_error)?;
        options.resources = Some(resources);
        let set_up_data = self.set_up().await?;
        let mut finished = self.make_load(options, control, observers, set_up_data.as_deref()).await;
        if let (Some(set_up_data), Some(hooks)) = (set_up_data, self.hooks()) {
            // A failed tear-down is reported beside the measurements and does not replace them.
            if let Err(error) = run_hook(move || hooks.tear_down(&set_up_data)).await {
                let reason = error_chain(&error);
                crate::terminal::print_stderr(format!("tear-down failed: {reason}\n"));
                if let Ok(finished) = &mut finished {
                    finished.view.errors.push(tear_down_error_note(reason));
                }
            }
        }
        // The pools end with the run, even if users still hold leases.
        pool_server.abort();
        finished
    }

    /// Runs the scenario's set-up, if it has one, and returns the data that it made.
    async fn set_up(&self) -> Result<Option<String>, RunError> {
        let Some(hooks) = self.hooks() else { return Ok(None) };
        let set_up_data = run_hook(move || {
            let data = hooks.set_up()?;
            hooks.apply_set_up_data(&data).map(|()| data)
        });
        set_up_data.await.map(Some).map_err(|error| driver_error(DriverError::SetUp { reason: error_chain(&error) }))
    }

    async fn make_load(
        &self,
        options: RunOptions,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
        set_up_data: Option<&str>,
    ) -> Result<RunResult, RunError> {
        match self {
            LoadedScenario::Declarative { scenario, .. } => {
                run_local(&scenario.plan, scenario.driver(), options, control, observers).await
            }
            LoadedScenario::Script(ScriptScenario { plan, process_commands: Some(process_commands), .. }) => {
                let mut commands = process_commands();
                if let Some(data) = set_up_data {
                    for command in &mut commands {
                        command.env(SET_UP_ENV, data);
                    }
                }
                let processes = GeneratorProcesses::start(commands).await?;
                run_with_generator(plan, processes, options, control, observers).await
            }
            LoadedScenario::Script(script) => match script.scenarios.as_slice() {
                [only] => run_local(&script.plan, (only.driver)(), options, control, observers).await,
                _ => run_scenarios(&script.plan, script.instantiate(), options, control, observers).await,
            },
        }
    }
}

/// The pools could not be filled. Their names have been validated before.
pub(crate) fn pool_error(error: PoolFillError) -> RunError {
    driver_error(DriverError::Pools { reason: error.to_string() })
}

fn tear_down_error_note(message: String) -> ErrorNote {
    let outcome = Outcome::new(OutcomeCategory::Exception, "TEAR_DOWN_FAILED");
    ErrorNote { metric: Arc::new(MetricKey::group("tear_down")), outcome, message, count: 1 }
}

fn driver_error(error: DriverError) -> RunError {
    RunError::Engine(EngineError::Driver(error))
}
