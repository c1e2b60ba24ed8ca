//! One run with everything that watches it: the dashboard or the lines, the outputs that are written as it goes, the signals.

use squall_engine::Driver;
use squall_orchestrator::{Control, Finished, Observer, RunOptions};

use crate::{
    args::EngineArgs,
    exit::Refusal,
    program::Program,
    stop::{Announcer, StopButton},
    terminal::{self, dashboard::Dashboard, lines::Lines},
};

/// What is shown while the run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    /// One line a second.
    Lines,
    /// The dashboard, or lines where there is no terminal for it.
    Dashboard,
}

/// Carries `run` out to its end.
pub(crate) fn carry_out(
    button: &StopButton,
    shown: Shown,
    watcher: &mut dyn Observer,
    run: impl AsyncFnOnce(&Control, &mut [&mut dyn Observer]) -> Result<Finished, Refusal>,
) -> Result<Finished, Refusal> {
    let mut dashboard = None;
    let (mut lines, mut announcer) = (Lines::new(), Announcer::new(button.clone()));
    if shown == Shown::Dashboard && terminal::can_show_dashboard() {
        dashboard = Dashboard::open(button.clone()).ok();
    }
    let mut observers: Vec<&mut dyn Observer> = vec![watcher];
    match &mut dashboard {
        Some(dashboard) => observers.push(dashboard),
        None => {
            if shown != Shown::Nothing {
                observers.push(&mut lines);
            }
            observers.push(&mut announcer);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let finished = runtime
        .map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?
        .block_on(async { run(button.control(), &mut observers).await });
    drop(dashboard);
    finished
}

/// The generator's settings.
pub(crate) fn options<D: Driver>(args: &EngineArgs, program: &Program<D>) -> RunOptions {
    let default = RunOptions::default();
    RunOptions {
        threads: args.threads.map(usize::from).or(program.threads()),
        max_users: args.max_users.map_or(default.max_users, |most| most as usize),
        grace: args.grace.unwrap_or(default.grace),
        slack: args.slack.unwrap_or(default.slack),
        late_after: args.late_after.unwrap_or(default.late_after),
        phases: program.phases(),
        ..default
    }
}
