//! `squall grid`: runs the parts of squall-grid until a stop signal, and shows a grid. Here are their
//! settings, their store and their signals.

mod keys;
mod server_status;
mod settings;
mod status;

use squall_coord::{MemorySlotStore, RedisSlotStore, SlotStore};
use squall_grid::{GridWorker, GridWorkerConfig, GridWorkerError, ServerConfig, ServerOffers, SlotOffers, serve};
use squall_model::format_duration;
use std::{net::SocketAddr, path::Path, time::Duration};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{GridClientArgs, GridCommand, GridServeArgs, GridUpArgs, GridWorkerArgs},
    exit::{CliError, PASSED, error_chain},
    fleet_store, logs, secret_value,
    signals::StopSignals,
    terminal::print,
};

/// `interpreter` is what runs this program, if it runs inside one.
pub(crate) fn grid(command: GridCommand, interpreter: Option<&Path>) -> Result<u8, CliError> {
    if let GridCommand::Confine(args) = &command {
        let confined = squall_grid::exec_confined(&args.program, &args.arguments);
        return confined.map(|()| PASSED).map_err(|error| CliError::new(error_chain(&error)));
    }
    if let GridCommand::Status(args) = &command
        && let Some(url) = args.server_url()
    {
        // The client of an API has a runtime of its own.
        return server_status::show(&url, args).map(|()| PASSED);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let ended = runtime.block_on(async {
        match command {
            GridCommand::Serve(args) => serve_clients(&args).await,
            GridCommand::Worker(args) => run_worker(&args, interpreter).await,
            GridCommand::Up(args) => up(&args, interpreter).await,
            GridCommand::Status(args) => {
                let redis = args.store.redis.as_deref().expect("there is no server");
                let store = open_store(redis, &args.store.grid).await?;
                if args.watch { status::watch(&store, listen_for_signals()?).await } else { status::show(&store).await }
            }
            GridCommand::Key(command) => keys::run(&command).await,
            GridCommand::Confine(_) => unreachable!("it needs no runtime"),
        }
    });
    ended.map(|()| PASSED)
}

async fn open_store(redis: &str, grid: &str) -> Result<RedisSlotStore, CliError> {
    fleet_store::open_grid(redis, grid, |reason| tracing::info!("{reason}")).await
}

fn listen_for_signals() -> Result<StopSignals, CliError> {
    StopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))
}

async fn listen<S: SlotStore>(args: &GridClientArgs, store: &S) -> Result<(TcpListener, SocketAddr), CliError> {
    let stored = store.api_keys().await.map_err(|error| CliError::unreachable(error_chain(&error)))?;
    let keys = stored.len() + args.key.len() + args.admin_key.len() + args.worker_key.len();
    if !args.listen.ip().is_loopback() && keys == 0 && !args.allow_remote {
        return Err(CliError::new(format!(
            "--listen {} can be reached from other machines without an API key: give --key NAME=@FILE, create one with \
             `squall grid key create`, listen on 127.0.0.1, or add --allow-remote",
            args.listen
        )));
    }
    let listen_error = |error| CliError::new(format!("--listen: cannot listen on {}: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    Ok((listener, address))
}

async fn serve_clients(args: &GridServeArgs) -> Result<(), CliError> {
    logs::start(args.clients.log);
    let config = settings::server_config(&args.clients)?;
    match &args.store.redis {
        Some(redis) => serve_from(open_store(redis, &args.store.grid).await?, args, config).await,
        None => serve_from(MemorySlotStore::new(), args, config).await,
    }
}

async fn serve_from<S: SlotStore>(store: S, args: &GridServeArgs, config: ServerConfig) -> Result<(), CliError> {
    let mut signals = listen_for_signals()?;
    let (listener, address) = listen(&args.clients, &store).await?;
    print::stdout(format!("the grid is at ws://{address}/\n").as_bytes())?;
    let stop = CancellationToken::new();
    let mut serving = Box::pin(serve(store, config, listener, stop.clone()));
    tokio::select! {
        () = &mut serving => return Ok(()),
        () = signals.next() => stop.cancel(),
    }
    say_how_long_sessions_last(args.clients.grace);
    // The second signal ends the process at once.
    tokio::select! {
        () = serving => {}
        () = signals.next() => {}
    }
    Ok(())
}

async fn run_worker(args: &GridWorkerArgs, interpreter: Option<&Path>) -> Result<(), CliError> {
    logs::start(args.log);
    let config = settings::worker_config(args, interpreter)?;
    match (&args.store.redis, &args.server) {
        (_, Some(url)) => {
            let secret = args.server_key.as_deref().map(secret_value::resolve).transpose();
            let secret = secret.map_err(|error| CliError::new(format!("--server-key: {error}")))?;
            let offers = ServerOffers::new(url, secret);
            let offers =
                offers.ok_or_else(|| CliError::new("--server: write http://HOST:PORT of `squall grid serve`"))?;
            work_for(offers, config).await
        }
        (Some(redis), None) => work_for(open_store(redis, &args.store.grid).await?, config).await,
        (None, None) => Err(CliError::new(
            "give --redis URL of the grid, or --server http://HOST:PORT of a server without Redis; `squall grid up` \
             runs both in one process",
        )),
    }
}

async fn work_for<S: SlotOffers>(store: S, config: GridWorkerConfig) -> Result<(), CliError> {
    let mut signals = listen_for_signals()?;
    let (drain, drain_timeout) = (CancellationToken::new(), config.drain_timeout);
    let mut working = Box::pin(GridWorker::new(store, config).run(drain.clone()));
    tokio::select! {
        ended = &mut working => return ended.map_err(worker_error),
        () = signals.next() => drain.cancel(),
    }
    say_how_long_sessions_last(drain_timeout);
    // The second signal ends the process at once; the browser host kills the browsers.
    tokio::select! {
        ended = working => ended.map_err(worker_error),
        () = signals.next() => Ok(()),
    }
}

fn say_how_long_sessions_last(grace: Duration) {
    let grace = format_duration(grace);
    tracing::info!("draining: open sessions may last for {grace}; a second signal ends them at once");
}

fn worker_error(error: GridWorkerError) -> CliError {
    CliError::new(error_chain(&error))
}

async fn up(args: &GridUpArgs, interpreter: Option<&Path>) -> Result<(), CliError> {
    logs::start(args.clients.log);
    let server = settings::server_config(&args.clients)?;
    let workers: Vec<GridWorkerConfig> =
        (1..=args.workers).map(|number| settings::local_worker(args, number, interpreter)).collect::<Result<_, _>>()?;
    let mut signals = listen_for_signals()?;
    let (store, stop) = (MemorySlotStore::new(), CancellationToken::new());
    let (listener, address) = listen(&args.clients, &store).await?;
    let mut parts = JoinSet::new();
    for config in workers {
        parts.spawn(GridWorker::new(store.clone(), config).run(stop.clone()));
    }
    let mut serving = Box::pin(serve(store.clone(), server, listener, stop.clone()));
    let ready = async {
        wait_until_ready(&store, args, address).await?;
        std::future::pending::<Result<(), CliError>>().await
    };
    tokio::select! {
        () = &mut serving => return Ok(()),
        Some(Ok(Err(error))) = parts.join_next() => return Err(worker_error(error)),
        failed = ready => return failed,
        () = signals.next() => stop.cancel(),
    }
    say_how_long_sessions_last(args.clients.grace);
    let ending = async {
        serving.await;
        while parts.join_next().await.is_some() {}
    };
    // The second signal ends the process at once; the browser hosts kill the browsers.
    tokio::select! {
        () = ending => {}
        () = signals.next() => {}
    }
    Ok(())
}

/// Waits for the workers, and prints how to connect.
async fn wait_until_ready<S: SlotStore>(store: &S, args: &GridUpArgs, address: SocketAddr) -> Result<(), CliError> {
    loop {
        let snapshot = store.snapshot().await.map_err(|error| CliError::new(error_chain(&error)))?;
        if snapshot.workers.len() >= usize::from(args.workers) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    print::stdout(how_to_connect(args, address).as_bytes())
}

fn how_to_connect(args: &GridUpArgs, address: SocketAddr) -> String {
    let has_keys = !args.clients.key.is_empty() || !args.clients.admin_key.is_empty();
    let (token, server_key) = if has_keys { ("&token=SECRET", " --server-key SECRET") } else { ("", "") };
    let browser = settings::browser_name(args.browsers.browser);
    format!(
        "the grid is at ws://{address}/ with {} slots; Ctrl-C ends it\n\
         squall grid status --server http://{address}{server_key} --watch shows it\n\n\
         a client, client.mjs:\n\n\
         import {{ {browser} }} from 'playwright-core';\n\
         const browser = await {browser}.connect('ws://{address}/?browser={browser}{token}');\n\
         console.log(browser.version()); await browser.close();\n",
        u32::from(args.workers) * args.browsers.slots
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, CliCommand};
    use clap::Parser;

    pub(super) fn up_args(flags: &[&str]) -> GridUpArgs {
        let words = [&["squall", "grid", "up"], flags].concat();
        match Cli::try_parse_from(words).expect("valid flags").command {
            CliCommand::Grid { command: GridCommand::Up(args) } => args,
            _ => panic!("not up"),
        }
    }

    #[test]
    fn client_of_up_uses_the_browser_and_a_key_that_was_given() {
        let check = |flags: &[&str], client: &str, status: &str| {
            let text = how_to_connect(&up_args(flags), "127.0.0.1:8080".parse().expect("an address"));
            assert!(text.contains(client) && text.contains(status), "{text}");
        };
        let status = "--server http://127.0.0.1:8080 --watch";
        check(&[], "await chromium.connect('ws://127.0.0.1:8080/?browser=chromium');", status);
        check(&["--browser", "firefox"], "import { firefox } from 'playwright-core';", status);
        check(&["--browser", "firefox"], "firefox.connect('ws://127.0.0.1:8080/?browser=firefox');", status);
        for flag in ["--key", "--admin-key"] {
            let status = "--server http://127.0.0.1:8080 --server-key SECRET --watch";
            check(&[flag, "ci=0123456789abcdef"], "/?browser=chromium&token=SECRET');", status);
        }
    }
}
