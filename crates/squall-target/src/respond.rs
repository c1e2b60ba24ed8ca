//! Answers one request. Everything that is wrong with a request is the client's to know: it gets a status and a sentence.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Endpoint, content::Content, query::parameter, server::Shared, shop::Refusal};

/// Largest request body that is read.
const BODY_LIMIT: usize = 1024 * 1024;
/// Longest wait and freeze, so that a typing mistake does not tie a connection up for a day.
const LONGEST_MS: u64 = 60_000;
/// Largest body that is sent.
const MOST_BYTES: u64 = 1 << 30;

type Answer = Response<Content>;

/// Counts and answers a request that arrived on serving thread `thread`.
pub(crate) async fn respond(
    shared: Arc<Shared>,
    thread: usize,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let (endpoint, argument) = Endpoint::of(request.uri().path());
    shared.stats.count(thread, endpoint);
    if let Some(until) = shared.freeze.until() {
        sleep_until(until).await;
    }
    if let Some(methods) = other_methods(endpoint, request.method()) {
        let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "this path has another method; GET / shows them");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
        return Ok(answer);
    }
    Ok(match endpoint {
        Endpoint::Products => products(&shared, request.uri()),
        Endpoint::Product => found(shared.shop.product(argument)),
        Endpoint::Order => found(shared.shop.find_order(argument)),
        Endpoint::Health => Answer::new(Content::from("{\"status\":\"ok\"}")).json(),
        Endpoint::Login => login(&shared, request).await,
        Endpoint::Orders => order(&shared, request).await,
        Endpoint::Delay => delay(argument).await,
        Endpoint::RandomDelay => random_delay(request.uri()).await,
        Endpoint::Fail => fail(request.uri()),
        Endpoint::Bytes => filled(argument),
        Endpoint::Echo => echo(request).await,
        Endpoint::Redirect => redirect(argument),
        Endpoint::Freeze => freeze(&shared, argument),
        Endpoint::Index => Answer::new(Content::from(crate::guide())),
        Endpoint::Stats => Answer::new(Content::from(shared.stats.json())).json(),
        Endpoint::Other => refuse(StatusCode::NOT_FOUND, "there is no such path; GET / shows them"),
    })
}

/// The methods of an endpoint that has others than this one; what only waits, fails or fills takes them all.
fn other_methods(endpoint: Endpoint, method: &Method) -> Option<&'static str> {
    match endpoint {
        Endpoint::Login | Endpoint::Orders => (method != Method::POST).then_some("POST"),
        Endpoint::Index
        | Endpoint::Products
        | Endpoint::Product
        | Endpoint::Order
        | Endpoint::Health
        | Endpoint::Stats => (!matches!(*method, Method::GET | Method::HEAD)).then_some("GET, HEAD"),
        _ => None,
    }
}

trait Json {
    fn json(self) -> Self;
}

impl Json for Answer {
    fn json(mut self) -> Answer {
        self.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }
}

fn refuse(status: StatusCode, reason: &str) -> Answer {
    let mut answer = Answer::new(Content::from(json!({ "error": reason }).to_string())).json();
    *answer.status_mut() = status;
    answer
}

fn found(body: Option<Bytes>) -> Answer {
    match body {
        Some(body) => Answer::new(Content::from(body)).json(),
        None => refuse(StatusCode::NOT_FOUND, "there is nothing with this id"),
    }
}

fn products(shared: &Shared, uri: &Uri) -> Answer {
    match parameter::<usize>(uri.query(), "page") {
        Ok(page) => found(shared.shop.page(page.unwrap_or(1))),
        Err(problem) => refuse(StatusCode::BAD_REQUEST, &problem),
    }
}

async fn login(shared: &Shared, request: Request<Incoming>) -> Answer {
    match read(request).await {
        Ok(body) => taken(StatusCode::OK, shared.shop.login(&body)),
        Err(answer) => answer,
    }
}

async fn order(shared: &Shared, request: Request<Incoming>) -> Answer {
    if !shared.shop.knows(request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes)) {
        let mut answer = refuse(StatusCode::UNAUTHORIZED, "give the access_token of /auth/login as a bearer token");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    }
    match read(request).await {
        Ok(body) => taken(StatusCode::CREATED, shared.shop.order(&body)),
        Err(answer) => answer,
    }
}

fn taken(status: StatusCode, answer: Result<Bytes, Refusal>) -> Answer {
    match answer {
        Ok(body) => {
            let mut answer = Answer::new(Content::from(body)).json();
            *answer.status_mut() = status;
            answer
        }
        Err(Refusal::Malformed(reason)) => refuse(StatusCode::BAD_REQUEST, reason),
        Err(Refusal::Unauthorized(reason)) => refuse(StatusCode::UNAUTHORIZED, reason),
    }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Answer> {
    let body = Limited::new(request.into_body(), BODY_LIMIT).collect().await;
    let refusal = || refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is incomplete or above 1 MiB");
    body.map(|body| body.to_bytes()).map_err(|_| refusal())
}

fn millis(text: &str) -> Option<Duration> {
    text.parse::<u64>().ok().filter(|ms| *ms <= LONGEST_MS).map(Duration::from_millis)
}

fn no_millis() -> Answer {
    refuse(StatusCode::BAD_REQUEST, "give a number of milliseconds, at most 60000")
}

async fn delay(argument: &str) -> Answer {
    match millis(argument) {
        Some(delay) => {
            sleep(delay).await;
            Answer::new(Content::from(format!("{{\"delay_ms\":{}}}", delay.as_millis()))).json()
        }
        None => no_millis(),
    }
}

async fn random_delay(uri: &Uri) -> Answer {
    let bounds = parameter::<u64>(uri.query(), "min").and_then(|min| Ok((min, parameter::<u64>(uri.query(), "max")?)));
    match bounds.map(|(min, max)| (min.unwrap_or(5), max.unwrap_or(50))) {
        Ok((min, max)) if min <= max && max <= LONGEST_MS => delay(&fastrand::u64(min..=max).to_string()).await,
        _ => refuse(StatusCode::BAD_REQUEST, "give ?min=5&max=50 in milliseconds, at most 60000"),
    }
}

fn fail(uri: &Uri) -> Answer {
    let rate = parameter::<f64>(uri.query(), "rate").map(|rate| rate.unwrap_or(1.0));
    let status = parameter::<u16>(uri.query(), "status").map(|status| status.unwrap_or(500));
    let status = status.ok().filter(|status| (400..600).contains(status)).map(StatusCode::from_u16);
    match (rate, status) {
        (Ok(rate @ 0.0..=1.0), Some(Ok(status))) => match fastrand::f64() < rate {
            true => refuse(status, "as asked for"),
            false => Answer::new(Content::from("{\"status\":\"ok\"}")).json(),
        },
        _ => {
            refuse(StatusCode::BAD_REQUEST, "give ?rate=0.1&status=500: a share from 0 to 1, a status from 400 to 599")
        }
    }
}

fn filled(argument: &str) -> Answer {
    match argument.parse::<u64>() {
        Ok(length) if length <= MOST_BYTES => Answer::new(Content::filled(length)),
        _ => refuse(StatusCode::BAD_REQUEST, "give a number of bytes, at most 1 GiB"),
    }
}

async fn echo(request: Request<Incoming>) -> Answer {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: serde_json::Map<_, _> =
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()).into())).collect();
    let (method, uri, version) = (request.method().to_string(), request.uri().clone(), request.version());
    match read(request).await {
        Ok(body) => {
            let (path, query, version) = (uri.path(), uri.query(), format!("{version:?}"));
            let echo = json!({ "method": method, "path": path, "query": query, "version": version,
                "headers": headers, "body": text(&body) });
            Answer::new(Content::from(echo.to_string())).json()
        }
        Err(answer) => answer,
    }
}

fn redirect(argument: &str) -> Answer {
    let Ok(left @ 0..=100) = argument.parse::<u32>() else {
        return refuse(StatusCode::BAD_REQUEST, "give a number of redirects, at most 100");
    };
    let to = if left <= 1 { "/health".to_owned() } else { format!("/redirect/{}", left - 1) };
    let mut answer = Answer::new(Content::from(json!({ "location": to }).to_string())).json();
    *answer.status_mut() = StatusCode::FOUND;
    answer.headers_mut().insert(header::LOCATION, HeaderValue::try_from(to).expect("a path of ASCII letters"));
    answer
}

fn freeze(shared: &Shared, argument: &str) -> Answer {
    match millis(argument) {
        Some(length) => {
            shared.freeze.start(Instant::now() + length);
            Answer::new(Content::from(format!("{{\"frozen_ms\":{}}}", length.as_millis()))).json()
        }
        None => no_millis(),
    }
}
