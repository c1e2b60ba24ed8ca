//! Refusals of the server: a status and one sentence that tells the user what to do, because
//! Playwright shows the body as the error message.
//! They decide nothing. Every route returns them.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;
use squall_coord::{SlotSessionId, StoreError, unique_id};

use super::requested_session::Protocol;

/// Playwright prints this response header in its call log.
pub(crate) const DEBUG_LOG_HEADER: &str = "x-playwright-debug-log";

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("unknown browser `{0}`: use ?browser=chromium, ?browser=firefox or ?browser=webkit")]
    UnknownBrowser(String),
    #[error("unknown isolation `{0}`: use ?isolation=shared, key or session; the worker's own is the least")]
    UnknownIsolation(String),
    #[error("connect with a WebSocket: {}", .0.example())]
    NotWebSocket(Protocol),
    #[error("an API key is required: add ?token=KEY to the URL, or the header Authorization: Bearer KEY")]
    NoKey,
    #[error("the API key is unknown or revoked: `squall grid key list` shows those that are valid")]
    WrongKey,
    #[error("web pages may not use the grid: connect from a program, which sends no Origin")]
    WebPage,
    #[error(
        "the API key has the scope {has}, and this needs {needs}: `squall grid key create --scope {needs}` makes one"
    )]
    Scope { has: &'static str, needs: &'static str },
    #[error("there is nothing at this path; docs/grid.md lists the routes")]
    NotFound,
    #[error("there is no session {0} of this API key; open another, or list yours at /v1/sessions")]
    NoSession(String),
    #[error("session {0} has a client already: end that one first, or open another session")]
    SessionTaken(String),
    #[error("session {0} has ended; open another")]
    SessionEnded(String),
    #[error("the body is not valid: {0}")]
    Body(String),
    #[error("playwright_version is a version such as 1.65, not `{0}`")]
    PlaywrightVersion(String),
    #[error("unknown protocol `{0}`: use playwright or cdp")]
    UnknownProtocol(String),
    #[error("keep_alive is a time of at most 1 h, such as 60s or 5m, not `{0}`")]
    KeepAlive(String),
    #[error("only sessions of the protocol cdp have keep_alive: Playwright closes the pages of a client that leaves")]
    KeepAliveProtocol,
    #[error("only chromium has the protocol cdp")]
    CdpBrowser,
    #[error("there is no worker {0}")]
    NoWorker(String),
    #[error("the URL is longer than 2 KiB")]
    LongUrl,
    #[error("the request has more than 64 headers, or more than 8 KiB of them")]
    LongHead,
    #[error("{method} is not allowed here: use {allowed}")]
    Method { method: String, allowed: &'static str },
    #[error(
        "the client has Playwright {client}, but the {browser} workers of this grid have {}: install one of these \
         versions in the client, or give a worker another --playwright with {client}",
        workers.join(" and ")
    )]
    Version { client: String, browser: String, workers: Vec<String> },
    #[error("the queue is full: the limit of clients that wait is {0}; add workers or raise --queue")]
    QueueFull(u64),
    #[error(
        "the API key's limit of sessions and waiting clients is {0}: end one, or create a key with more --sessions"
    )]
    KeyFull(u64),
    #[error("the API key's limit of waiting clients is {0}: connect later, or create a key with more --waiting")]
    KeyQueueFull(u64),
    #[error("worker {worker} could not be reached: {reason}")]
    Worker { worker: String, reason: String },
    #[error("{body}")]
    Passed { status: u16, body: String },
    #[error("no {browser} worker had a free slot within {waited:?}; add workers or raise --slots")]
    Timeout { browser: String, waited: Duration },
    #[error(
        "no {browser} worker joined this grid within {waited:?}: start one with `squall grid worker --browser \
         {browser}`, or ask for another ?browser="
    )]
    NoWorkerOf { browser: String, waited: Duration },
    #[error("the server is shutting down; connect again")]
    Draining,
    #[error("the server cannot renew its membership in the grid's store; see the log of the server")]
    NotMember,
    #[error("the grid's store does not respond; try again")]
    Store(#[from] StoreError),
}

/// A refusal, and the session that the client would have had.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) refusal: Refusal,
    session: Option<SlotSessionId>,
}

impl From<Refusal> for RefusedRequest {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, session: None }
    }
}

impl RefusedRequest {
    /// What the client's call log and the server's log call the request, so that a user can name it.
    pub(crate) fn name(&self) -> String {
        match &self.session {
            Some(session) => format!("session {session}"),
            None => format!("request {}", unique_id()),
        }
    }
}

impl Refusal {
    pub(crate) fn of_session(self, session: &SlotSessionId) -> RefusedRequest {
        RefusedRequest { refusal: self, session: Some(session.clone()) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::UnknownBrowser(_)
            | Self::UnknownIsolation(_)
            | Self::UnknownProtocol(_)
            | Self::KeepAlive(_)
            | Self::KeepAliveProtocol
            | Self::PlaywrightVersion(_)
            | Self::CdpBrowser
            | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::SessionTaken(_) => StatusCode::CONFLICT,
            Self::SessionEnded(_) => StatusCode::GONE,
            Self::NotWebSocket(_) => StatusCode::UPGRADE_REQUIRED,
            Self::NoKey | Self::WrongKey => StatusCode::UNAUTHORIZED,
            Self::WebPage | Self::Scope { .. } => StatusCode::FORBIDDEN,
            Self::NotFound | Self::NoSession(_) | Self::NoWorker(_) => StatusCode::NOT_FOUND,
            Self::LongUrl => StatusCode::URI_TOO_LONG,
            Self::LongHead => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Version { .. } => StatusCode::PRECONDITION_REQUIRED,
            Self::QueueFull(_) | Self::KeyFull(_) | Self::KeyQueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Worker { .. } => StatusCode::BAD_GATEWAY,
            Self::Passed { status, .. } => StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY),
            Self::Timeout { .. } | Self::NoWorkerOf { .. } | Self::Draining | Self::NotMember | Self::Store(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The response to the request of that name: text, or JSON if the client asks for it.
    pub(crate) fn response(&self, request: &str, wants_json: bool) -> Response<Full<Bytes>> {
        let status = self.status();
        let (kind, body) = match wants_json {
            true => {
                let error = json!({"error": {"code": status.as_u16(), "message": self.to_string()}});
                ("application/json", error.to_string())
            }
            false => ("text/plain; charset=utf-8", self.to_string()),
        };
        let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
        response = response.header(DEBUG_LOG_HEADER, format!("squall {request}"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response = response.header(header::RETRY_AFTER, "1");
        }
        if status == StatusCode::UPGRADE_REQUIRED {
            response = response.header(header::UPGRADE, "websocket");
        }
        if let Self::Method { allowed, .. } = self {
            response = response.header(header::ALLOW, *allowed);
        }
        response.body(Full::from(body)).expect("valid headers")
    }
}
