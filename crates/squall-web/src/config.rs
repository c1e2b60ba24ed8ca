//! Who may use the API and what it offers. Refuses to be reachable from other machines without a token.

use squall_model::Bundle;
use std::{fmt, net::SocketAddr, path::PathBuf};
use subtle::ConstantTimeEq;

use crate::{TlsError, TlsFiles, tls::TlsServer};

/// Shortest token that is worth anything on a network.
const MIN_TOKEN_LENGTH: usize = 16;

/// How the API is served.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// What every control endpoint asks for; `None` leaves it to who can reach a loopback address.
    pub token: Option<ApiToken>,
    pub tls: Option<TlsFiles>,
    /// What `/start_test` starts.
    pub scenario: Option<StartableScenario>,
    /// Of Squall itself.
    pub version: &'static str,
}

/// A scenario that is started by its number of users.
#[derive(Debug, Clone)]
pub struct StartableScenario {
    /// As it was given.
    pub path: PathBuf,
    pub bundle: Bundle,
    pub params: Vec<StartableParam>,
    /// Whether it takes parameters that are not listed.
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
    /// The kind of a scenario file's variables, which are texts, numbers or truths.
    pub const KIND_VARIABLE: &str = "variable";
}

/// A secret that is compared in constant time and never shown.
#[derive(Clone)]
pub struct ApiToken(String);

/// Why the API cannot be served like this.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    #[error(
        "{addr} can be reached from other machines, and without a token anybody could start tests there: \
         add --token TOKEN (or set SQUALL_TOKEN), or --listen 127.0.0.1:{}", addr.port()
    )]
    UnprotectedAddress { addr: SocketAddr },
    #[error("the token is too short: take {MIN_TOKEN_LENGTH} characters or more, e.g. from `openssl rand -hex 16`")]
    ShortToken,
    #[error("the token may have only visible ASCII characters")]
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

    /// Whether `given` is the same, in a time that does not tell how much of it is.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl WebConfig {
    /// Only for this machine, with nothing to start.
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
    fn only_loopback_is_open_without_a_token() {
        let mut config = WebConfig::local("0");
        assert!(config.check_address("127.0.0.1:8080".parse().unwrap()).is_ok());
        assert!(config.check_address("[::1]:8080".parse().unwrap()).is_ok());
        let refused = config.check_address("0.0.0.0:8080".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("--token") && refused.contains("--listen 127.0.0.1:8080"), "{refused}");
        config.token = Some(ApiToken::new("0123456789abcdef").unwrap());
        assert!(config.check_address("0.0.0.0:8080".parse().unwrap()).is_ok());
    }

    #[test]
    fn tokens_are_compared_whole_and_never_shown() {
        let token = ApiToken::new("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        assert!(!token.matches(b"0123456789abcdeX") && !token.matches(b"") && !token.matches(b"0123456789abcdef0"));
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(ApiToken::new("short").is_err() && ApiToken::new("0123456789 abcdef").is_err());
    }
}
