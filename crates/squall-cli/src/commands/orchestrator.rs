//! `squall orchestrator`: leads the fleet whenever nobody else does and serves its API, in the foreground until it is told to stop.

use clap::Parser;
use squall_coord::{FleetStores, MemoryFleetStores};
use squall_engine::Driver;
use squall_orchestrator::{FleetClient, Orchestrator, OrchestratorConfig};
use squall_web::{ApiToken, StartableParam, StartableScenario, TlsFiles, WebConfig};
use squall_worker::{Worker, WorkerConfig};
use std::path::Path;
use tokio::{
    net::{TcpListener, lookup_host},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cli, CliCommand, OrchestratorArgs},
    bundle::{self, BundleOpener},
    commands::run::{load_scenario, resolve_input},
    exit::{CliError, PASSED, error_chain},
    fleet_store,
    loaded_scenario::{LoadedScenario, ScenarioParam, ScriptHost},
    logs,
    run_input::RunInput,
    signals::StopSignals,
};

pub(crate) fn serve<H: ScriptHost>(args: &OrchestratorArgs, host: &H) -> Result<u8, CliError> {
    logs::start(args.log);
    let config = web_config(args, host)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    // Boxed and local: what a fleet waits for is deep, and its drivers stay on their threads.
    LocalSet::new().block_on(&runtime, Box::pin(run_orchestrator(args, host, config)))?;
    Ok(PASSED)
}

async fn run_orchestrator<H: ScriptHost>(args: &OrchestratorArgs, host: &H, config: WebConfig) -> Result<(), CliError> {
    let mut signals =
        StopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let listener = bind_api(&args.listen, &config).await?;
    let id = args.id.clone().unwrap_or_else(|| format!("orchestrator-{}", std::process::id()));
    let stop = CancellationToken::new();
    let working = async {
        match (&args.redis, args.memory_workers) {
            (Some(redis), _) => {
                let cell = fleet_store::open(redis, &args.fleet, |why| tracing::info!("{why}")).await?;
                Box::pin(lead_and_serve(cell, id, config, listener, stop.clone())).await
            }
            (None, workers) => {
                let cell = MemoryFleetStores::default();
                let serving = lead_and_serve(cell.clone(), id, config, listener, stop.clone());
                let working = run_memory_workers(cell, host, workers.unwrap_or(1), stop.clone());
                tokio::try_join!(serving, working).map(|_| ())
            }
        }
    };
    let mut working = std::pin::pin!(working);
    tokio::select! {
        ended = &mut working => return ended,
        () = signals.next() => stop.cancel(),
    }
    tokio::select! {
        ended = working => ended,
        // Asked twice: the lead then passes on when its lease runs out.
        () = signals.next() => Ok(()),
    }
}

/// Leads and serves until `stop`.
async fn lead_and_serve<C: FleetStores>(
    cell: C,
    id: String,
    config: WebConfig,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), CliError> {
    let leader = Orchestrator::new(cell.clone(), OrchestratorConfig::new(id)).run(stop.clone());
    let serving = squall_web::serve(FleetClient::new(cell), config, listener, stop.clone());
    let leading = async { leader.await.map_err(|error| CliError::new(error_chain(&error))) };
    let serving = async {
        let ended = serving.await.map_err(|error| CliError::new(error_chain(&error)));
        stop.cancel();
        ended
    };
    tokio::try_join!(leading, serving).map(|_| ())
}

/// The workers of a fleet that lives in this process.
async fn run_memory_workers<H: ScriptHost>(
    cell: MemoryFleetStores,
    host: &H,
    workers: u16,
    stop: CancellationToken,
) -> Result<(), CliError> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=workers {
        let config = WorkerConfig::new(format!("worker-{number}"));
        tasks.spawn_local(Worker::new(cell.clone(), BundleOpener::new(host.clone()), config).run(stop.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended
            .map_err(|error| CliError::new(format!("a worker failed: {error}")))?
            .map_err(|error| CliError::new(error_chain(&error)))?;
    }
    Ok(())
}

/// Binds the API's address, if it may be bound.
async fn bind_api(address: &str, config: &WebConfig) -> Result<TcpListener, CliError> {
    let addresses = lookup_host(address).await;
    let mut addresses =
        addresses.map_err(|error| CliError::new(format!("--listen {address}: write HOST:PORT ({error})")))?;
    let addr = addresses.next().ok_or_else(|| CliError::new(format!("--listen {address}: there is no such host")))?;
    config.check_address(addr).map_err(|error| CliError::new(error.to_string()))?;
    TcpListener::bind(addr).await.map_err(|error| {
        CliError::new(format!("cannot listen on {addr}: {error}; give another address with --listen HOST:PORT"))
    })
}

fn web_config<H: ScriptHost>(args: &OrchestratorArgs, host: &H) -> Result<WebConfig, CliError> {
    let token = args.token.as_ref().map(|secret| ApiToken::new(secret.0.clone())).transpose();
    let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key });
    Ok(WebConfig {
        token: token.map_err(|error| CliError::new(format!("--token: {error}")))?,
        tls,
        scenario: args.scenario.as_deref().map(|path| build_offer(path, host)).transpose()?,
        version: env!("SQUALL_VERSION"),
    })
}

/// The variables of a scenario file, as parameters that need not be given.
fn variable_params<D: Driver>(program: &LoadedScenario<D>) -> Vec<ScenarioParam> {
    let LoadedScenario::Declarative { scenario, .. } = program else { return Vec::new() };
    let param = |(name, value): &(String, serde_json::Value)| ScenarioParam {
        name: name.clone(),
        kind: StartableParam::KIND_VARIABLE.to_owned(),
        required: false,
        annotation: None,
        default: Some(value.to_string()),
    };
    scenario.variables().iter().map(param).collect()
}

fn build_offer<H: ScriptHost>(path: &Path, host: &H) -> Result<StartableScenario, CliError> {
    let word = path.to_str().ok_or_else(|| CliError::new("--scenario: the path is not UTF-8"))?.to_owned();
    let words = ["squall".to_owned(), "run".to_owned(), word];
    let CliCommand::Run(mut args) =
        Cli::try_parse_from(&words).map_err(|error| CliError::new(error.to_string()))?.command
    else {
        return Err(CliError::new("--scenario: give a URL or a .toml or .py file"));
    };
    args.raw_args = words[1..].to_vec();
    let what = resolve_input(&mut args)?;
    let (params, takes_any) = match &what {
        RunInput::Script(file) => host.params(file).map_err(CliError::new)?,
        RunInput::ScenarioFile(_) => (variable_params(&load_scenario(&what, &args, None, host)?), false),
        RunInput::Url(_) => (Vec::new(), false),
    };
    // Stand-ins, so that the rest can be judged: who starts the test brings the real ones.
    let required = params.iter().filter(|param| param.required);
    args.script.params = required.map(|param| format!("{}=null", param.name)).collect();
    let (bundle, _) = bundle::build(&what, &args, host)?;
    let params = params.into_iter().map(|param| StartableParam {
        name: param.name,
        kind: param.kind,
        required: param.required,
        annotation: param.annotation,
        default: param.default.and_then(|text| serde_json::from_str(&text).ok()),
    });
    Ok(StartableScenario { path: path.to_owned(), bundle, params: params.collect(), accepts_any_param: takes_any })
}
