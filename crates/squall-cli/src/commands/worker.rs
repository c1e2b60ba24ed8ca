//! `squall worker`: one of a fleet's load generators, in the foreground until it is told to stop.

use squall_coord::MemberId;
use squall_worker::{Worker, WorkerConfig};
use tokio_util::sync::CancellationToken;

use crate::{
    args::LoadWorkerArgs,
    bundle::BundleOpener,
    exit::{CliError, PASSED, error_chain},
    fleet_store,
    loaded_scenario::ScriptHost,
    logs,
    signals::StopSignals,
    worker_health::{self, ReadinessCheck},
};

pub(crate) fn run_worker<H: ScriptHost>(args: &LoadWorkerArgs, host: &H) -> Result<u8, CliError> {
    logs::start(args.log);
    let id = args.id.clone().unwrap_or_else(|| format!("{}-{}", host_name(), &MemberId::unique().as_str()[..6]));
    check_id(&id)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?.block_on(async {
        let mut signals =
            StopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
        let cell = fleet_store::open(&args.redis, &args.fleet, |why| tracing::info!("{why}")).await?;
        let stop = CancellationToken::new();
        let config = WorkerConfig { ttl: args.expires_after, ..WorkerConfig::new(id) };
        let worker = Worker::new(cell, BundleOpener::new(host.clone()), config);
        let readiness = ReadinessCheck { ttl: args.expires_after, leaving: stop.clone() };
        let status = worker.status();
        let listen = |addr| worker_health::serve(addr, args.allow_remote, status, readiness);
        let listener = args.listen.map(listen).transpose()?;
        if let Some(listener) = &listener {
            tracing::info!(address = %listener.addr(), "answers /healthz, /readyz and /metrics");
        }
        let mut working = Box::pin(worker.run(stop.clone()));
        tokio::select! {
            ended = &mut working => return ended.map_err(|error| CliError::new(error_chain(&error))),
            () = signals.next() => stop.cancel(),
        }
        tokio::select! {
            ended = working => ended.map_err(|error| CliError::new(error_chain(&error))),
            // Asked twice: what is not shipped is lost, and the report will say so.
            () = signals.next() => {
                tracing::warn!("ended at once; what it had not shipped is lost");
                Ok(())
            }
        }
    })?;
    Ok(PASSED)
}

/// A worker's name is part of keys.
fn check_id(id: &str) -> Result<(), CliError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !id.is_empty() && id.len() <= 64 && id.chars().all(allowed) {
        true => Ok(()),
        false => {
            Err(CliError::new(format!("--id: `{id}` cannot be a name: up to 64 letters, digits, `-`, `_` and `.`")))
        }
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let kept: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    if kept.is_empty() { "worker".to_owned() } else { kept }
}
