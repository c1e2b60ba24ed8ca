//! `squall orchestrator`: leads the fleet whenever nobody else does and serves its API, in the foreground until it is told to stop.

use clap::Parser;
use squall_coord::{FleetStores, MemoryFleetStores};
use squall_engine::Driver;
use squall_orchestrator::{Fleet, Orchestrator, OrchestratorConfig};
use squall_web::{Offer, OfferParam, TlsFiles, Token, WebConfig};
use squall_worker::{Worker, WorkerConfig};
use std::path::Path;
use tokio::{
    net::{TcpListener, lookup_host},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cli, Command, OrchestratorArgs},
    bundle::{self, BundleHost},
    commands::run::{read, subject},
    exit::{PASSED, Refusal, error_chain},
    fleet_store, logs,
    program::{Host, Param, Program},
    signals::StopSignals,
    subject::Subject,
};

pub(crate) fn serve<H: Host>(args: &OrchestratorArgs, host: &H) -> Result<u8, Refusal> {
    logs::start(args.log);
    let config = web_config(args, host)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?;
    // Boxed and local: what a fleet waits for is deep, and its drivers stay on their threads.
    LocalSet::new().block_on(&runtime, Box::pin(lead(args, host, config)))?;
    Ok(PASSED)
}

async fn lead<H: Host>(args: &OrchestratorArgs, host: &H, config: WebConfig) -> Result<(), Refusal> {
    let mut signals =
        StopSignals::listen().map_err(|error| Refusal::new(format!("cannot listen for signals: {error}")))?;
    let listener = listen(&args.listen, &config).await?;
    let id = args.id.clone().unwrap_or_else(|| format!("orchestrator-{}", std::process::id()));
    let stop = CancellationToken::new();
    let working = async {
        match (&args.redis, args.memory_workers) {
            (Some(redis), _) => {
                let cell = fleet_store::open(redis, &args.fleet, |why| tracing::info!("{why}")).await?;
                Box::pin(serve_cell(cell, id, config, listener, stop.clone())).await
            }
            (None, workers) => {
                let cell = MemoryFleetStores::default();
                let serving = serve_cell(cell.clone(), id, config, listener, stop.clone());
                let working = in_memory(cell, host, workers.unwrap_or(1), stop.clone());
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
async fn serve_cell<C: FleetStores>(
    cell: C,
    id: String,
    config: WebConfig,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Refusal> {
    let leader = Orchestrator::new(cell.clone(), OrchestratorConfig::new(id)).run(stop.clone());
    let serving = squall_web::serve(Fleet::new(cell), config, listener, stop.clone());
    let leading = async { leader.await.map_err(|error| Refusal::new(error_chain(&error))) };
    let serving = async {
        let ended = serving.await.map_err(|error| Refusal::new(error_chain(&error)));
        stop.cancel();
        ended
    };
    tokio::try_join!(leading, serving).map(|_| ())
}

/// The workers of a fleet that lives in this process.
async fn in_memory<H: Host>(cell: MemoryFleetStores, host: &H, workers: u16, stop: CancellationToken) -> Result<(), Refusal> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=workers {
        let config = WorkerConfig::new(format!("worker-{number}"));
        tasks.spawn_local(Worker::new(cell.clone(), BundleHost::new(host.clone()), config).run(stop.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended
            .map_err(|error| Refusal::new(format!("a worker failed: {error}")))?
            .map_err(|error| Refusal::new(error_chain(&error)))?;
    }
    Ok(())
}

/// Binds the API's address, if it may be bound.
async fn listen(address: &str, config: &WebConfig) -> Result<TcpListener, Refusal> {
    let addresses = lookup_host(address).await;
    let mut addresses =
        addresses.map_err(|error| Refusal::new(format!("--listen {address}: write HOST:PORT ({error})")))?;
    let addr = addresses.next().ok_or_else(|| Refusal::new(format!("--listen {address}: there is no such host")))?;
    config.check(addr).map_err(|error| Refusal::new(error.to_string()))?;
    TcpListener::bind(addr).await.map_err(|error| {
        Refusal::new(format!("cannot listen on {addr}: {error}; give another address with --listen HOST:PORT"))
    })
}

fn web_config<H: Host>(args: &OrchestratorArgs, host: &H) -> Result<WebConfig, Refusal> {
    let token = args.token.as_ref().map(|secret| Token::new(secret.0.clone())).transpose();
    let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key });
    Ok(WebConfig {
        token: token.map_err(|error| Refusal::new(format!("--token: {error}")))?,
        tls,
        offer: args.scenario.as_deref().map(|path| offer(path, host)).transpose()?,
        version: env!("SQUALL_VERSION"),
    })
}

/// The variables of a scenario file, as parameters that need not be given.
fn variables<D: Driver>(program: &Program<D>) -> Vec<Param> {
    let Program::Declared { scenario, .. } = program else { return Vec::new() };
    let param = |(name, value): &(String, serde_json::Value)| Param {
        name: name.clone(),
        kind: OfferParam::VARIABLE.to_owned(),
        required: false,
        annotation: None,
        default: Some(value.to_string()),
    };
    scenario.variables().iter().map(param).collect()
}

fn offer<H: Host>(path: &Path, host: &H) -> Result<Offer, Refusal> {
    let word = path.to_str().ok_or_else(|| Refusal::new("--scenario: the path is not UTF-8"))?.to_owned();
    let words = ["squall".to_owned(), "run".to_owned(), word];
    let Command::Run(mut args) = Cli::try_parse_from(&words).map_err(|error| Refusal::new(error.to_string()))?.command
    else {
        return Err(Refusal::new("--scenario: give a URL or a .toml or .py file"));
    };
    args.words = words[1..].to_vec();
    let what = subject(&mut args)?;
    let (params, takes_any) = match &what {
        Subject::Script(file) => host.params(file).map_err(Refusal::new)?,
        Subject::File(_) => (variables(&read(&what, &args, None, host)?), false),
        Subject::Url(_) => (Vec::new(), false),
    };
    // Stand-ins, so that the rest can be judged: who starts the test brings the real ones.
    let required = params.iter().filter(|param| param.required);
    args.script.params = required.map(|param| format!("{}=null", param.name)).collect();
    let (bundle, _) = bundle::of_run(&what, &args, host)?;
    let params = params.into_iter().map(|param| OfferParam {
        name: param.name,
        kind: param.kind,
        required: param.required,
        annotation: param.annotation,
        default: param.default.and_then(|text| serde_json::from_str(&text).ok()),
    });
    Ok(Offer { path: path.to_owned(), bundle, params: params.collect(), takes_any })
}
