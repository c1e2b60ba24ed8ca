//! `squall worker`: runs one load generator of a fleet in the foreground until a stop signal.
//! squall-worker does the work; here are its name, its store and its signals.

use squall_coord::unique_id;
use squall_worker::{Worker, WorkerConfig};
use tokio_util::sync::CancellationToken;

use crate::{
    args::LoadWorkerArgs,
    bundle::BundleOpener,
    commands::orchestrator::build_offer,
    exit::{CliError, PASSED, error_chain},
    fleet_store, logs,
    script_host::ScriptHost,
    signals::StopSignals,
    worker_health::{self, ReadinessCheck},
};

pub(crate) fn run_worker<H: ScriptHost>(args: &LoadWorkerArgs, host: &H) -> Result<u8, CliError> {
    logs::start(args.log);
    let id = args.id.clone().unwrap_or_else(|| format!("{}-{}", host_name(), &unique_id()[..6]));
    check_id(&id)?;
    let offer = args.scenario.as_deref().map(|path| build_offer(path, args.target.as_deref(), host)).transpose()?;
    if offer.is_some() && !args.fleet.is_empty() {
        tracing::warn!(
            "--scenario has no effect in the fleet `{}`: vikhry's orchestrator uses keys without a prefix; \
             add --fleet '' to work for it",
            args.fleet
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let ended = runtime.block_on(async {
        let mut signals =
            StopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
        let stores = fleet_store::open(&args.redis, &args.fleet, |reason| tracing::info!("{reason}")).await?;
        let stop = CancellationToken::new();
        let scenario = offer.map(|offer| offer.bundle);
        let (ttl, run_probes) = (args.expires_after, args.run_probes);
        let config = WorkerConfig { ttl, scenario, run_probes, ..WorkerConfig::new(id) };
        let worker = Worker::new(stores, BundleOpener::new(host.clone()), config);
        let readiness = ReadinessCheck { ttl: args.expires_after, leaving: stop.clone() };
        let status = worker.status();
        let listen = |addr| worker_health::serve(addr, args.allow_remote, status, readiness);
        let listener = args.listen.map(listen).transpose()?;
        if let Some(listener) = &listener {
            tracing::info!(address = %listener.addr(), "serving /healthz, /readyz and /metrics");
        }
        let mut working = Box::pin(worker.run(stop.clone()));
        tokio::select! {
            ended = &mut working => return ended.map_err(|error| CliError::new(error_chain(&error))),
            () = signals.next() => stop.cancel(),
        }
        tokio::select! {
            ended = working => ended.map_err(|error| CliError::new(error_chain(&error))),
            // The second signal: deltas that are not shipped are lost, and the report says so.
            () = signals.next() => {
                tracing::warn!("the worker ends at once; deltas that it has not shipped are lost");
                Ok(())
            }
        }
    });
    // Does not wait for its threads: a scenario that hangs while it is opened would keep the worker alive.
    runtime.shutdown_background();
    ended.map(|()| PASSED)
}

/// A worker's name is part of Redis keys.
fn check_id(id: &str) -> Result<(), CliError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !id.is_empty() && id.len() <= 64 && id.chars().all(allowed) {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "--id: `{id}` is not a valid name: use up to 64 letters, digits, `-`, `_` and `.`"
        ))),
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let kept: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    if kept.is_empty() { "worker".to_owned() } else { kept }
}
