//! Errors, one type per operation: building a client, preparing a request, sending it. A failed
//! exchange is data with a code, a category and a latency; the other two are for the user to fix.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Settings that cannot work; reported before any request is sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// A certificate or key file could not be read.
    #[error("cannot read {what} {path:?}: {reason}")]
    ReadFile { what: &'static str, path: PathBuf, reason: io::Error },
    /// A certificate or key file has nothing usable in it.
    #[error("{path:?} holds no {what} in PEM form")]
    EmptyPem { what: &'static str, path: PathBuf },
    /// A certificate or key file is damaged, or key and certificate do not belong together.
    #[error("cannot use {what} {path:?}: {reason}")]
    BadPem { what: &'static str, path: PathBuf, reason: String },
    /// Only one of certificate and key was given.
    #[error("a client certificate needs its key and the other way round: {missing} is missing")]
    IncompleteClientIdentity { missing: &'static str },
    /// The name to verify is not a host name.
    #[error("{name:?} is not a valid TLS server name")]
    BadServerName { name: String },
    /// The proxy cannot be used.
    #[error("cannot use proxy {url}: {reason}")]
    BadProxy { url: String, reason: &'static str },
    /// A limit is zero.
    #[error("{what} must be greater than 0")]
    ZeroLimit { what: &'static str },
}

/// A request that cannot be sent; reported before any byte is sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The URL does not parse.
    #[error("{url:?} is not a URL: {reason}")]
    BadUrl { url: String, reason: String },
    /// Neither http nor https.
    #[error("{scheme}:// is not supported; use http:// or https://")]
    UnsupportedScheme { scheme: String },
    /// The URL names no host.
    #[error("the URL {url:?} has no host")]
    NoHost { url: String },
    /// Not a header name.
    #[error("{name:?} is not a valid header name")]
    InvalidHeaderName { name: String },
    /// A header value with a line break or another control character.
    #[error("the value of header {name} contains a line break or another control character")]
    InvalidHeaderValue { name: String },
    /// A header that the client itself must set.
    #[error("header {name} is set by squall; remove it")]
    ReservedHeader { name: String },
    /// A path with a line break or another control character, or not starting with `/`.
    #[error("the path {path:?} {reason}")]
    InvalidPath { path: String, reason: &'static str },
    /// One redirect more than the limit.
    #[error("the redirects do not end")]
    TooManyRedirects,
}

impl RequestError {
    /// The outcome code in reports when a redirect led to this error.
    pub fn redirect_code(&self) -> &'static str {
        match self {
            RequestError::TooManyRedirects => "TOO_MANY_REDIRECTS",
            _ => "BAD_REDIRECT",
        }
    }
}

/// How an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The name has no address.
    #[error("cannot resolve {host}: {reason}")]
    Dns { host: String, reason: String },
    /// The resolver did not answer within the connect limit.
    #[error("cannot resolve {host}: the resolver did not answer in time")]
    DnsTimeout { host: String },
    /// Nothing listens there.
    #[error("{address} refused the connection")]
    ConnectRefused { address: String },
    /// The connection could not be made for another reason.
    #[error("cannot connect to {address}: {reason}")]
    ConnectFailed { address: String, reason: io::Error },
    /// This machine ran out of ports, descriptors or memory; the target is not the cause.
    #[error("this machine is out of resources ({reason}); raise `ulimit -n` or reuse connections")]
    LocalLimit { reason: io::Error },
    /// No connection within the connect limit.
    #[error("no connection within {after:?}")]
    ConnectTimeout { after: Duration },
    /// The handshake failed or the certificate was not accepted.
    #[error("TLS: {}", crate::tls::describe_error(reason))]
    Tls { reason: io::Error },
    /// The proxy could not be reached or refused.
    #[error("proxy: {reason}")]
    Proxy { reason: String },
    /// The peer reset the connection during the request.
    #[error("the connection was reset: {reason}")]
    Reset { reason: io::Error },
    /// The peer closed the connection before the first byte of a response.
    #[error("the connection was closed before a response")]
    Closed,
    /// The peer closed the connection in the middle of a response.
    #[error("the connection ended in the middle of a response")]
    Truncated,
    /// Reading or writing failed for another reason.
    #[error("the connection failed: {reason}")]
    Io { reason: io::Error },
    /// No complete response within the request's limit.
    #[error("no complete response within {after:?}")]
    Timeout { after: Duration },
    /// Not HTTP.
    #[error("malformed response: {reason}")]
    Malformed { reason: &'static str },
    /// The head exceeds `max_head_bytes`.
    #[error("the response head is longer than {limit} bytes")]
    HeadTooLarge { limit: usize },
    /// The body exceeds `max_body_bytes`.
    #[error("the response body is longer than {limit} bytes")]
    BodyTooLarge { limit: usize },
    /// HTTP/2 could not be agreed on, or failed.
    #[error("HTTP/2: {reason}")]
    H2 { reason: String },
    /// The server returned the request unprocessed, because it was closing the connection or accepts no more streams.
    #[error("HTTP/2: the server did not process the request: {reason}")]
    H2Refused { reason: &'static str },
    /// The body does not decode as its Content-Encoding says.
    #[error("cannot decode the {encoding} body: {reason}")]
    BadEncoding { encoding: &'static str, reason: String },
}

/// The coarse class of a failed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HttpErrorCategory {
    /// The peer violated the protocol.
    Protocol,
    /// The transport failed.
    Transport,
    /// A limit passed.
    Timeout,
}

impl HttpErrorCategory {
    /// The word used in results.
    pub fn as_str(self) -> &'static str {
        match self {
            HttpErrorCategory::Protocol => "protocol_error",
            HttpErrorCategory::Transport => "transport_error",
            HttpErrorCategory::Timeout => "timeout",
        }
    }
}

impl HttpError {
    /// The stable name of this outcome in results.
    pub fn code(&self) -> &'static str {
        match self {
            HttpError::Dns { .. } => "DNS_FAILURE",
            HttpError::DnsTimeout { .. } => "DNS_TIMEOUT",
            HttpError::ConnectRefused { .. } => "CONNECT_REFUSED",
            HttpError::ConnectFailed { .. } => "CONNECT_FAILED",
            HttpError::LocalLimit { .. } => "LOCAL_LIMIT",
            HttpError::ConnectTimeout { .. } => "CONNECT_TIMEOUT",
            HttpError::Tls { .. } => "TLS_FAILURE",
            HttpError::Proxy { .. } => "PROXY_FAILURE",
            HttpError::Reset { .. } => "RESET",
            HttpError::Closed => "CLOSED",
            HttpError::Truncated => "TRUNCATED",
            HttpError::Io { .. } => "IO_FAILURE",
            HttpError::Timeout { .. } => "TIMEOUT",
            HttpError::Malformed { .. } => "MALFORMED_RESPONSE",
            HttpError::HeadTooLarge { .. } => "HEAD_TOO_LARGE",
            HttpError::BodyTooLarge { .. } => "BODY_TOO_LARGE",
            HttpError::H2 { .. } => "H2_ERROR",
            HttpError::H2Refused { .. } => "H2_REFUSED",
            HttpError::BadEncoding { .. } => "BAD_ENCODING",
        }
    }

    /// The class of this outcome, as a word: `protocol_error`, `transport_error` or `timeout`.
    pub fn category_name(&self) -> &'static str {
        self.error_category().as_str()
    }

    /// The class of this outcome.
    pub fn error_category(&self) -> HttpErrorCategory {
        match self {
            HttpError::Timeout { .. } | HttpError::ConnectTimeout { .. } | HttpError::DnsTimeout { .. } => {
                HttpErrorCategory::Timeout
            }
            HttpError::Malformed { .. }
            | HttpError::HeadTooLarge { .. }
            | HttpError::BodyTooLarge { .. }
            | HttpError::H2 { .. }
            | HttpError::H2Refused { .. }
            | HttpError::BadEncoding { .. } => HttpErrorCategory::Protocol,
            HttpError::Dns { .. }
            | HttpError::ConnectRefused { .. }
            | HttpError::ConnectFailed { .. }
            | HttpError::LocalLimit { .. }
            | HttpError::Tls { .. }
            | HttpError::Proxy { .. }
            | HttpError::Reset { .. }
            | HttpError::Closed
            | HttpError::Truncated
            | HttpError::Io { .. } => HttpErrorCategory::Transport,
        }
    }

    /// Whether the target was never reached, so that no request byte can have arrived.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            HttpError::Dns { .. }
                | HttpError::DnsTimeout { .. }
                | HttpError::ConnectRefused { .. }
                | HttpError::ConnectFailed { .. }
                | HttpError::ConnectTimeout { .. }
                | HttpError::LocalLimit { .. }
                | HttpError::Tls { .. }
                | HttpError::Proxy { .. }
        )
    }

    /// Whether the request never left this machine, because a local resource was missing.
    pub fn failed_before_sending(&self) -> bool {
        matches!(self, HttpError::LocalLimit { .. })
    }

    /// Classifies an error of an open connection.
    pub(crate) fn from_io(reason: io::Error) -> HttpError {
        match reason.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                HttpError::Reset { reason }
            }
            // rustls: the peer closed without close_notify.
            io::ErrorKind::UnexpectedEof => HttpError::Truncated,
            // rustls reports alerts and broken records this way.
            io::ErrorKind::InvalidData => HttpError::Tls { reason },
            _ => HttpError::Io { reason },
        }
    }

    /// Classifies an error of an attempt to connect.
    pub(crate) fn from_connect(address: String, reason: io::Error) -> HttpError {
        match reason {
            reason if is_local_resource_error(&reason) => HttpError::LocalLimit { reason },
            _ if reason.kind() == io::ErrorKind::ConnectionRefused => HttpError::ConnectRefused { address },
            _ => HttpError::ConnectFailed { address, reason },
        }
    }
}

/// Whether a connection attempt failed because this machine lacked a resource.
pub(crate) fn is_local_resource_error(reason: &io::Error) -> bool {
    // EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, ENOMEM.
    reason.raw_os_error().is_some_and(|code| [24, 23, 99, 105, 12].contains(&code))
}
