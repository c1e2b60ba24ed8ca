//! A server of the grid: gives every client that connects a slot of a worker, and relays.
//! It keeps no state that another server needs; the store has the slots and the queue. `squall grid
//! serve` runs it.

mod access;
mod api;
mod capacity;
mod connect;
mod dial;
mod metrics;
mod offers;
mod queue_wait;
mod refusal;
mod requested_session;
mod session_registry;
mod sessions;

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use squall_coord::{ApiKeyScope, MemberId, SlotStore, StoreError};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::access::{ApiKey, KeyLimits};

pub(crate) use self::refusal::DEBUG_LOG_HEADER;

use self::{
    access::ApiKeys,
    metrics::ServerMetrics,
    refusal::{Refusal, RefusedRequest},
    session_registry::{SessionRegistry, release_sessions},
};
use crate::{
    error_text::with_causes,
    handshake::{MAX_HEAD, MAX_HEADERS},
    relay::{LOST_AFTER, PING_AFTER, frame::CloseFrame},
};

/// The most bytes and headers of a client's request.
const MAX_CLIENT_HEAD: usize = MAX_HEAD / 2;
const MAX_CLIENT_HEADERS: usize = MAX_HEADERS / 2;
/// Larger heads are read up to these limits, so that their refusal names the limit. hyper refuses those beyond with an
/// empty body. A client must send its head within [`HEAD_TIMEOUT`].
const MAX_READ_HEAD: usize = 1 << 20;
const MAX_READ_HEADERS: usize = 1024;
/// Connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 16_384;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long requests in flight may take when the server drains.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// API keys besides those of the store. Without any, everybody who reaches the server may use it.
    pub keys: Vec<ApiKey>,
    /// The most clients that wait for a slot, over all servers.
    pub queue_limit: u64,
    /// How long a client may wait for a slot.
    pub queue_timeout: Duration,
    /// How long a worker may take to answer.
    pub dial_timeout: Duration,
    /// How long a reserved session waits for its client.
    pub pending_timeout: Duration,
    /// Pings a side that has sent nothing for this long.
    pub ping_after: Duration,
    /// Gives a side up that has sent nothing for this long.
    pub lost_after: Duration,
    /// Whether clients and browsers may compress messages.
    pub compression: bool,
    /// Whether Playwright clients are sent to the worker itself, which they must reach.
    pub direct: bool,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// How long the server stays a member without a heartbeat.
    pub ttl: Duration,
    /// How long sessions may last after the server began to drain.
    pub drain_timeout: Duration,
}

/// The defaults that commands show.
impl ServerConfig {
    /// Of `queue_limit`.
    pub const QUEUE_LIMIT: u64 = 100;
    /// Of `queue_timeout`.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
    /// Of `drain_timeout`.
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
    /// Of `heartbeat`, and of workers.
    pub const HEARTBEAT: Duration = Duration::from_secs(1);
    /// Of `ttl`, and of workers.
    pub const TTL: Duration = Duration::from_millis(3500);
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            queue_limit: Self::QUEUE_LIMIT,
            queue_timeout: Self::QUEUE_TIMEOUT,
            dial_timeout: Duration::from_secs(10),
            pending_timeout: Duration::from_secs(30),
            ping_after: PING_AFTER,
            lost_after: LOST_AFTER,
            compression: true,
            direct: false,
            heartbeat: Self::HEARTBEAT,
            ttl: Self::TTL,
            drain_timeout: Self::DRAIN_TIMEOUT,
        }
    }
}

pub(crate) struct ServerState<S> {
    store: S,
    id: MemberId,
    config: ServerConfig,
    api_keys: ApiKeys,
    registry: SessionRegistry,
    metrics: Arc<ServerMetrics>,
    /// Relays, and clients that are being connected.
    relays: TaskTracker,
    /// Cancelled when the server takes no more sessions.
    draining: CancellationToken,
    /// When the store last renewed the membership.
    renewed: Mutex<Option<Instant>>,
}

impl<S: SlotStore> ServerState<S> {
    fn new(
        store: S,
        id: MemberId,
        config: ServerConfig,
        registry: SessionRegistry,
        draining: CancellationToken,
    ) -> Self {
        let (api_keys, renewed) = (ApiKeys::new(config.keys.clone()), Mutex::default());
        let (metrics, relays) = (Arc::default(), TaskTracker::new());
        Self { store, id, config, api_keys, registry, metrics, relays, draining, renewed }
    }

    /// Whether the server is a member, as far as it knows.
    fn is_member(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.is_some_and(|renewed| renewed.elapsed() < self.config.ttl)
    }

    /// The key of a request, which must have the scope.
    async fn authorize(&self, request: &Request<Incoming>, scope: ApiKeyScope) -> Result<access::ClientKey, Refusal> {
        self.api_keys.authorize(&self.store, request.headers(), request.uri(), scope).await
    }

    /// Releases a session and waits for it.
    async fn release_now(&self, session: session_registry::ClaimedSession) -> Result<(), Refusal> {
        if let Some(cause) = session.cause {
            self.store.release(&session.id, cause).await?;
        }
        Ok(())
    }
}

/// Serves clients on `listener` until `stop`, and then drains.
pub async fn serve<S: SlotStore>(store: S, config: ServerConfig, listener: TcpListener, stop: CancellationToken) {
    let (registry, releases) = SessionRegistry::new();
    let state = Arc::new(ServerState::new(store.clone(), MemberId::unique(), config, registry, stop));
    let ended = CancellationToken::new();
    let serving = async {
        tokio::select! {
            () = accept_and_drain(&state, listener) => {}
            () = send_heartbeats(&state) => {}
        }
        ended.cancel();
    };
    // Releases last longer than the relays, because a session is released after its relay.
    let release = |id, cause| {
        let store = store.clone();
        async move { store.release(&id, cause).await }
    };
    tokio::join!(serving, release_sessions(release, releases, &ended));
    if let Err(error) = state.store.leave_server(&state.id).await {
        let error = with_causes(&error);
        tracing::warn!(error, "the server could not leave; its membership expires");
    }
}

/// Accepts connections until the server has drained: workers without the store offer their slots here, and
/// new clients are refused with a reason.
async fn accept_and_drain<S: SlotStore>(state: &Arc<ServerState<S>>, listener: TcpListener) {
    let drained = CancellationToken::new();
    let draining = async {
        state.draining.cancelled().await;
        drain(state).await;
        drained.cancel();
    };
    tokio::join!(accept_clients(state, listener, &drained), draining);
}

async fn accept_clients<S: SlotStore>(state: &Arc<ServerState<S>>, listener: TcpListener, drained: &CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = drained.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(state.clone(), stream, drained.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the server cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    let ending = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, ending).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve_connection<S: SlotStore>(state: Arc<ServerState<S>>, stream: TcpStream, drained: CancellationToken) {
    let _ = stream.set_nodelay(true);
    // hyper ends a connection without a request at once, and one from the time of the drain has none yet.
    let is_draining = state.draining.is_cancelled();
    let stop = if is_draining { drained } else { state.draining.clone() };
    let service = service_fn(move |request: Request<Incoming>| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(respond(&state, request).await) }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .keep_alive(!is_draining)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_READ_HEAD)
        .max_headers(MAX_READ_HEADERS);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}

async fn respond<S: SlotStore>(state: &ServerState<S>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let wants_json = accept.is_some_and(|accept| accept.contains("application/json"));
    // The query may hold a key, so it is never logged.
    let path = request.uri().path().to_owned();
    match api::route(state, request).await {
        Ok(response) => response,
        Err(refused) => {
            let (name, RefusedRequest { refusal, .. }) = (refused.name(), &refused);
            state.metrics.count_refusal();
            tracing::info!(path, status = refusal.status().as_u16(), "refused {name}: {refusal}");
            refusal.response(&name, wants_json)
        }
    }
}

/// Lets sessions end by themselves for a while, and then ends them.
async fn drain<S: SlotStore>(state: &ServerState<S>) {
    state.relays.close();
    if tokio::time::timeout(state.config.drain_timeout, state.relays.wait()).await.is_err() {
        state.registry.end_all(&CloseFrame::new(1001, "squall: the server was shut down; connect again"));
        let _ = tokio::time::timeout(Duration::from_secs(5), state.relays.wait()).await;
    }
}

/// Sends heartbeats for ever.
async fn send_heartbeats<S: SlotStore>(state: &ServerState<S>) {
    let mut heartbeat = tokio::time::interval(state.config.heartbeat);
    loop {
        heartbeat.tick().await;
        match state.store.renew_server(&state.id, state.config.ttl).await {
            Ok(known) => {
                *state.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                state.registry.compare(&known);
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(error, "the server could not renew its membership; its sessions continue");
            }
        }
        match state.api_keys.reload(&state.store).await {
            Ok(()) => {
                state.registry.end_revoked(|key| state.api_keys.is_revoked(key));
                if let Err(error) = end_unrelayed_sessions(state).await {
                    let error = with_causes(&error);
                    tracing::warn!(error, "sessions of a revoked API key could not be ended");
                }
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(error, "the server could not read API keys; it uses those that it knows");
            }
        }
    }
}

/// Asks workers to end the sessions of revoked keys that are in no server's registry: their client is
/// connected to the worker itself, or they have none.
async fn end_unrelayed_sessions<S: SlotStore>(state: &ServerState<S>) -> Result<(), StoreError> {
    let revoked = state.api_keys.unsettled();
    if revoked.is_empty() {
        return Ok(());
    }
    let snapshot = state.store.snapshot().await?;
    for session in snapshot.sessions.iter().filter(|session| revoked.contains(&session.key) && !session.ending) {
        // The server that relays a session ends it, and tells the client why.
        let relayed = !state.config.direct && !session.attachable && snapshot.servers.contains(&session.server);
        if !relayed {
            state.store.end_session(&session.id).await?;
        }
    }
    let has_sessions = |key: &str| snapshot.sessions.iter().any(|session| session.key == key);
    state.api_keys.settle(has_sessions, state.config.queue_timeout + state.config.dial_timeout);
    Ok(())
}

/// The value of a query parameter, decoded.
fn query_value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(known, _)| *known == name).map(|(_, value)| percent_decode(value)).next()
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
