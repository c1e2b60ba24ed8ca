//! One run with everything that watches it: the dashboard or the lines, the outputs that are written as it goes, the signals.

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

/// What is shown while the run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressDisplay {
    Off,
    /// One line a second.
    Lines,
    /// The dashboard, or lines where there is no terminal for it.
    Dashboard,
}

/// Carries `run` out to its end.
pub(crate) fn execute_run(
    button: &StopButton,
    shown: ProgressDisplay,
    watcher: &mut dyn RunObserver,
    run: impl AsyncFnOnce(&RunControl, &mut [&mut dyn RunObserver]) -> Result<RunResult, CliError>,
) -> Result<RunResult, CliError> {
    let mut dashboard = None;
    let (mut lines, mut announcer) = (LiveLinePrinter::new(), StopNotifier::new(button.clone()));
    if shown == ProgressDisplay::Dashboard && terminal::can_show_dashboard() {
        dashboard = Dashboard::open(button.clone()).ok();
    }
    let mut observers: Vec<&mut dyn RunObserver> = vec![watcher];
    match &mut dashboard {
        Some(dashboard) => observers.push(dashboard),
        None => {
            if shown != ProgressDisplay::Off {
                observers.push(&mut lines);
            }
            observers.push(&mut announcer);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let finished = runtime
        .map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?
        .block_on(async { run(button.control(), &mut observers).await });
    drop(dashboard);
    finished
}

/// The generator's settings.
pub(crate) fn run_options<D: Driver>(args: &EngineArgs, program: &LoadedScenario<D>) -> RunOptions {
    let default = EngineLimits::default();
    let limits = EngineLimits {
        threads: args.threads.map(usize::from).or(program.threads()),
        max_users: args.max_users.map_or(default.max_users, |most| most as usize),
        grace: args.grace.unwrap_or(default.grace),
        slack: args.slack.unwrap_or(default.slack),
        late_after: args.late_after.unwrap_or(default.late_after),
        phases: program.phases(),
    };
    RunOptions { limits, ..RunOptions::default() }
}
