//! The configuration of the API: access, TLS and the scenario of `/start_test`. It rejects an
//! address that other machines can reach unless a token is set.

use squall_model::Bundle;
use std::{fmt, net::SocketAddr, path::PathBuf};
use subtle::ConstantTimeEq;

use crate::{TlsError, TlsFiles, tls::TlsServer};

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
    /// Version of Squall.
    pub version: &'static str,
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
        WebConfig { token: None, tls: None, scenario: None, version }
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
    fn token_matches_only_itself_and_is_never_printed() {
        let token = ApiToken::new("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        assert!(!token.matches(b"0123456789abcdeX") && !token.matches(b"") && !token.matches(b"0123456789abcdef0"));
        assert_eq!(format!("{token:?}"), "ApiToken(…)");
        assert!(ApiToken::new("short").is_err() && ApiToken::new("0123456789 abcdef").is_err());
    }
}
