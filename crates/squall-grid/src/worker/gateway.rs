//! The gateway of a worker: the only TCP listener, which connects sessions to browsers on Unix
//! sockets. It accepts only servers that know the worker's secret, which the store gives them, and
//! clients with a path that such a server has signed.
//! It does not choose a session's worker. The worker's loop lists its sessions in every offer.

mod cdp;
mod session_request;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use squall_coord::{HeldSession, SlotOffer, SlotSessionId, unique_id};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::session_request::{
    ISOLATION_HEADER, KEEP_ALIVE_HEADER, KEY_HEADER, PROTOCOL_HEADER, SECRET_HEADER, SERVER_HEADER, SESSION_HEADER,
};

use self::session_request::{GatewayRefusal, SessionRequest, browser_headers};
use super::{browser_pools::BrowserPools, browser_set::Isolation, cdp_browser::CdpLauncher, cdp_session::CdpClient};
use crate::{
    direct::{is_direct, seconds_in},
    handshake::{self, HandshakeError, Headers, RequestHead},
    relay::{LOST_AFTER, PING_AFTER, RelaySide, RelayTimeouts, Socket, UnixSocket, frame::CloseFrame, relay},
    server::DEBUG_LOG_HEADER,
};

const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const BROWSER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client waits for a slot, or of a kept session until the client before it has left: the store
/// may know either a moment earlier.
const LEAVE_TIME: Duration = Duration::from_secs(2);
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// Connections at once, with and without a session.
const MAX_CONNECTIONS: usize = 4096;

/// The sessions of a worker. Clones share them.
#[derive(Clone)]
pub(crate) struct Gateway {
    shared: Arc<Shared>,
}

/// How a gateway serves sessions.
pub(crate) struct GatewayConfig {
    pub(crate) worker: String,
    pub(crate) secret: String,
    pub(crate) slots: usize,
    pub(crate) isolation: Isolation,
    pub(crate) pools: BrowserPools,
    pub(crate) cdp: CdpLauncher,
    /// Time between probes of a CDP browser.
    pub(crate) probe_every: Duration,
    /// How long a CDP session may last, because its browser is never replaced.
    pub(crate) max_cdp_time: Duration,
}

struct Shared {
    config: GatewayConfig,
    sessions: Mutex<BTreeMap<SlotSessionId, HeldConnection>>,
    /// Sessions that ended before the store saw them in an offer.
    ended_unlisted: Mutex<Vec<SlotSessionId>>,
    /// Sessions of one-time paths that were used, with the time at which the path expires.
    used_paths: Mutex<BTreeMap<SlotSessionId, u64>>,
    /// Sessions whose browser has answered.
    lifetime: AtomicU64,
    /// Wakes clients that wait until a client has left or a session has ended.
    client_left: Notify,
    /// Tells the worker's loop that a session has ended.
    session_ended: Notify,
}

struct HeldConnection {
    request: SessionRequest,
    version: String,
    stop: Option<oneshot::Sender<CloseFrame>>,
    /// Where the next client of a kept session goes.
    next_client: Option<mpsc::Sender<CdpClient>>,
    detached: bool,
    /// Whether its browser has answered, so that it counts in the worker's lifetime.
    counted: bool,
    /// Whether the store has seen it in an offer.
    listed: bool,
}

impl HeldConnection {
    fn held_session(&self, id: &SlotSessionId) -> HeldSession {
        HeldSession {
            id: id.clone(),
            key: self.request.key.clone(),
            version: self.version.clone(),
            server: self.request.server.clone(),
            direct: self.request.direct,
            detached: self.detached,
        }
    }
}

/// The close frame for a client whose browser is to be replaced.
fn overdue(session: &SlotSessionId) -> CloseFrame {
    CloseFrame::new(1001, format!("squall: session {session} ended: its browser is being replaced; connect again"))
}

impl Gateway {
    pub(crate) fn new(config: GatewayConfig) -> Self {
        let shared = Shared {
            config,
            sessions: Mutex::default(),
            ended_unlisted: Mutex::default(),
            used_paths: Mutex::default(),
            lifetime: AtomicU64::new(0),
            client_left: Notify::new(),
            session_ended: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SlotSessionId, HeldConnection>> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes its sessions into an offer, and how many there have been with these. A session that ends before its
    /// browser has answered counts no more.
    pub(crate) fn list_sessions(&self, offer: &mut SlotOffer) {
        // Everything is read at one instant.
        let sessions = self.lock();
        let uncounted = sessions.values().filter(|open| !open.counted).count() as u64;
        offer.lifetime = self.shared.lifetime.load(Relaxed) + uncounted;
        offer.sessions = sessions.iter().map(|(id, open)| open.held_session(id)).collect();
        offer.ended.clone_from(&self.lock_ended_unlisted());
    }

    /// Whether there is no session.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Notes that the store has seen this offer. The next one then shows which of its sessions have ended.
    pub(crate) fn note_seen(&self, offer: &SlotOffer) {
        let mut sessions = self.lock();
        let mut ended = self.lock_ended_unlisted();
        for held in &offer.sessions {
            match sessions.get_mut(&held.id) {
                Some(open) => open.listed = true,
                // It ended while the offer was on its way, and the next offer does not list it.
                None => ended.retain(|id| *id != held.id),
            }
        }
        ended.retain(|id| !offer.ended.contains(id));
    }

    fn lock_ended_unlisted(&self) -> MutexGuard<'_, Vec<SlotSessionId>> {
        self.shared.ended_unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a session has ended since the last call.
    pub(crate) async fn session_ended(&self) {
        self.shared.session_ended.notified().await;
    }

    /// Ends a session with a close frame for its client.
    pub(crate) fn end_session(&self, id: &SlotSessionId, close: CloseFrame) {
        let stop = self.lock().get_mut(id).and_then(|open| open.stop.take());
        // Fails if the session is ending already.
        stop.map(|stop| stop.send(close));
    }

    /// Serves `listener` until `stop`; sessions that are open then end with `close`.
    pub(crate) async fn serve(&self, listener: TcpListener, stop: &CancellationToken, close: CloseFrame) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(self.clone().handle(stream, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the gateway cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        let ids: Vec<SlotSessionId> = self.lock().keys().cloned().collect();
        ids.iter().for_each(|id| self.end_session(id, close.clone()));
        let ending = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSE_GRACE + Duration::from_secs(1), ending).await;
    }

    async fn handle(self, stream: TcpStream, peer: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let socket = Socket::Tcp(stream);
        // Everything before the relay is on the heap, because a session keeps the memory of its task to its end.
        let reading = Box::pin(handshake::read_request(&socket));
        let (head, received) = match tokio::time::timeout(HEAD_TIMEOUT, reading).await {
            Ok(Ok(read)) => read,
            // Without an answer, the server would take the worker for lost.
            Ok(Err(error @ (HandshakeError::TooLarge | HandshakeError::Malformed))) => {
                let status = if matches!(error, HandshakeError::TooLarge) { 431 } else { 400 };
                let _ = handshake::refuse(&socket, status, &error.to_string(), None).await;
                return;
            }
            _ => {
                tracing::debug!(%peer, "a connection sent no request");
                return;
            }
        };
        let client = RelaySide { socket, received };
        let served = match head.headers.get(PROTOCOL_HEADER) {
            Some("cdp") if !is_direct(&head.path) => Box::pin(self.serve_cdp(&head, client)).await,
            _ => self.serve_session(head, client).await,
        };
        if let Err((status, body)) = served {
            tracing::info!(%peer, status, body, "the gateway refused a connection");
        }
    }

    /// Serves one session from its handshake to its end.
    async fn serve_session(&self, head: RequestHead, client: RelaySide) -> Result<(), GatewayRefusal> {
        let request = if is_direct(&head.path) { self.check_pass(&head) } else { self.check_server(&head) };
        // For the client's call log. The server names the sessions of the clients that it relays.
        let name = match &request {
            _ if !is_direct(&head.path) => None,
            Ok(request) => Some(self.debug_name(&request.id)),
            Err(_) => Some(format!("squall request {}", unique_id())),
        };
        let opened = match Box::pin(self.open(&head, request)).await {
            Ok(opened) => opened,
            Err((status, body)) => {
                let _ = handshake::refuse(&client.socket, status, &body, name.as_deref()).await;
                return Err((status, name.map_or(body.clone(), |name| format!("{name}: {body}"))));
            }
        };
        drop(head);
        let Opened { session, stopped, headers, browser, lease, direct } = opened;
        session.count();
        let accepted = Box::pin(handshake::accept_websocket(&client.socket, &headers)).await;
        drop(headers);
        if accepted.is_ok() {
            // The server pings the clients that it relays.
            let (ping_after, lost_after) = if direct { (Some(PING_AFTER), Some(LOST_AFTER)) } else { (None, None) };
            let timeouts = RelayTimeouts { ping_after, lost_after, close_grace: CLOSE_GRACE };
            let (lost, overdue) = (self.browser_lost(&session.id), lease.overdue.clone());
            let ended = tokio::select! {
                ended = relay(client, browser, timeouts, stopped) => ended,
                () = self.end_when(overdue, &session.id) => unreachable!("it waits for the relay"),
            };
            // The slot is free now. A server that was stopped would keep it until the end of the grace period.
            let id = session.id.clone();
            drop((lease, session));
            let report = ended.close(lost).await;
            tracing::debug!(session = %id, end = %report.end, "a session ended");
        }
        Ok(())
    }

    /// Ends a session when its browser is overdue.
    async fn end_when(&self, is_overdue: CancellationToken, session: &SlotSessionId) {
        is_overdue.cancelled().await;
        self.end_session(session, overdue(session));
        std::future::pending::<()>().await;
    }

    fn debug_name(&self, session: &SlotSessionId) -> String {
        format!("squall session {session} on {}", self.shared.config.worker)
    }

    fn browser_lost(&self, session: &SlotSessionId) -> CloseFrame {
        let worker = &self.shared.config.worker;
        CloseFrame::new(1011, format!("squall: the browser on worker {worker} ended (session {session})"))
    }

    /// Checks the request, takes a browser and connects to it.
    async fn open(
        &self,
        head: &RequestHead,
        request: Result<SessionRequest, GatewayRefusal>,
    ) -> Result<Opened, GatewayRefusal> {
        let request = request?;
        let (session, stopped) = self.register(head, request.clone()).await?;
        let isolation = self.shared.config.isolation.or_stricter(request.isolation.unwrap_or(Isolation::Shared));
        let pool = &self.shared.config.pools.for_client(head.headers.get("user-agent")).pool;
        let lease = pool.take(&request.key, isolation, BROWSER_TIMEOUT).await;
        let lease = lease.ok_or_else(|| (503, format!("worker {} has no browser", self.shared.config.worker)))?;
        let lost = |error: &dyn std::error::Error| (502, format!("the browser cannot be reached: {error}"));
        let socket = UnixSocket::connect(&lease.socket).map_err(|error| lost(&error))?;
        let forwarded = browser_headers(&head.headers, request.compression);
        let dialling = handshake::open_websocket(Socket::Unix(socket), "/browser", &forwarded);
        match tokio::time::timeout(BROWSER_TIMEOUT, dialling).await {
            Ok(Ok((mut headers, browser))) => {
                if request.direct {
                    headers.push(DEBUG_LOG_HEADER, self.debug_name(&session.id));
                }
                Ok(Opened { session, stopped, headers, browser, lease, direct: request.direct })
            }
            Ok(Err(HandshakeError::Refused { status, body })) => Err((status, body)),
            Ok(Err(error)) => Err(lost(&error)),
            Err(_) => Err((504, format!("a browser of worker {} does not answer", self.shared.config.worker))),
        }
    }

    /// Checks that the request is one of a server.
    fn check_server(&self, head: &RequestHead) -> Result<SessionRequest, GatewayRefusal> {
        SessionRequest::of_server(head, &self.shared.config.secret)
    }

    /// Checks that a server has sent the client here, for the first time.
    fn check_pass(&self, head: &RequestHead) -> Result<SessionRequest, GatewayRefusal> {
        let (request, expires) = SessionRequest::of_client(head, &self.shared.config.secret)?;
        let mut used = self.shared.used_paths.lock().unwrap_or_else(PoisonError::into_inner);
        let now = seconds_in(Duration::ZERO);
        used.retain(|_, expires| *expires >= now);
        match used.insert(request.id.clone(), expires) {
            Some(_) => Err((410, "this path was used already; connect to the server again".to_owned())),
            None => Ok(request),
        }
    }

    /// Registers a session, and waits a moment for a slot. A draining worker takes sessions that were granted
    /// before; the store grants no more.
    async fn register(
        &self,
        head: &RequestHead,
        request: SessionRequest,
    ) -> Result<(RegisteredSession, oneshot::Receiver<CloseFrame>), GatewayRefusal> {
        let registering = async {
            loop {
                let mut left = std::pin::pin!(self.shared.client_left.notified());
                left.as_mut().enable();
                if let Some(registered) = self.try_register(head, &request)? {
                    return Ok(registered);
                }
                left.await;
            }
        };
        let full = |_| Err((503, format!("worker {} has no free slot", self.shared.config.worker)));
        tokio::time::timeout(LEAVE_TIME, registering).await.unwrap_or_else(full)
    }

    /// Registers a session; `None` if there is no slot.
    fn try_register(
        &self,
        head: &RequestHead,
        request: &SessionRequest,
    ) -> Result<Option<(RegisteredSession, oneshot::Receiver<CloseFrame>)>, GatewayRefusal> {
        let id = request.id.clone();
        let mut sessions = self.lock();
        // First, because the server releases a session that is refused for another reason.
        if sessions.contains_key(&id) {
            return Err((409, format!("session {id} is open already")));
        }
        if sessions.len() >= self.shared.config.slots {
            return Ok(None);
        }
        let (stop, stopped) = oneshot::channel();
        let version = self.shared.config.pools.for_client(head.headers.get("user-agent")).version.clone();
        let open = HeldConnection {
            request: request.clone(),
            version,
            stop: Some(stop),
            next_client: None,
            detached: false,
            counted: false,
            listed: false,
        };
        sessions.insert(id.clone(), open);
        Ok(Some((RegisteredSession { gateway: self.clone(), id }, stopped)))
    }
}

/// A session that is connected to its browser.
struct Opened {
    session: RegisteredSession,
    stopped: oneshot::Receiver<CloseFrame>,
    headers: Headers,
    browser: RelaySide,
    lease: super::browser_pool::BrowserLease,
    direct: bool,
}

/// A session in the gateway's list, until dropped.
struct RegisteredSession {
    gateway: Gateway,
    id: SlotSessionId,
}

impl RegisteredSession {
    /// Counts it in the worker's lifetime, because its browser has answered.
    fn count(&self) {
        if let Some(open) = self.gateway.lock().get_mut(&self.id).filter(|open| !open.counted) {
            open.counted = true;
            self.gateway.shared.lifetime.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for RegisteredSession {
    fn drop(&mut self) {
        let mut sessions = self.gateway.lock();
        if sessions.remove(&self.id).is_some_and(|ended| !ended.listed) {
            self.gateway.lock_ended_unlisted().push(self.id.clone());
        }
        drop(sessions);
        self.gateway.shared.session_ended.notify_one();
        self.gateway.shared.client_left.notify_waiters();
    }
}
