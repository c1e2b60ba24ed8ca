//! Who may use the API and what it offers. Refuses to be reachable from other machines without a token.

use squall_model::Bundle;
use std::{fmt, net::SocketAddr, path::PathBuf};
use subtle::ConstantTimeEq;

use crate::{TlsError, TlsFiles, tls::TlsServer};

/// Shortest token that is worth anything on a network.
const SHORTEST_TOKEN: usize = 16;

/// How the API is served.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// What every control endpoint asks for; `None` leaves it to who can reach a loopback address.
    pub token: Option<Token>,
    pub tls: Option<TlsFiles>,
    /// What `/start_test` starts.
    pub offer: Option<Offer>,
    /// Of Squall itself.
    pub version: &'static str,
}

/// A scenario that is started by its number of users.
#[derive(Debug, Clone)]
pub struct Offer {
    /// As it was given.
    pub path: PathBuf,
    pub bundle: Bundle,
    pub params: Vec<OfferParam>,
    /// Whether it takes parameters that are not listed.
    pub takes_any: bool,
}

/// A parameter of a scenario.
#[derive(Debug, Clone, serde::Serialize)]
pub struct OfferParam {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub annotation: Option<String>,
    pub default: Option<serde_json::Value>,
}

impl OfferParam {
    /// The kind of a scenario file's variables, which are texts, numbers or truths.
    pub const VARIABLE: &str = "variable";
}

/// A secret that is compared in constant time and never shown.
#[derive(Clone)]
pub struct Token(String);

/// Why the API cannot be served like this.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "{addr} can be reached from other machines, and without a token anybody could start tests there: \
         add --token TOKEN (or set SQUALL_TOKEN), or --listen 127.0.0.1:{}", addr.port()
    )]
    OpenToAll { addr: SocketAddr },
    #[error("the token is too short: take {SHORTEST_TOKEN} characters or more, e.g. from `openssl rand -hex 16`")]
    ShortToken,
    #[error("the token may have only visible ASCII characters")]
    UnsendableToken,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Token {
    pub fn new(text: impl Into<String>) -> Result<Token, ConfigError> {
        let text = text.into();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::UnsendableToken);
        }
        if text.len() < SHORTEST_TOKEN { Err(ConfigError::ShortToken) } else { Ok(Token(text)) }
    }

    /// Whether `given` is the same, in a time that does not tell how much of it is.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl WebConfig {
    /// Only for this machine, with nothing to start.
    pub fn local(version: &'static str) -> WebConfig {
        WebConfig { token: None, tls: None, offer: None, version }
    }

    /// Whether the API may listen on `addr`.
    pub fn check(&self, addr: SocketAddr) -> Result<(), ConfigError> {
        match self.token.is_none() && !addr.ip().is_loopback() {
            true => Err(ConfigError::OpenToAll { addr }),
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
        assert!(config.check("127.0.0.1:8080".parse().unwrap()).is_ok());
        assert!(config.check("[::1]:8080".parse().unwrap()).is_ok());
        let refused = config.check("0.0.0.0:8080".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("--token") && refused.contains("--listen 127.0.0.1:8080"), "{refused}");
        config.token = Some(Token::new("0123456789abcdef").unwrap());
        assert!(config.check("0.0.0.0:8080".parse().unwrap()).is_ok());
    }

    #[test]
    fn tokens_are_compared_whole_and_never_shown() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        assert!(!token.matches(b"0123456789abcdeX") && !token.matches(b"") && !token.matches(b"0123456789abcdef0"));
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(Token::new("short").is_err() && Token::new("0123456789 abcdef").is_err());
    }
}
