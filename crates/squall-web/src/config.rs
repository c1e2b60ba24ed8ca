//! The configuration of the API: access, TLS and the scenario of `/start_test`. It rejects an
//! address that other machines can reach unless a token is set.

use squall_coord::RedisSlotStore;
use squall_history::RunFolder;
use squall_model::Bundle;
use squall_streams::admin::StreamAdmin;
use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use subtle::ConstantTimeEq;

use crate::{SharedCatalog, TlsError, TlsFiles, tls::TlsServer};

/// Shorter tokens can be guessed over a network.
const MIN_TOKEN_LENGTH: usize = 16;

/// Configuration of the API.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// The token that every control endpoint requires. With `None`, every process that can reach
    /// the loopback address has access.
    pub token: Option<ApiToken>,
    pub tls: Option<TlsFiles>,
    /// The scenario that `/start_test` starts.
    pub scenario: Option<StartableScenario>,
    /// The scenarios that the web UI starts.
    pub catalog: Option<SharedCatalog>,
    /// The streams that the web UI shows.
    pub streams: Option<ShownStreams>,
    /// The browser grid that the web UI shows.
    pub grid: Option<ShownGrid>,
    /// Web pages of these origins may use the API.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// Where finished runs are saved and read.
    pub history: Option<RunHistory>,
    pub mode: ServerMode,
    /// The command that adds a worker to the fleet, without passwords; `None` if no worker can join.
    pub worker_command: Option<String>,
    /// Readers of the live feed, which the server counts.
    pub viewers: ViewerCount,
    /// Version of Squall.
    pub version: &'static str,
}

/// Finished runs.
#[derive(Debug, Clone)]
pub struct RunHistory {
    pub folder: Arc<RunFolder>,
    /// The result that runs are compared with; it may be absent.
    pub baseline: PathBuf,
    /// Whether the server saves the fleet's runs; otherwise it only reads the folder.
    pub saves_runs: bool,
}

/// The streams of one namespace.
#[derive(Clone)]
pub struct ShownStreams {
    pub admin: StreamAdmin,
}

impl fmt::Debug for ShownStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownStreams(…)")
    }
}

/// A browser grid.
#[derive(Clone)]
pub struct ShownGrid {
    pub store: RedisSlotStore,
}

impl fmt::Debug for ShownGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownGrid(…)")
    }
}

/// How many readers the live feed has. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct ViewerCount(Arc<AtomicUsize>);

impl ViewerCount {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more until the guard is dropped.
    pub(crate) fn enter(&self) -> ViewerGuard {
        self.0.fetch_add(1, Ordering::SeqCst);
        ViewerGuard(self.0.clone())
    }
}

/// Counts one reader of the feed until it is dropped.
pub(crate) struct ViewerGuard(Arc<AtomicUsize>);

impl Drop for ViewerGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the server is for, which decides the pages that the web UI offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerMode {
    /// A fleet and its runs.
    #[default]
    Fleet,
    /// A folder of results: nothing runs.
    Results,
}

/// A scenario that `/start_test` starts with a number of users.
#[derive(Debug, Clone)]
pub struct StartableScenario {
    /// The path as the user gave it.
    pub path: PathBuf,
    pub bundle: Bundle,
    pub params: Vec<StartableParam>,
    /// Whether the scenario accepts parameters that are not listed.
    pub accepts_any_param: bool,
    /// Whether the scenario or a flag names a target. Otherwise the test's parameters have to.
    pub has_target: bool,
    /// The resource pools that the scenario declares.
    pub resources: Vec<String>,
    /// The probes that the scenario declares.
    pub probes: Vec<String>,
    pub resource_factory: Option<ResourceFactory>,
}

/// Makes resources with the code of the scenario.
#[derive(Clone)]
pub struct ResourceFactory(pub Arc<MakeResource>);

/// Makes the resource with a number for a pool, as a JSON object. `None` if the pool has no factory;
/// the error is the factory's message. May block.
pub type MakeResource = dyn Fn(&str, u64) -> Option<Result<String, String>> + Send + Sync;

impl fmt::Debug for ResourceFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResourceFactory(…)")
    }
}

/// The origin of web pages, `scheme://host[:port]` as browsers send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin(String);

impl AllowedOrigin {
    pub fn new(text: &str) -> Result<AllowedOrigin, WebConfigError> {
        let text = text.trim_end_matches('/').to_ascii_lowercase();
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let is_host_byte = |byte: u8| byte.is_ascii_graphic() && !b"/?#*@".contains(&byte);
        match host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_host_byte)) {
            true => Ok(AllowedOrigin(text)),
            false => Err(WebConfigError::InvalidOrigin(text)),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A parameter of a scenario.
#[derive(Debug, Clone, serde::Serialize)]
pub struct StartableParam {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub annotation: Option<String>,
    pub default: Option<serde_json::Value>,
}

impl StartableParam {
    /// The kind of a scenario file's variables, which are strings, numbers or booleans.
    pub const KIND_VARIABLE: &str = "variable";
}

/// A secret that is compared in constant time and never printed.
#[derive(Clone)]
pub struct ApiToken(String);

/// Why the API cannot be served with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    #[error(
        "other machines can reach {addr}, and without a token they could start tests there: \
         add --token TOKEN (or set SQUALL_TOKEN), or --listen 127.0.0.1:{}", addr.port()
    )]
    UnprotectedAddress { addr: SocketAddr },
    #[error("the token is too short: use {MIN_TOKEN_LENGTH} characters or more, e.g. from `openssl rand -hex 16`")]
    ShortToken,
    #[error("`{0}` is not an origin: give scheme, host and port of the pages, e.g. http://localhost:5173")]
    InvalidOrigin(String),
    #[error("the token may contain only visible ASCII characters, no blanks")]
    InvalidToken,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ApiToken {
    pub fn new(text: impl Into<String>) -> Result<ApiToken, WebConfigError> {
        let text = text.into();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(WebConfigError::InvalidToken);
        }
        if text.len() < MIN_TOKEN_LENGTH { Err(WebConfigError::ShortToken) } else { Ok(ApiToken(text)) }
    }

    /// The bytes that sign sessions.
    pub(crate) fn secret(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether `given` equals the token. The time does not depend on the number of equal bytes.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken(…)")
    }
}

impl WebConfig {
    /// A configuration for loopback only, without a scenario.
    pub fn local(version: &'static str) -> WebConfig {
        WebConfig {
            token: None,
            tls: None,
            scenario: None,
            catalog: None,
            streams: None,
            grid: None,
            allowed_origins: Vec::new(),
            history: None,
            mode: ServerMode::Fleet,
            worker_command: None,
            viewers: ViewerCount::default(),
            version,
        }
    }

    /// Whether the API may listen on `addr`.
    pub fn check_address(&self, addr: SocketAddr) -> Result<(), WebConfigError> {
        match self.token.is_none() && !addr.ip().is_loopback() {
            true => Err(WebConfigError::UnprotectedAddress { addr }),
            false => Ok(()),
        }
    }

    pub(crate) fn tls_server(&self) -> Result<Option<TlsServer>, TlsError> {
        self.tls.as_ref().map(TlsServer::read).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_allowed_without_a_token() {
        let mut config = WebConfig::local("0");
        assert!(config.check_address("127.0.0.1:8080".parse().unwrap()).is_ok());
        assert!(config.check_address("[::1]:8080".parse().unwrap()).is_ok());
        let error = config.check_address("0.0.0.0:8080".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("--token") && error.contains("--listen 127.0.0.1:8080"), "{error}");
        config.token = Some(ApiToken::new("0123456789abcdef").unwrap());
        assert!(config.check_address("0.0.0.0:8080".parse().unwrap()).is_ok());
    }

    #[test]
    fn origin_has_a_scheme_and_a_host_and_nothing_else() {
        for text in ["http://localhost:5173", "https://UI.example", "http://[::1]:80", "http://localhost:5173/"] {
            assert!(AllowedOrigin::new(text).is_ok(), "{text}");
        }
        for text in ["*", "localhost:5173", "http://", "http://*", "http://a/b", "http://a b", "null", "ftp://a"] {
            assert!(AllowedOrigin::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn token_matches_only_itself_and_is_never_printed() {
        let token = ApiToken::new("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        assert!(!token.matches(b"0123456789abcdeX") && !token.matches(b"") && !token.matches(b"0123456789abcdef0"));
        assert_eq!(format!("{token:?}"), "ApiToken(…)");
        assert!(ApiToken::new("short").is_err() && ApiToken::new("0123456789 abcdef").is_err());
    }
}
