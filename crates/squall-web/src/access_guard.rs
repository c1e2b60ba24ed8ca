//! Who may ask: the right token, or, without one, only somebody on this machine who means this machine. A page in a browser that
//! tricks its user into asking has another Host or Origin.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, Uri, header};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use crate::{
    config::ApiToken,
    error::{ApiError, shorten},
    run_watcher::ApiCounters,
};

/// Paths that say nothing but that somebody is there: what load balancers ask.
const PUBLIC_PATHS: [&str; 4] = ["/health", "/healthz", "/readyz", "/openapi.json"];

/// How bad bodies and queries are answered.
const BAD_REQUEST_STATUSES: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE];

/// What the guard knows.
#[derive(Clone)]
pub(crate) struct AccessGuard {
    pub(crate) token: Option<ApiToken>,
    /// Whether callers come by HTTPS.
    pub(crate) tls: bool,
    pub(crate) counters: Arc<ApiCounters>,
}

/// Lets a request through, or not.
pub(crate) async fn check_access(State(guard): State<AccessGuard>, request: Request, next: Next) -> Response {
    ApiCounters::increment(&guard.counters.requests);
    let open = PUBLIC_PATHS.contains(&request.uri().path());
    match guard.authorize(request.headers(), request.uri(), open) {
        Ok(()) => {
            let response = next.run(request).await;
            if BAD_REQUEST_STATUSES.contains(&response.status()) {
                ApiCounters::increment(&guard.counters.bad_requests);
            }
            response
        }
        Err(refusal) => {
            ApiCounters::increment(&guard.counters.denied_requests);
            refusal.into_response()
        }
    }
}

impl AccessGuard {
    fn authorize(&self, headers: &HeaderMap, uri: &Uri, open: bool) -> Result<(), ApiError> {
        let host = request_host(headers, uri)?;
        self.check_origin(headers, &host)?;
        match &self.token {
            Some(_) if open => Ok(()),
            Some(token) => check_token(token, headers),
            // Nobody asked for a name of this machine by another name: that would be somebody else's page.
            None if is_loopback_host(&host) => Ok(()),
            None => Err(forbidden(format!("the Host `{host}` is not a name of this machine"))),
        }
    }

    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or("");
        let own = |scheme: &str| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host));
        // Where a token is asked for, a proxy that ends TLS may stand before us.
        let (http, https) = (!self.tls, self.tls || self.token.is_some());
        match http && own("http://") || https && own("https://") {
            true => Ok(()),
            false => Err(forbidden(format!("the Origin `{origin}` is another site"))),
        }
    }
}

/// Whom a request means, by its address, its Host, or both if they say the same: a proxy may go by the one and we by the other.
fn request_host(headers: &HeaderMap, uri: &Uri) -> Result<String, ApiError> {
    let one = || ApiError::bad_request("a request needs one Host header");
    let mut hosts = headers.get_all(header::HOST).iter();
    let header = hosts.next().map(|host| host.to_str().map_err(|_| one())).transpose()?;
    if hosts.next().is_some() {
        return Err(one());
    }
    match (uri.authority().map(|authority| authority.as_str()), header) {
        (Some(address), Some(header)) if !address.eq_ignore_ascii_case(header) => {
            Err(forbidden(format!("the Host `{header}` is not that of the address, `{address}`")))
        }
        // HTTP/2 has no Host but this.
        (Some(address), _) => Ok(address.to_owned()),
        (None, Some(header)) => Ok(header.to_owned()),
        (None, None) => Err(one()),
    }
}

fn check_token(token: &ApiToken, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| {
        let (scheme, rest) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
    });
    match given {
        Some(given) if token.matches(given) => Ok(()),
        Some(_) => Err(unauthorized("the token is not the right one")),
        None => Err(unauthorized("a token is needed: send `Authorization: Bearer TOKEN`")),
    }
}

/// Whether `host` is `name`, or `name:port`, of this machine and nothing else.
fn is_loopback_host(host: &str) -> bool {
    let (name, rest) = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let names = match host.starts_with('[') {
        true => name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()),
        false => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    names && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", shorten(&message))
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine() {
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
