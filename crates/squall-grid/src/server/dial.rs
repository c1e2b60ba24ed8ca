//! Dials the worker of a granted slot, with the client's headers for Playwright and who asks.
//! It claims nothing and relays nothing. [`super::connect`] calls it.

use http::HeaderMap;
use squall_coord::{SlotGrant, SlotSessionId};
use tokio::net::TcpStream;

use super::{
    ServerState,
    refusal::Refusal,
    requested_session::{Protocol, RequestedSession},
};
use crate::{
    handshake::{self, HandshakeError, Headers},
    relay::{RelaySide, Socket},
    worker::gateway::{
        ISOLATION_HEADER, KEEP_ALIVE_HEADER, KEY_HEADER, PROTOCOL_HEADER, SECRET_HEADER, SERVER_HEADER, SESSION_HEADER,
    },
};

/// Why a worker took no session.
pub(super) enum DialError {
    /// The worker's or Playwright's own refusal, for example of a version.
    Refused(Refusal),
    Unreachable(String),
}

/// Connects to the gateway of the worker.
pub(super) async fn dial<S>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    client: &HeaderMap,
    session: &SlotSessionId,
    grant: &SlotGrant,
) -> Result<(Headers, RelaySide), DialError> {
    let headers = worker_headers(state, requested, client, session, grant);
    let dialling = async {
        let stream = TcpStream::connect(host_of(&grant.endpoint)).await?;
        stream.set_nodelay(true)?;
        handshake::open_websocket(Socket::Tcp(stream), "/", &headers).await
    };
    let reason = match tokio::time::timeout(state.config.dial_timeout, dialling).await {
        Ok(Ok(opened)) => return Ok(opened),
        Ok(Err(HandshakeError::Refused { status, body })) if !(500..600).contains(&status) => {
            return Err(DialError::Refused(Refusal::Passed { status, body }));
        }
        Ok(Err(HandshakeError::Refused { body, .. })) => body,
        Ok(Err(HandshakeError::Connection(source))) => source.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", state.config.dial_timeout.as_secs()),
    };
    tracing::warn!(%session, worker = %grant.worker, reason, "a worker could not be reached");
    Err(DialError::Unreachable(reason))
}

/// The headers for the worker: what Playwright reads, and who asks.
fn worker_headers<S>(
    state: &ServerState<S>,
    requested: &RequestedSession,
    client: &HeaderMap,
    session: &SlotSessionId,
    grant: &SlotGrant,
) -> Headers {
    let mut headers = Headers::default();
    headers.push("host", host_of(&grant.endpoint));
    for (name, value) in client {
        if let Ok(value) = value.to_str()
            && handshake::is_forwarded(name.as_str(), state.config.compression)
        {
            headers.push(name.as_str(), value);
        }
    }
    headers.push(SECRET_HEADER, &*grant.secret);
    headers.push(SESSION_HEADER, session.as_str());
    headers.push(SERVER_HEADER, state.id.as_str());
    headers.push(KEY_HEADER, &*requested.key);
    if let Some(isolation) = requested.isolation {
        headers.push(ISOLATION_HEADER, isolation.name());
    }
    if requested.protocol == Protocol::Cdp {
        headers.push(PROTOCOL_HEADER, "cdp");
    }
    if let Some(keep_alive) = requested.keep_alive {
        headers.push(KEEP_ALIVE_HEADER, keep_alive.as_millis().to_string());
    }
    headers
}

/// `ws://host:port/` → `host:port`.
pub(super) fn host_of(endpoint: &str) -> &str {
    endpoint.trim_start_matches("ws://").trim_end_matches('/')
}
