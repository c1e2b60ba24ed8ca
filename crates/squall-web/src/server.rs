//! Accepts connections, with or without TLS, and serves the router on them. It limits the resources
//! that a client can use: connections, the time for a handshake, and the time and size of a
//! request's head.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use squall_coord::FleetStores;
use squall_orchestrator::FleetClient;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    WebConfig, WebConfigError,
    router::router,
    routes::{ApiState, streams::CachedStreams},
    run_watcher::RunWatcher,
    tls::TlsServer,
};

/// Maximum number of concurrent connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Requests in flight at shutdown may take this long.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Serves the API of `fleet` on `listener` until `stop`.
pub async fn serve<C: FleetStores>(
    fleet: FleetClient<C>,
    config: WebConfig,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), WebConfigError> {
    let addr = listener.local_addr().ok();
    addr.map_or(Ok(()), |addr| config.check_address(addr))?;
    let tls = config.tls_server()?;
    if let Some(addr) = addr {
        info!(%addr, tls = config.tls.is_some(), token = config.token.is_some(), "the orchestrator serves the API");
    }
    let folder = config.history.as_ref().filter(|history| history.saves_runs).map(|history| history.folder.clone());
    let watcher = RunWatcher::new(fleet.clone(), config.version).saving_runs_to(folder);
    let app = Arc::new(ApiState {
        fleet,
        watcher,
        config,
        wrong_tokens: Arc::default(),
        cached_streams: CachedStreams::default(),
        stop: stop.clone(),
    });
    let service = router(app.clone());
    let mut connections = JoinSet::new();
    let mut watching = pin!(app.watcher.watch(stop.clone()));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut watching => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(handle_connection(stream, tls.clone(), service.clone(), stop.clone()));
                }
                Err(error) => {
                    // Usually the process has no free descriptors, so other connections must end
                    // first.
                    warn!(%error, "the API cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    if timeout(SHUTDOWN_GRACE, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}

async fn handle_connection(stream: TcpStream, tls: Option<TlsServer>, service: Router, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve_http(stream, service, &stop).await,
        Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, service, &stop).await,
            Ok(Err(error)) => debug!(%error, "a TLS handshake failed"),
            Err(_) => debug!("a TLS handshake timed out"),
        },
    }
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Router,
    stop: &CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection failed");
    }
}
