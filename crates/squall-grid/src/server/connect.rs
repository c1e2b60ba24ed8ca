//! Connects a client's WebSocket to a worker: checks the request, claims a slot or attaches to a
//! session, dials the worker and relays. Nothing is claimed until everything that can be refused has
//! been checked. It does not choose the worker; the store does.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use squall_coord::{
    ApiKeyScope, AttachOutcome, ClaimOutcome, ReleaseCause, SlotAttach, SlotClaim, SlotGrant, SlotSessionId, SlotStore,
    api_key_name,
};
use tokio::{net::TcpStream, time::Instant};

use super::{
    ServerState,
    access::ClientKey,
    dial::{DialError, dial, host_of},
    query_value,
    refusal::{DEBUG_LOG_HEADER, Refusal, RefusedRequest},
    requested_session::{Protocol, RequestedSession},
    session_registry::{ClaimedSession, worker_lost},
};
use crate::{
    direct::{DirectPass, seconds_in},
    handshake::Headers,
    playwright_version::client_version,
    relay::{RelayEnd, RelaySide, RelayTimeouts, Socket, relay},
    worker::gateway::KEEP_ALIVE_HEADER,
};

/// Claims wait for a notification, and repeat themselves after this time in case one was lost.
const POLL: Duration = Duration::from_secs(1);
/// Dials of one connect.
const ATTEMPTS: u32 = 2;
/// How long a client waits until the store knows that the client before it has left.
const DETACH_WAIT: Duration = Duration::from_secs(1);
/// The worker lists a session after its dial, at its next heartbeat.
const LISTING_TIME: Duration = Duration::from_secs(5);

/// Which session a client connects to.
pub(crate) enum Target<'a> {
    New,
    Existing(&'a str),
}

/// A session that is connected to its worker.
struct OpenedSession {
    session: ClaimedSession,
    grant: SlotGrant,
    headers: Headers,
    worker: RelaySide,
}

/// Answers a WebSocket request.
pub(crate) async fn connect<S: SlotStore>(
    state: &ServerState<S>,
    mut request: Request<Incoming>,
    protocol: Protocol,
    target: Target<'_>,
) -> Result<Response<Full<Bytes>>, RefusedRequest> {
    if !is_websocket(request.headers()) {
        return Err(Refusal::NotWebSocket(protocol).into());
    }
    let key = state.authorize(&request, ApiKeyScope::Client).await?;
    let requested = read_request(&request, &key, protocol)?;
    // The drain waits for the client. Before the check, so that it cannot begin and end between the two.
    let _connecting = state.relays.token();
    if state.draining.is_cancelled() {
        return Err(Refusal::Draining.into());
    }
    if state.config.direct && protocol == Protocol::Playwright {
        return redirect(state, &requested, &key, target).await;
    }
    let opened = match target {
        Target::New => open_session(state, &requested, request.headers()).await?,
        Target::Existing(id) => attach_session(state, &requested, request.headers(), &key, id).await?,
    };
    let OpenedSession { mut session, grant, headers, worker } = opened;
    // The worker answers with it if it keeps the session when the client leaves.
    let kept = headers.get(KEEP_ALIVE_HEADER).is_some();
    let mut response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with("x-squall-")) {
        response = response.header(name, value);
    }
    let response = response.header(DEBUG_LOG_HEADER, format!("squall session {} on {}", session.id, grant.worker));
    let stopped = state.registry.open(&session, grant.worker.name(), &requested.key);
    let key = requested.key;
    let upgrade = hyper::upgrade::on(&mut request);
    let timeouts = RelayTimeouts {
        ping_after: Some(state.config.ping_after),
        lost_after: Some(state.config.lost_after),
        close_grace: Duration::from_secs(2),
    };
    let metrics = state.metrics.clone();
    state.relays.spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        // A copy, because hyper's bytes keep its whole buffer.
        let (stream, received) = (parts.io.into_inner(), parts.read_buf.to_vec());
        drop(parts.read_buf);
        let client = RelaySide { socket: Socket::Tcp(stream), received };
        let lost = worker_lost(grant.worker.name(), &session.id);
        let report = relay(client, worker, timeouts, stopped).await.close(lost).await;
        metrics.count_relay(&report);
        let key = api_key_name(&key);
        tracing::info!(session = %session.id, worker = %grant.worker, key, end = %report.end, "a session ended");
        // The worker keeps it however the connection to the worker ended, unless the worker itself ended it.
        if kept && !matches!(report.end, RelayEnd::Worker(_) | RelayEnd::WorkerLost) {
            session.cause = Some(ReleaseCause::Detached);
        }
        drop(session);
    });
    // hyper checks the header values, which come from the worker.
    let invalid = |_| Refusal::Passed { status: 502, body: "invalid headers".to_owned() };
    response.body(Full::default()).map_err(|error| invalid(error).into())
}

/// Sends the client to the worker itself. From here the worker has the session, or the store ends it
/// because no client came.
async fn redirect<S: SlotStore>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    key: &ClientKey,
    target: Target<'_>,
) -> Result<Response<Full<Bytes>>, RefusedRequest> {
    let listed_within = state.config.dial_timeout + LISTING_TIME;
    let (mut session, grant) = match target {
        Target::New => {
            let mut session = state.registry.claim();
            let deadline = Instant::now() + state.config.queue_timeout;
            let claimed = claim(state, requested, &mut session, deadline, Reservation::Dialled(listed_within)).await;
            let grant = claimed.map_err(|refusal| refusal.of_session(&session.id))?;
            (session, grant)
        }
        Target::Existing(id) => attach(state, requested, key, id).await?,
    };
    let pass = DirectPass {
        session: session.id.clone(),
        server: state.id.clone(),
        key: requested.key.clone(),
        isolation: requested.isolation,
        compression: state.config.compression,
        expires: seconds_in(state.config.dial_timeout),
    };
    let location = format!("ws://{}{}", host_of(&grant.endpoint), pass.path(&grant.secret));
    session.cause = None;
    let response = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header(header::LOCATION, location);
    Ok(response.body(Full::default()).expect("names that a header may have"))
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
}

fn read_request(request: &Request<Incoming>, key: &ClientKey, protocol: Protocol) -> Result<RequestedSession, Refusal> {
    let query = request.uri().query().unwrap_or_default();
    let header = request.headers().get("x-playwright-browser").and_then(|value| value.to_str().ok());
    let mut requested = RequestedSession::new(key, protocol);
    requested.set_browser(query_value(query, "browser").or(header.map(str::to_owned)))?;
    requested.set_isolation(query_value(query, "isolation"))?;
    requested.set_keep_alive(query_value(query, "keep_alive"))?;
    let agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    requested.version = agent.filter(|_| protocol == Protocol::Playwright).and_then(client_version);
    Ok(requested)
}

/// Claims a slot and dials its worker; tries another slot if the worker cannot be reached.
async fn open_session<S: SlotStore>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    headers: &HeaderMap,
) -> Result<OpenedSession, RefusedRequest> {
    let deadline = Instant::now() + state.config.queue_timeout;
    let mut attempt = 1;
    loop {
        let mut session = state.registry.claim();
        let listed_within = state.config.dial_timeout + LISTING_TIME;
        let claimed = claim(state, requested, &mut session, deadline, Reservation::Dialled(listed_within)).await;
        let grant = claimed.map_err(|refusal| refusal.of_session(&session.id))?;
        let reason = match dial(state, requested, headers, &session.id, &grant).await {
            Ok((headers, worker)) => {
                session.cause = Some(ReleaseCause::Ended);
                return Ok(OpenedSession { session, grant, headers, worker });
            }
            Err(DialError::Refused(refusal)) => return Err(refusal.of_session(&session.id)),
            Err(DialError::Unreachable(reason)) => reason,
        };
        session.cause = Some(ReleaseCause::WorkerUnreachable);
        if attempt == ATTEMPTS {
            let refusal = Refusal::Worker { worker: grant.worker.to_string(), reason };
            return Err(refusal.of_session(&session.id));
        }
        attempt += 1;
        // Released before the next claim, which must not get the same worker.
        state.release_now(session).await?;
    }
}

/// Connects to a session that was reserved, or whose client left.
async fn attach_session<S: SlotStore>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    headers: &HeaderMap,
    key: &ClientKey,
    id: &str,
) -> Result<OpenedSession, RefusedRequest> {
    let (mut session, grant) = attach(state, requested, key, id).await?;
    let refusal = match dial(state, requested, headers, &session.id, &grant).await {
        Ok((headers, worker)) => {
            session.cause = Some(ReleaseCause::Ended);
            return Ok(OpenedSession { session, grant, headers, worker });
        }
        Err(DialError::Refused(refusal)) => {
            // The worker has another client, whose session this is.
            if matches!(refusal, Refusal::Passed { status: 409, .. }) {
                session.cause = None;
            }
            refusal
        }
        Err(DialError::Unreachable(reason)) => Refusal::Worker { worker: grant.worker.to_string(), reason },
    };
    Err(refusal.of_session(&session.id))
}

/// Makes a session that was reserved, or whose client left, one of this server.
async fn attach<S: SlotStore>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    key: &ClientKey,
    id: &str,
) -> Result<(ClaimedSession, SlotGrant), RefusedRequest> {
    let shown: String = id.chars().take(64).collect();
    let id = SlotSessionId::parse(id).ok_or_else(|| Refusal::NoSession(shown.clone()))?;
    let attach = SlotAttach {
        session: id.clone(),
        server: state.id.clone(),
        key: (!key.admin).then(|| key.id.clone()),
        listed_within: state.config.dial_timeout + LISTING_TIME,
    };
    // A client that left and comes back may be faster than the news that it left.
    let deadline = Instant::now() + DETACH_WAIT;
    let refusal = loop {
        match state.store.attach(&attach).await.map_err(Refusal::from)? {
            AttachOutcome::Attached { grant, begun } => return Ok((state.registry.attached(id, begun), grant)),
            AttachOutcome::Taken if requested.protocol == Protocol::Cdp && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            AttachOutcome::Taken => break Refusal::SessionTaken(shown),
            AttachOutcome::Ended => break Refusal::SessionEnded(shown),
            AttachOutcome::Unknown => break Refusal::NoSession(shown),
            AttachOutcome::NotMember => {
                state.store.renew_server(&state.id, state.config.ttl).await.map_err(Refusal::from)?;
            }
        }
    };
    Err(refusal.of_session(&id))
}

/// What a claim is for.
#[derive(Clone, Copy)]
pub(crate) enum Reservation {
    /// The server dials the worker at once, and the worker lists the session within this time.
    Dialled(Duration),
    /// A client attaches within this time.
    Reserved(Duration),
}

/// Waits for a slot until the deadline.
pub(crate) async fn claim<S: SlotStore>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    session: &mut ClaimedSession,
    deadline: Instant,
    reservation: Reservation,
) -> Result<SlotGrant, Refusal> {
    let (reserved, listed_within) = match reservation {
        Reservation::Dialled(within) => (false, within),
        Reservation::Reserved(within) => (true, within),
    };
    let begun = Instant::now();
    loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        let claim = SlotClaim {
            session: session.id.clone(),
            kind: requested.browser.clone(),
            version: requested.version.clone(),
            key: requested.key.clone(),
            server: state.id.clone(),
            wait,
            listed_within,
            reserved,
            queue_limit: state.config.queue_limit,
            key_limit: requested.key_limits.sessions,
            key_queue_limit: requested.key_limits.waiting,
        };
        let outcome = state.store.claim(&claim).await?;
        if matches!(
            outcome,
            ClaimOutcome::NoVersion(_) | ClaimOutcome::KeyFull | ClaimOutcome::KeyQueueFull | ClaimOutcome::QueueFull
        ) {
            // The store has neither a session nor a place in the queue to release.
            session.cause = None;
        }
        match outcome {
            ClaimOutcome::Granted(grant) => {
                state.metrics.queue_wait.record(begun.elapsed());
                return Ok(grant);
            }
            ClaimOutcome::NoVersion(workers) => {
                let client = requested.version.clone().unwrap_or_default();
                return Err(Refusal::Version { client, browser: requested.browser.clone(), workers });
            }
            ClaimOutcome::KeyFull => return Err(Refusal::KeyFull(requested.key_limits.sessions.unwrap_or(0))),
            ClaimOutcome::KeyQueueFull => {
                return Err(Refusal::KeyQueueFull(requested.key_limits.waiting.unwrap_or(0)));
            }
            _ if wait.is_zero() => return Err(refuse_at_deadline(state, requested).await),
            ClaimOutcome::QueueFull => return Err(Refusal::QueueFull(state.config.queue_limit)),
            ClaimOutcome::Waiting { seen_notifications, .. } => {
                tokio::select! {
                    waited = state.store.wait_for_grant(&session.id, seen_notifications, POLL.min(wait)) => waited?,
                    () = state.draining.cancelled() => return Err(Refusal::Draining),
                }
            }
            ClaimOutcome::NotMember => {
                state.store.renew_server(&state.id, state.config.ttl).await?;
            }
        }
    }
}

/// Says whether the client's browser was busy all the time, or is not there at all.
async fn refuse_at_deadline<S: SlotStore>(state: &ServerState<S>, requested: &RequestedSession) -> Refusal {
    let (browser, waited) = (requested.browser.clone(), state.config.queue_timeout);
    match state.store.snapshot().await {
        Ok(snapshot) if !snapshot.workers.iter().any(|view| view.worker.kind() == browser) => {
            Refusal::NoWorkerOf { browser, waited }
        }
        _ => Refusal::Timeout { browser, waited },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{
        ServerConfig,
        access::KeyLimits,
        session_registry::{ReleaseReceiver, SessionRegistry},
    };
    use squall_coord::{MemberId, MemorySlotStore};

    fn server_without_a_queue() -> (ServerState<MemorySlotStore>, ReleaseReceiver) {
        let config = ServerConfig { queue_limit: 0, ..ServerConfig::default() };
        let (registry, releases) = SessionRegistry::new();
        let state = ServerState::new(MemorySlotStore::new(), MemberId::unique(), config, registry, Default::default());
        (state, releases)
    }

    #[tokio::test]
    async fn refused_claim_leaves_nothing_to_release() {
        let (state, mut releases) = server_without_a_queue();
        let key = ClientKey { id: String::new(), limits: KeyLimits::default(), admin: true };
        let requested = RequestedSession::new(&key, Protocol::Playwright);
        let mut session = state.registry.claim();
        let deadline = Instant::now() + Duration::from_secs(60);
        let refused = claim(&state, &requested, &mut session, deadline, Reservation::Reserved(POLL)).await;
        assert!(matches!(refused, Err(Refusal::QueueFull(0))));
        drop(session);
        assert!(releases.try_recv().is_err());
        // A claim whose outcome is unknown is released.
        drop(state.registry.claim());
        assert!(releases.try_recv().is_ok());
    }
}
