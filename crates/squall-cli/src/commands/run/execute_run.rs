//! Executes one run with its observers: the dashboard or the progress lines, the live outputs, the
//! stop notices. Does not load the scenario. `commands::run`,
//! `commands::cql` and `find_max` call it.

use squall_engine::Driver;
use squall_model::EngineLimits;
use squall_orchestrator::{RunControl, RunObserver, RunOptions, RunResult};

use crate::{
    args::EngineArgs,
    exit::CliError,
    loaded_scenario::LoadedScenario,
    stop_button::{StopButton, StopNotifier},
    terminal::{self, dashboard::Dashboard, live_lines::LiveLinePrinter},
};

/// How progress is shown during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressDisplay {
    Off,
    /// One line a second.
    Lines,
    /// The dashboard, or lines if standard error is not a terminal that can show it.
    Dashboard,
}

/// Executes `run` to its end on a runtime of its own; `outputs` and the display observe it.
pub(crate) fn execute_run(
    button: &StopButton,
    display: ProgressDisplay,
    outputs: &mut dyn RunObserver,
    run: impl AsyncFnOnce(&RunControl, &mut [&mut dyn RunObserver]) -> Result<RunResult, CliError>,
) -> Result<RunResult, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?
        .block_on(observe_run(button, display, outputs, run))
}

/// As [`execute_run`], on the runtime of the caller.
pub(crate) async fn observe_run(
    button: &StopButton,
    display: ProgressDisplay,
    outputs: &mut dyn RunObserver,
    run: impl AsyncFnOnce(&RunControl, &mut [&mut dyn RunObserver]) -> Result<RunResult, CliError>,
) -> Result<RunResult, CliError> {
    let mut dashboard = None;
    let (mut lines, mut stop_notifier) = (LiveLinePrinter::new(), StopNotifier::new(button.clone()));
    if display == ProgressDisplay::Dashboard {
        match terminal::can_show_dashboard() {
            true => dashboard = Dashboard::open(button.clone()).ok(),
            false => terminal::print_stderr(terminal::missing_dashboard_notice().unwrap_or_default()),
        }
    }
    let mut observers: Vec<&mut dyn RunObserver> = vec![outputs];
    match &mut dashboard {
        Some(dashboard) => observers.push(dashboard),
        None => {
            if display != ProgressDisplay::Off {
                observers.push(&mut lines);
            }
            observers.push(&mut stop_notifier);
        }
    }
    let finished = run(button.control(), &mut observers).await;
    drop(dashboard);
    finished
}

/// The options of the engine: the flags, and defaults for the rest.
pub(crate) fn run_options<D: Driver>(args: &EngineArgs, scenario: &LoadedScenario<D>) -> RunOptions {
    let default = EngineLimits::default();
    let limits = EngineLimits {
        threads: args.threads.map(usize::from).or(scenario.threads()),
        max_users: args.max_users.map_or(default.max_users, |limit| limit as usize),
        start_users: args.start_users.map(|users| users as usize),
        grace: args.grace.unwrap_or(default.grace),
        slack: args.slack.unwrap_or(default.slack),
        late_after: args.late_after.unwrap_or(default.late_after),
        phases: scenario.phases(),
    };
    RunOptions { limits, several: scenario.has_multiple_scenarios(), ..RunOptions::default() }
}
