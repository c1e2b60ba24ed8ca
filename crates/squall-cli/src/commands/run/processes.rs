//! `--processes N`: this command line once more for each process; they make the load, this one merges, judges and reports.

use squall_engine::{Driver, DriverError, EngineError};
use squall_orchestrator::{
    RunError,
    processes::{self, ProcessIndex},
};
use squall_worker::{PoolSlice, serve_local_pools};
use std::sync::Arc;

use super::run_options;
use crate::{
    args::RunArgs,
    exit::{CliError, PASSED, error_chain},
    loaded_scenario::{ConcurrentScenario, LoadedScenario, SET_UP_ENV, ScriptHost, ScriptScenario, pool_error},
};

/// Has the load made by as many processes as the command line asks for.
pub(super) fn split_into_processes<H: ScriptHost>(
    args: &RunArgs,
    program: &mut LoadedScenario<H::Driver>,
    host: &H,
) -> Result<(), CliError> {
    let Some(count) = args.script.processes.filter(|count| *count > 1) else { return Ok(()) };
    let LoadedScenario::Script(ScriptScenario {
        plan, process_commands: processes, threads, concurrent: together, ..
    }) = program
    else {
        return Ok(());
    };
    if host.is_free_threaded() {
        *threads = usize::from(count);
        together.iter_mut().filter(|member| !member.background).for_each(|member| member.threads = usize::from(count));
        return Ok(());
    }
    if args.search.find_max.is_some() {
        return Err(CliError::new(
            "--find-max changes the load while it searches, which --processes cannot follow yet",
        ));
    }
    let seed = plan.seed;
    let mut commands = Vec::new();
    for number in 0..count {
        let mut command =
            host.process_command().ok_or_else(|| CliError::new("--processes belongs to Python scenarios"))?;
        command.arg("--part").arg(format!("{number}/{count}/{seed}"));
        commands.push(command);
    }
    // A command can be started once; a run is, too.
    let commands = std::sync::Mutex::new(Some(commands));
    *processes =
        Some(Arc::new(move || commands.lock().map(|mut commands| commands.take()).ok().flatten().unwrap_or_default()));
    Ok(())
}

/// This process is one of several: it makes its part of the load and says nothing of its own.
pub(super) fn run_as_process<D: Driver>(
    args: &RunArgs,
    program: &LoadedScenario<D>,
    part: ProcessIndex,
    seed: u64,
) -> Result<u8, CliError> {
    let LoadedScenario::Script(hosted) = program else {
        return Err(CliError::new("--part belongs to Python scenarios"));
    };
    let mut options = run_options(&args.engine, program);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let mut members: Vec<_> = hosted.concurrent_scenarios().iter().map(ConcurrentScenario::instantiate).collect();
    members.iter_mut().for_each(|member| member.plan.seed = seed);
    let portion = PoolSlice { index: part.index as u64, count: part.count as u64 };
    let served = runtime.block_on(async {
        let (lender, lending) = serve_local_pools(&hosted.pools, portion).await.map_err(pool_error)?;
        options.resources = Some(lender);
        if let (Some(hooks), Ok(made)) = (&hosted.hooks, std::env::var(SET_UP_ENV)) {
            hooks
                .apply_set_up_data(&made)
                .map_err(|reason| RunError::Engine(EngineError::Driver(DriverError::SetUpData { reason })))?;
        }
        let served = processes::run_child_process(members, options, part).await;
        lending.abort();
        served
    });
    served.map(|()| PASSED).map_err(|error| CliError::new(error_chain(&error)))
}
