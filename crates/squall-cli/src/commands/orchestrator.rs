//! `squall orchestrator`: serves the API of a fleet and leads it while no other orchestrator does,
//! in the foreground until a stop signal. squall-orchestrator leads, squall-web serves.

use clap::Parser;
use squall_coord::{FleetStores, MemoryFleetStores};
use squall_engine::Driver;
use squall_orchestrator::{FleetClient, Orchestrator, OrchestratorConfig};
use squall_streams::{Namespace, admin::StreamAdmin};
use squall_web::{
    AllowedOrigin, ApiToken, ResourceFactory, SharedCatalog, ShownGrid, ShownStreams, StartableParam,
    StartableScenario, TlsFiles, WebConfig,
};
use squall_worker::{Worker, WorkerConfig};
use std::{path::Path, sync::Arc};
use tokio::{
    net::{TcpListener, lookup_host},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cli, CliCommand, OrchestratorArgs},
    bundle::{self, BundleOpener},
    command_line::{shell_line, without_credentials},
    commands::run::{load_scenario, resolve_input},
    exit::{CliError, PASSED, error_chain},
    fleet_store,
    loaded_scenario::LoadedScenario,
    logs,
    offered_scenarios::OfferedScenarios,
    run_history::{self, SavedBy},
    run_input::RunInput,
    run_settings::CHECK_TARGET,
    scenario_choice::ScenarioChoice,
    script_host::{ScenarioParam, ScriptDescription, ScriptHost},
    signals::StopSignals,
};

pub(crate) fn serve<H: ScriptHost>(args: &OrchestratorArgs, host: &H) -> Result<u8, CliError> {
    logs::start(args.log);
    let config = web_config(args, host)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    // Boxed, because the future is large; local, because drivers stay on their threads.
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
                let config = add_stores(args, config, redis).await?;
                let stores = fleet_store::open(redis, &args.fleet, |reason| tracing::info!("{reason}")).await?;
                Box::pin(lead_and_serve(stores, id, config, listener, stop.clone())).await
            }
            (None, _) if args.shown.streams.is_some() || args.shown.grid.is_some() => {
                Err(CliError::new("--streams and --grid need a Redis server: give --redis URL"))
            }
            (None, workers) => {
                let stores = MemoryFleetStores::default();
                let serving = lead_and_serve(stores.clone(), id, config, listener, stop.clone());
                let working = run_memory_workers(stores, host, workers.unwrap_or(1), stop.clone());
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
        // The second signal: another orchestrator leads when the lease expires.
        () = signals.next() => Ok(()),
    }
}

/// What the web UI shows of the Redis server: streams, the grid and how a worker joins.
async fn add_stores(args: &OrchestratorArgs, config: WebConfig, redis: &str) -> Result<WebConfig, CliError> {
    let grid = match &args.shown.grid {
        Some(name) => {
            Some(ShownGrid { store: fleet_store::open_grid(redis, name, |reason| tracing::info!("{reason}")).await? })
        }
        None => None,
    };
    let streams = match &args.shown.streams {
        Some(name) => {
            let namespace = Namespace::new(name).map_err(|error| CliError::new(format!("--streams: {error}")))?;
            let client = fleet_store::connect(redis, |reason| tracing::info!("{reason}")).await?;
            Some(ShownStreams { admin: StreamAdmin::new(client, namespace) })
        }
        None => None,
    };
    Ok(WebConfig { grid, streams, worker_command: Some(worker_command(redis, &args.fleet)), ..config })
}

/// The command that adds a worker to the fleet, without the password of the server.
fn worker_command(redis: &str, fleet: &str) -> String {
    let arguments = ["--redis", &without_credentials(redis), "--fleet", fleet].map(str::to_owned);
    shell_line(&["squall", "worker"], &arguments)
}

/// Leads and serves until `stop`.
pub(super) async fn lead_and_serve<C: FleetStores>(
    stores: C,
    id: String,
    config: WebConfig,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), CliError> {
    let leader = Orchestrator::new(stores.clone(), OrchestratorConfig::new(id)).run(stop.clone());
    let serving = squall_web::serve(FleetClient::new(stores), config, listener, stop.clone());
    let leading = async { leader.await.map_err(|error| CliError::new(error_chain(&error))) };
    let serving = async {
        let ended = serving.await.map_err(|error| CliError::new(error_chain(&error)));
        stop.cancel();
        ended
    };
    tokio::try_join!(leading, serving).map(|_| ())
}

/// Runs the workers of a fleet without Redis, in this process.
async fn run_memory_workers<H: ScriptHost>(
    stores: MemoryFleetStores,
    host: &H,
    workers: u16,
    stop: CancellationToken,
) -> Result<(), CliError> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=workers {
        let config = WorkerConfig::new(format!("worker-{number}"));
        tasks.spawn_local(Worker::new(stores.clone(), BundleOpener::new(host.clone()), config).run(stop.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended
            .map_err(|error| CliError::new(format!("a worker failed: {error}")))?
            .map_err(|error| CliError::new(error_chain(&error)))?;
    }
    Ok(())
}

/// Binds the API's address, if it is allowed without a token.
pub(super) async fn bind_api(address: &str, config: &WebConfig) -> Result<TcpListener, CliError> {
    let addresses = lookup_host(address).await;
    let mut addresses =
        addresses.map_err(|error| CliError::new(format!("--listen {address}: write HOST:PORT ({error})")))?;
    let addr = addresses.next().ok_or_else(|| CliError::new(format!("--listen {address}: the host is unknown")))?;
    config.check_address(addr).map_err(|error| CliError::new(error.to_string()))?;
    TcpListener::bind(addr).await.map_err(|error| {
        CliError::new(format!("cannot listen on {addr}: {error}; give another address with --listen HOST:PORT"))
    })
}

fn web_config<H: ScriptHost>(args: &OrchestratorArgs, host: &H) -> Result<WebConfig, CliError> {
    let token = args.token.as_ref().map(|secret| ApiToken::new(secret.0.clone())).transpose();
    let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key });
    let allowed_origins = args.allow_origin.iter().map(|origin| AllowedOrigin::new(origin)).collect::<Result<_, _>>();
    Ok(WebConfig {
        token: token.map_err(|error| CliError::new(format!("--token: {error}")))?,
        tls,
        scenario: args.scenario.as_deref().map(|path| build_offer(path, args.target.as_deref(), host)).transpose()?,
        catalog: catalog(args, host)?,
        allowed_origins: allowed_origins.map_err(|error| CliError::new(format!("--allow-origin: {error}")))?,
        history: run_history::open(&args.history)?.map(|folder| run_history::for_server(folder, SavedBy::Server)),
        ..WebConfig::local(env!("SQUALL_VERSION"))
    })
}

/// The scenarios that the web UI starts.
fn catalog<H: ScriptHost>(args: &OrchestratorArgs, host: &H) -> Result<Option<SharedCatalog>, CliError> {
    let scenario = args.scenario.as_ref().map(|path| path.display().to_string());
    let (target, folder) = (args.target.clone(), args.shown.scenarios.clone());
    let offered = OfferedScenarios { scenario, target, folder, host: host.clone() };
    let files = offered.files()?;
    // The program without Python becomes the one of the Python package now, because it cannot while it serves.
    if let (Some(folder), Some(script), None) =
        (&offered.folder, files.iter().find(|name| name.ends_with(".py")), host.interpreter())
        && let Err(error) = build_offer(&folder.join(script), None, host)
    {
        tracing::warn!("{script} and the other Python scenarios of --scenarios cannot be started here: {error}");
    }
    Ok(offered.is_configured().then(|| SharedCatalog(Arc::new(offered))))
}

/// The variables of a scenario file, as optional parameters, and its pools.
fn describe_scenario_file<D: Driver>(loaded: &LoadedScenario<D>) -> ScriptDescription {
    let LoadedScenario::Declarative { scenario, .. } = loaded else { return ScriptDescription::default() };
    let param = |(name, value): &(String, serde_json::Value)| ScenarioParam {
        name: name.clone(),
        kind: StartableParam::KIND_VARIABLE.to_owned(),
        required: false,
        annotation: None,
        default: Some(value.to_string()),
    };
    ScriptDescription {
        params: scenario.variables().iter().map(param).collect(),
        resources: loaded.pools().into_iter().map(|contents| contents.pool).collect(),
        ..ScriptDescription::default()
    }
}

/// The scenario that `POST /start_test` starts, or that a worker runs for vikhry's orchestrator.
pub(crate) fn build_offer<H: ScriptHost>(
    path: &Path,
    target: Option<&str>,
    host: &H,
) -> Result<StartableScenario, CliError> {
    let text = path.to_str().ok_or_else(|| CliError::new("--scenario: the path is not UTF-8"))?;
    let ScenarioChoice { file: text, class } = ScenarioChoice::parse(text, Path::new(""))?;
    let CliCommand::Run(mut args) =
        Cli::try_parse_from(["squall", "run", &text]).map_err(|error| CliError::new(error.to_string()))?.command
    else {
        return Err(CliError::new("--scenario: give a URL or a .toml or .py file"));
    };
    args.target = target.map(str::to_owned);
    args.script.scenario.clone_from(&class);
    let input = resolve_input(&mut args)?;
    let described = match &input {
        RunInput::Script(file) => host.describe(file, class.as_deref())?,
        RunInput::ScenarioFile(_) => describe_scenario_file(&load_scenario(&input, &args, None, host)?),
        RunInput::Url(_) => ScriptDescription::default(),
    };
    // Placeholders, so that the scenario can be validated now. The request that starts the test
    // gives the real values, and a script may get its target from them.
    let required = described.params.iter().filter(|param| param.required);
    args.script.params = required.map(|param| format!("{}=null", param.name)).collect();
    args.check = true;
    let (mut bundle, _) = bundle::build(&input, &args, host)?;
    bundle.params.clear();
    let params = described.params.into_iter().map(|param| StartableParam {
        name: param.name,
        kind: param.kind,
        required: param.required,
        annotation: param.annotation,
        default: param.default.and_then(|text| serde_json::from_str(&text).ok()),
    });
    Ok(StartableScenario {
        path: text.into(),
        has_target: bundle.plan.target != CHECK_TARGET,
        bundle,
        params: params.collect(),
        accepts_any_param: described.accepts_any_param,
        resources: described.resources,
        probes: described.probes,
        resource_factory: described.make_resource.map(ResourceFactory),
    })
}
