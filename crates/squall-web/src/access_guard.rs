//! Checks the access of every request. If a token is set, the request must have it, or the cookie
//! of a session. Without a token, the Host must be a name of this machine. A web page that makes a
//! browser send requests here has another Host or Origin, so it is denied, unless its origin is
//! allowed. The router runs this check before every handler.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use crate::{
    config::{AllowedOrigin, ApiToken},
    error::{ApiError, shorten},
    routes::ui::ASSETS,
    run_watcher::ApiCounters,
    session::{WrongTokenLimit, has_session},
};

/// Paths without a token, for load balancers and for signing in: they reveal only that the process is
/// alive, and its version.
const PUBLIC_PATHS: [&str; 8] =
    ["/health", "/healthz", "/readyz", "/openapi.json", "/", "/api/docs", "/api/v1/session", "/api/v1/sign-in"];

/// Statuses of responses to bad bodies and queries.
const BAD_REQUEST_STATUSES: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE];

/// The access rules.
#[derive(Clone)]
pub(crate) struct AccessGuard {
    pub(crate) token: Option<ApiToken>,
    pub(crate) allowed_origins: Vec<AllowedOrigin>,
    /// Whether the server uses HTTPS.
    pub(crate) tls: bool,
    pub(crate) wrong_tokens: Arc<WrongTokenLimit>,
    pub(crate) counters: Arc<ApiCounters>,
}

/// Forwards an allowed request to its handler; rejects others.
pub(crate) async fn check_access(State(guard): State<AccessGuard>, request: Request, next: Next) -> Response {
    ApiCounters::increment(&guard.counters.requests);
    let allowed_origin = guard.allowed_origin(request.headers());
    // A browser asks first whether a page may send a request, without the token.
    let is_preflight = request.method() == Method::OPTIONS && allowed_origin.is_some();
    let mut response = match is_preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => guard.respond(request, next).await,
    };
    if let Some(origin) = allowed_origin {
        allow_origin(response.headers_mut(), origin);
    }
    response
}

/// Lets the browser show the response to a page of `origin`.
fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

impl AccessGuard {
    async fn respond(&self, request: Request, next: Next) -> Response {
        let path = request.uri().path();
        let public = PUBLIC_PATHS.contains(&path) || path.starts_with(ASSETS);
        match self.authorize(request.headers(), request.uri(), public) {
            Ok(()) => {
                let response = next.run(request).await;
                if BAD_REQUEST_STATUSES.contains(&response.status()) {
                    ApiCounters::increment(&self.counters.bad_requests);
                }
                response
            }
            Err(denied) => {
                ApiCounters::increment(&self.counters.denied_requests);
                denied.into_response()
            }
        }
    }

    /// The Origin of the request, if its pages may use the API.
    fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_allowed = |allowed: &AllowedOrigin| origin.as_bytes().eq_ignore_ascii_case(allowed.as_str().as_bytes());
        self.allowed_origins.iter().any(is_allowed).then(|| origin.clone())
    }

    fn authorize(&self, headers: &HeaderMap, uri: &Uri, public: bool) -> Result<(), ApiError> {
        let host = request_host(headers, uri)?;
        self.check_origin(headers, &host)?;
        match &self.token {
            Some(_) if public => Ok(()),
            Some(token) if has_session(headers, token) => Ok(()),
            Some(token) => self.check_token(token, headers),
            // Another Host means that a web page has pointed its own name at this machine.
            None if is_loopback_host(&host) => Ok(()),
            None => Err(forbidden(format!("the Host `{host}` is not a name of this machine"))),
        }
    }

    fn check_token(&self, token: &ApiToken, headers: &HeaderMap) -> Result<(), ApiError> {
        let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|value| {
            let (scheme, rest) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
        });
        let missing = || ApiError::unauthorized("a token is required: send `Authorization: Bearer TOKEN`");
        self.wrong_tokens.check(token, given.ok_or_else(missing)?)
    }

    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
        if self.allowed_origin(headers).is_some() {
            return Ok(());
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or("");
        let own = |scheme: &str| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host));
        // With a token, a proxy that terminates TLS may forward the requests.
        let (http, https) = (!self.tls, self.tls || self.token.is_some());
        match http && own("http://") || https && own("https://") {
            true => Ok(()),
            false => Err(forbidden(format!(
                "the Origin `{origin}` is another site; requests from web pages of other sites are denied unless --allow-origin names them"
            ))),
        }
    }
}

/// The host of a request, from its address or its Host header. If both are present they must be
/// equal, because a proxy may use one and this server the other.
fn request_host(headers: &HeaderMap, uri: &Uri) -> Result<String, ApiError> {
    let not_one_host = || ApiError::bad_request("a request needs exactly one Host header");
    let mut hosts = headers.get_all(header::HOST).iter();
    let header = hosts.next().map(|host| host.to_str().map_err(|_| not_one_host())).transpose()?;
    if hosts.next().is_some() {
        return Err(not_one_host());
    }
    match (uri.authority().map(|authority| authority.as_str()), header) {
        (Some(address), Some(header)) if !address.eq_ignore_ascii_case(header) => {
            Err(forbidden(format!("the Host `{header}` differs from the address `{address}`")))
        }
        // A request in absolute form has the host in its address.
        (Some(address), _) => Ok(address.to_owned()),
        (None, Some(header)) => Ok(header.to_owned()),
        (None, None) => Err(not_one_host()),
    }
}

/// Whether `host` is `name` or `name:port` with a loopback name or address.
fn is_loopback_host(host: &str) -> bool {
    let (name, rest) = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_loopback = match host.starts_with('[') {
        true => name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()),
        false => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    is_loopback && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", shorten(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_addresses_are_loopback_hosts() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:80", "127.1.2.3", "[::1]:8080", "[::1]"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "10.0.0.1:8080", "[::2]:1", "localhost.evil"] {
            assert!(!is_loopback_host(host), "{host}");
        }
        for host in
            ["localhost:1@evil.example", "127.0.0.1:1, evil.example", "localhost:abc", "localhost:", "localhost:+1"]
                .into_iter()
                .chain(["localhost:70000", "[::1", "[::1]x", "[::1]:", "[127.0.0.1]", "::1", "localhost:1:1", "[]"])
        {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
