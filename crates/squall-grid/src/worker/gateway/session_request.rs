//! Who asks a gateway for a session: reads the request of a server, or that of a client with the path that a server
//! has signed, and the headers for Playwright.
//! It registers nothing and does not remember which paths were used; the gateway does.

use squall_coord::{MemberId, SlotSessionId};
use subtle::ConstantTimeEq;

use crate::{
    direct::{DirectPass, PassError},
    handshake::{self, Headers, RequestHead},
    worker::Isolation,
};

/// Headers between server and gateway.
pub(crate) const SECRET_HEADER: &str = "x-squall-secret";
pub(crate) const SESSION_HEADER: &str = "x-squall-session";
pub(crate) const SERVER_HEADER: &str = "x-squall-server";
pub(crate) const KEY_HEADER: &str = "x-squall-key";
pub(crate) const ISOLATION_HEADER: &str = "x-squall-isolation";
/// `cdp`, or absent for Playwright.
pub(crate) const PROTOCOL_HEADER: &str = "x-squall-protocol";
/// In milliseconds. The gateway answers with it if it keeps the session.
pub(crate) const KEEP_ALIVE_HEADER: &str = "x-squall-keep-alive";

/// A refusal: status and sentence.
pub(super) type GatewayRefusal = (u16, String);

/// Who asks for a session, and how.
#[derive(Clone)]
pub(super) struct SessionRequest {
    pub(super) id: SlotSessionId,
    pub(super) server: MemberId,
    pub(super) key: String,
    pub(super) isolation: Option<Isolation>,
    pub(super) compression: bool,
    /// Whether the client itself is connected, and not a server.
    pub(super) direct: bool,
}

impl SessionRequest {
    /// The request of a server, which knows the worker's secret.
    pub(super) fn of_server(head: &RequestHead, secret: &str) -> Result<Self, GatewayRefusal> {
        let given = head.headers.get(SECRET_HEADER).unwrap_or_default();
        // A page can neither set this header nor omit the Origin.
        if head.headers.get("origin").is_some() || !bool::from(given.as_bytes().ct_eq(secret.as_bytes())) {
            return Err((403, "only servers of the grid may connect to a worker".to_owned()));
        }
        let id = head.headers.get(SESSION_HEADER).and_then(SlotSessionId::parse);
        let server = head.headers.get(SERVER_HEADER).map(MemberId::new);
        match (id, server, head.method.as_str()) {
            (Some(id), Some(server), "GET") => Ok(Self {
                id,
                server,
                key: head.headers.get(KEY_HEADER).unwrap_or_default().to_owned(),
                isolation: head.headers.get(ISOLATION_HEADER).and_then(Isolation::parse),
                compression: true,
                direct: false,
            }),
            _ => Err((400, "the request names no session".to_owned())),
        }
    }

    /// The request of a client that a server has sent here, and when its path expires.
    pub(super) fn of_client(head: &RequestHead, secret: &str) -> Result<(Self, u64), GatewayRefusal> {
        if head.headers.get("origin").is_some() {
            return Err((403, "web pages may not use the grid".to_owned()));
        }
        if head.method != "GET" {
            return Err((405, format!("{} is not allowed here", head.method)));
        }
        let pass = DirectPass::read(&head.path, secret).map_err(|error| match error {
            PassError::NotSigned => (403, "no server of the grid made this path; connect to the server".to_owned()),
            PassError::Expired => {
                let reason =
                    "this path has expired; connect to the server again, whose clock must agree with the worker's";
                (410, reason.to_owned())
            }
        })?;
        let DirectPass { session: id, server, key, isolation, compression, expires } = pass;
        Ok((Self { id, server, key, isolation, compression, direct: true }, expires))
    }
}

/// The headers for Playwright: those of the client that it reads.
pub(super) fn browser_headers(headers: &Headers, compression: bool) -> Headers {
    let mut forwarded = Headers::default();
    forwarded.push("host", "localhost");
    for (name, value) in headers.iter().filter(|(name, _)| handshake::is_forwarded(name, compression)) {
        forwarded.push(name, value);
    }
    forwarded
}
