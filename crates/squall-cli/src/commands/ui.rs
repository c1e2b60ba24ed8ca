//! `squall ui`: serves the web UI for a folder of results until a stop signal. Nothing runs: the
//! server has a fleet in memory without members.

use squall_coord::MemoryFleetStores;
use squall_orchestrator::FleetClient;
use squall_web::{ApiToken, RunHistory, ServerMode, WebConfig};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use super::orchestrator::bind_api;
use crate::{
    args::UiArgs,
    exit::{CliError, PASSED, error_chain},
    run_history,
    signals::StopSignals,
    terminal::print,
};

pub(crate) fn ui(args: &UiArgs) -> Result<u8, CliError> {
    if !args.folder.is_dir() {
        return Err(CliError::new(format!(
            "no folder {}: `squall run … --history` makes one, or give a folder of results",
            args.folder.display()
        )));
    }
    let token = args.token.as_ref().map(|secret| ApiToken::new(secret.0.clone())).transpose();
    let folder = Arc::new(run_history::read_only(&args.folder));
    let config = WebConfig {
        token: token.map_err(|error| CliError::new(format!("--token: {error}")))?,
        history: Some(RunHistory { folder, baseline: args.baseline.clone(), saves_runs: false }),
        mode: ServerMode::Results,
        ..WebConfig::local(env!("SQUALL_VERSION"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(async {
        let mut signals =
            StopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
        let listener = bind_api(&args.listen, &config).await?;
        let address = listener.local_addr().map_or_else(|_| args.listen.clone(), |address| address.to_string());
        print::stdout(
            format!(
                "results in {}: http://{address}/#/history        (Ctrl-C stops)\n{}",
                args.folder.display(),
                if squall_web::has_ui() { "" } else { "this build has no page: `make ui` adds it\n" },
            )
            .as_bytes(),
        )?;
        let stop = CancellationToken::new();
        let serving = squall_web::serve(FleetClient::new(MemoryFleetStores::default()), config, listener, stop.clone());
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            ended = &mut serving => return ended.map_err(|error| CliError::new(error_chain(&error))),
            () = signals.next() => stop.cancel(),
        }
        serving.await.map_err(|error| CliError::new(error_chain(&error)))
    })?;
    Ok(PASSED)
}
