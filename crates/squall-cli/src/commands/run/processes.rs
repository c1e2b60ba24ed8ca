//! `--processes N`: this command line once more for each process; they make the load, this one merges, judges and reports.

use squall_engine::{Driver, DriverError, EngineError};
use squall_orchestrator::{
    RunError,
    processes::{self, Part},
};
use squall_worker::{Portion, lend_here};
use std::sync::Arc;

use super::options;
use crate::{
    args::RunArgs,
    exit::{PASSED, Refusal, error_chain},
    program::{Host, Hosted, Member, Program, SET_UP, unstocked},
};

/// Has the load made by as many processes as the command line asks for.
pub(super) fn share<H: Host>(args: &RunArgs, program: &mut Program<H::Driver>, host: &H) -> Result<(), Refusal> {
    let Some(count) = args.script.processes.filter(|count| *count > 1) else { return Ok(()) };
    let Program::Hosted(Hosted { plan, processes, threads, together, .. }) = program else { return Ok(()) };
    if host.has_free_threads() {
        *threads = usize::from(count);
        together.iter_mut().filter(|member| !member.follows).for_each(|member| member.threads = usize::from(count));
        return Ok(());
    }
    if args.search.find_max.is_some() {
        return Err(Refusal::new("--find-max changes the load while it searches, which --processes cannot follow yet"));
    }
    let seed = plan.seed;
    let mut commands = Vec::new();
    for number in 0..count {
        let mut command = host.again().ok_or_else(|| Refusal::new("--processes belongs to Python scenarios"))?;
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
pub(super) fn serve<D: Driver>(args: &RunArgs, program: &Program<D>, part: Part, seed: u64) -> Result<u8, Refusal> {
    let Program::Hosted(hosted) = program else {
        return Err(Refusal::new("--part belongs to Python scenarios"));
    };
    let mut options = options(&args.engine, program);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?;
    let mut members: Vec<_> = hosted.members().iter().map(Member::begin).collect();
    members.iter_mut().for_each(|member| member.plan.seed = seed);
    let portion = Portion { number: part.number as u64, of: part.of as u64 };
    let served = runtime.block_on(async {
        let (lender, lending) = lend_here(&hosted.stock, portion).await.map_err(unstocked)?;
        options.lender = Some(lender);
        if let (Some(hooks), Ok(made)) = (&hosted.hooks, std::env::var(SET_UP)) {
            hooks.share(&made).map_err(|reason| RunError::Engine(EngineError::Driver(DriverError(reason))))?;
        }
        let served = processes::serve(members, options, part).await;
        lending.abort();
        served
    });
    served.map(|()| PASSED).map_err(|error| Refusal::new(error_chain(&error)))
}
