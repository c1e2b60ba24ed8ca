//! `--processes N`: starts this command line again for each process. Those processes make the load;
//! this one merges their deltas, checks the thresholds and reports. `commands::run` calls it.

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
    loaded_scenario::{LoadedScenario, SET_UP_ENV, ScriptScenario, pool_error},
    script_host::ScriptHost,
};

/// Makes the scenario run in as many processes as `--processes` says. In a free-threaded
/// interpreter, threads replace the processes.
pub(super) fn split_into_processes<H: ScriptHost>(
    args: &RunArgs,
    scenario: &mut LoadedScenario<H::Driver>,
    host: &H,
) -> Result<(), CliError> {
    let Some(count) = args.script.processes.filter(|count| *count > 1) else { return Ok(()) };
    let LoadedScenario::Script(ScriptScenario { plan, process_commands, scenarios, .. }) = scenario else {
        return Ok(());
    };
    if host.is_free_threaded() {
        let load_scenarios = scenarios.iter_mut().filter(|scenario| !scenario.background);
        load_scenarios.for_each(|scenario| scenario.threads = Some(usize::from(count)));
        return Ok(());
    }
    if args.search.find_max.is_some() {
        return Err(CliError::new(
            "--find-max changes the load while it searches, which --processes does not support: leave one of them out",
        ));
    }
    let seed = plan.seed;
    let mut commands = Vec::new();
    for index in 0..count {
        let mut command = host
            .process_command()
            .ok_or_else(|| CliError::new("--processes is for Python scenarios: leave it out, or run a .py file"))?;
        command.arg("--part").arg(format!("{index}/{count}/{seed}"));
        commands.push(command);
    }
    // Taken once, because a `Command` cannot be cloned and a run starts once.
    let commands = std::sync::Mutex::new(Some(commands));
    *process_commands =
        Some(Arc::new(move || commands.lock().map(|mut commands| commands.take()).ok().flatten().unwrap_or_default()));
    Ok(())
}

/// Runs this process as one of several: makes its part of the load and prints nothing.
pub(super) fn run_as_process<D: Driver>(
    args: &RunArgs,
    scenario: &LoadedScenario<D>,
    part: ProcessIndex,
    seed: u64,
) -> Result<u8, CliError> {
    let LoadedScenario::Script(script) = scenario else {
        return Err(CliError::new("--part is for Python scenarios: leave it out"));
    };
    let mut options = run_options(&args.engine, scenario);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let mut scenarios = script.instantiate();
    scenarios.iter_mut().for_each(|scenario| scenario.plan.seed = seed);
    let slice = PoolSlice { index: part.index as u64, count: part.count as u64 };
    let ended = runtime.block_on(async {
        let (resources, pool_server) = serve_local_pools(&script.pools, slice).await.map_err(pool_error)?;
        options.resources = Some(resources);
        if let (Some(hooks), Ok(set_up_data)) = (&script.hooks, std::env::var(SET_UP_ENV)) {
            hooks
                .apply_set_up_data(&set_up_data)
                .map_err(|error| DriverError::SetUpData { reason: error_chain(&error) })
                .map_err(|error| RunError::Engine(EngineError::Driver(error)))?;
        }
        let ended = processes::run_child_process(scenarios, options, part).await;
        pool_server.abort();
        ended
    });
    ended.map(|()| PASSED).map_err(|error| CliError::new(error_chain(&error)))
}
