//! Answers one request. A wrong request gets a status and a sentence that says what is wrong.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    TargetEndpoint, pages, query::parameter, repeating_body::RepeatingBody, server::TargetState, shop::ShopError,
};

/// Largest accepted request body.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;
/// Longest delay and freeze, so that a typing mistake does not block a connection for a day.
const MAX_DELAY_MS: u64 = 60_000;
/// Largest response body.
const MAX_RESPONSE_BYTES: u64 = 1 << 30;

type ShopResponse = Response<RepeatingBody>;

/// Counts and answers a request that arrived on serving thread `thread`.
pub(crate) async fn respond(
    shared: Arc<TargetState>,
    thread: usize,
    request: Request<Incoming>,
) -> Result<ShopResponse, Infallible> {
    let (endpoint, argument) = TargetEndpoint::match_path(request.uri().path());
    shared.stats.count(thread, endpoint);
    if let Some(until) = shared.freeze.until() {
        sleep_until(until).await;
    }
    if let Some(methods) = wrong_method_allow(endpoint, request.method()) {
        let mut answer =
            error_response(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method; GET / lists them");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
        return Ok(answer);
    }
    Ok(match endpoint {
        TargetEndpoint::Products => products(&shared, request.uri()),
        TargetEndpoint::Product => json_or_not_found(shared.shop.product(argument), "no product has this id"),
        TargetEndpoint::Order => json_or_not_found(shared.shop.find_order(argument), "no order has this id"),
        TargetEndpoint::ShopHome => match parameter::<usize>(request.uri().query(), "page") {
            Ok(page) => html_or_not_found(shared.shop.page(page.unwrap_or(1)), pages::catalogue),
            Err(problem) => error_response(StatusCode::BAD_REQUEST, &problem),
        },
        TargetEndpoint::ShopProduct => html_or_not_found(shared.shop.product(argument), pages::product),
        TargetEndpoint::ShopOrders => submit_order(&shared, request).await,
        TargetEndpoint::ShopReceipt => html_or_not_found(shared.shop.find_order(argument), pages::receipt),
        TargetEndpoint::ShopAsset => asset(argument),
        TargetEndpoint::Health => ShopResponse::new(RepeatingBody::from("{\"status\":\"ok\"}")).with_json_type(),
        TargetEndpoint::Login => login(&shared, request).await,
        TargetEndpoint::Orders => create_order(&shared, request).await,
        TargetEndpoint::Delay => delay(argument).await,
        TargetEndpoint::RandomDelay => random_delay(request.uri()).await,
        TargetEndpoint::Fail => fail(request.uri()),
        TargetEndpoint::Bytes => filled_body(argument),
        TargetEndpoint::Echo => echo(request).await,
        TargetEndpoint::Redirect => redirect(argument),
        TargetEndpoint::Freeze => freeze(&shared, argument),
        TargetEndpoint::Index => ShopResponse::new(RepeatingBody::from(crate::endpoint_guide())),
        TargetEndpoint::Stats => ShopResponse::new(RepeatingBody::from(shared.stats.json())).with_json_type(),
        TargetEndpoint::Metrics => metrics(&shared),
        TargetEndpoint::Other => error_response(StatusCode::NOT_FOUND, "no such path; GET / lists them"),
    })
}

/// The allowed methods, if `method` is not one of them. Endpoints that only delay, fail or fill take every method.
fn wrong_method_allow(endpoint: TargetEndpoint, method: &Method) -> Option<&'static str> {
    match endpoint {
        TargetEndpoint::Login | TargetEndpoint::Orders | TargetEndpoint::ShopOrders => {
            (method != Method::POST).then_some("POST")
        }
        TargetEndpoint::Index
        | TargetEndpoint::Products
        | TargetEndpoint::Product
        | TargetEndpoint::Order
        | TargetEndpoint::ShopHome
        | TargetEndpoint::ShopProduct
        | TargetEndpoint::ShopReceipt
        | TargetEndpoint::ShopAsset
        | TargetEndpoint::Health
        | TargetEndpoint::Stats
        | TargetEndpoint::Metrics => (!matches!(*method, Method::GET | Method::HEAD)).then_some("GET, HEAD"),
        _ => None,
    }
}

trait WithJsonType {
    fn with_json_type(self) -> Self;
}

impl WithJsonType for ShopResponse {
    fn with_json_type(mut self) -> ShopResponse {
        self.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }
}

fn error_response(status: StatusCode, reason: &str) -> ShopResponse {
    let mut answer = ShopResponse::new(RepeatingBody::from(json!({ "error": reason }).to_string())).with_json_type();
    *answer.status_mut() = status;
    answer
}

fn json_or_not_found(body: Option<Bytes>, reason: &str) -> ShopResponse {
    match body {
        Some(body) => ShopResponse::new(RepeatingBody::from(body)).with_json_type(),
        None => error_response(StatusCode::NOT_FOUND, reason),
    }
}

fn html_or_not_found(json: Option<Bytes>, render: fn(&Value) -> String) -> ShopResponse {
    match json.and_then(|json| serde_json::from_slice(&json).ok()) {
        Some(content) => with_type(RepeatingBody::from(render(&content)), "text/html; charset=utf-8"),
        None => error_response(StatusCode::NOT_FOUND, "no such page; /shop is the catalogue"),
    }
}

fn asset(name: &str) -> ShopResponse {
    match pages::asset(name) {
        Some((kind, content)) => with_type(RepeatingBody::from(content), kind),
        None => error_response(StatusCode::NOT_FOUND, "the shop's pages load no such file"),
    }
}

fn with_type(body: RepeatingBody, kind: &'static str) -> ShopResponse {
    let mut answer = ShopResponse::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Takes the form of a product's page, and redirects to the page of the order.
async fn submit_order(shared: &TargetState, request: Request<Incoming>) -> ShopResponse {
    let body = match read_body(request).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let form = std::str::from_utf8(&body).ok();
    let number = |name| parameter::<u64>(form, name).ok().flatten();
    let order = json!({ "product_id": number("product_id"), "quantity": number("quantity").unwrap_or(1) });
    match shared.shop.place_order(order.to_string().as_bytes()) {
        Ok(order) => {
            let order: Value = serde_json::from_slice(&order).unwrap_or_default();
            let mut answer = ShopResponse::new(RepeatingBody::from(""));
            *answer.status_mut() = StatusCode::SEE_OTHER;
            let to = HeaderValue::try_from(format!("/shop/orders/{}", order["id"])).expect("a path of ASCII letters");
            answer.headers_mut().insert(header::LOCATION, to);
            answer
        }
        refused => shop_result_response(StatusCode::CREATED, refused),
    }
}

fn metrics(shared: &TargetState) -> ShopResponse {
    let mut answer = ShopResponse::new(RepeatingBody::from(shared.stats.prometheus()));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

fn products(shared: &TargetState, uri: &Uri) -> ShopResponse {
    match parameter::<usize>(uri.query(), "page") {
        Ok(page) => json_or_not_found(shared.shop.page(page.unwrap_or(1)), "the catalogue has no such page"),
        Err(problem) => error_response(StatusCode::BAD_REQUEST, &problem),
    }
}

async fn login(shared: &TargetState, request: Request<Incoming>) -> ShopResponse {
    match read_body(request).await {
        Ok(body) => shop_result_response(StatusCode::OK, shared.shop.login(&body)),
        Err(answer) => answer,
    }
}

async fn create_order(shared: &TargetState, request: Request<Incoming>) -> ShopResponse {
    if !shared.shop.is_valid_token(request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes)) {
        let mut answer =
            error_response(StatusCode::UNAUTHORIZED, "give the access_token of /auth/login as a bearer token");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    }
    match read_body(request).await {
        Ok(body) => shop_result_response(StatusCode::CREATED, shared.shop.place_order(&body)),
        Err(answer) => answer,
    }
}

fn shop_result_response(status: StatusCode, answer: Result<Bytes, ShopError>) -> ShopResponse {
    match answer {
        Ok(body) => {
            let mut answer = ShopResponse::new(RepeatingBody::from(body)).with_json_type();
            *answer.status_mut() = status;
            answer
        }
        Err(ShopError::Malformed(reason)) => error_response(StatusCode::BAD_REQUEST, reason),
        Err(ShopError::Unauthorized(reason)) => error_response(StatusCode::UNAUTHORIZED, reason),
    }
}

async fn read_body(request: Request<Incoming>) -> Result<Bytes, ShopResponse> {
    let body = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await;
    let refusal = || error_response(StatusCode::PAYLOAD_TOO_LARGE, "the body is incomplete or above 1 MiB");
    body.map(|body| body.to_bytes()).map_err(|_| refusal())
}

fn millis(text: &str) -> Option<Duration> {
    text.parse::<u64>().ok().filter(|ms| *ms <= MAX_DELAY_MS).map(Duration::from_millis)
}

fn bad_millis() -> ShopResponse {
    error_response(StatusCode::BAD_REQUEST, "give a number of milliseconds, at most 60000")
}

async fn delay(argument: &str) -> ShopResponse {
    match millis(argument) {
        Some(delay) => {
            sleep(delay).await;
            ShopResponse::new(RepeatingBody::from(format!("{{\"delay_ms\":{}}}", delay.as_millis()))).with_json_type()
        }
        None => bad_millis(),
    }
}

async fn random_delay(uri: &Uri) -> ShopResponse {
    let bounds = parameter::<u64>(uri.query(), "min").and_then(|min| Ok((min, parameter::<u64>(uri.query(), "max")?)));
    match bounds.map(|(min, max)| (min.unwrap_or(5), max.unwrap_or(50))) {
        Ok((min, max)) if min <= max && max <= MAX_DELAY_MS => delay(&fastrand::u64(min..=max).to_string()).await,
        _ => error_response(StatusCode::BAD_REQUEST, "give ?min=5&max=50 in milliseconds, at most 60000"),
    }
}

fn fail(uri: &Uri) -> ShopResponse {
    let rate = parameter::<f64>(uri.query(), "rate").map(|rate| rate.unwrap_or(1.0));
    let status = parameter::<u16>(uri.query(), "status").map(|status| status.unwrap_or(500));
    let status = status.ok().filter(|status| (400..600).contains(status)).map(StatusCode::from_u16);
    match (rate, status) {
        (Ok(rate @ 0.0..=1.0), Some(Ok(status))) => match fastrand::f64() < rate {
            true => error_response(status, "as asked for"),
            false => ShopResponse::new(RepeatingBody::from("{\"status\":\"ok\"}")).with_json_type(),
        },
        _ => error_response(
            StatusCode::BAD_REQUEST,
            "give ?rate=0.1&status=500: a share from 0 to 1, a status from 400 to 599",
        ),
    }
}

fn filled_body(argument: &str) -> ShopResponse {
    match argument.parse::<u64>() {
        Ok(length) if length <= MAX_RESPONSE_BYTES => ShopResponse::new(RepeatingBody::of_length(length)),
        _ => error_response(StatusCode::BAD_REQUEST, "give a number of bytes, at most 1 GiB"),
    }
}

async fn echo(request: Request<Incoming>) -> ShopResponse {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: serde_json::Map<_, _> =
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()).into())).collect();
    let (method, uri, version) = (request.method().to_string(), request.uri().clone(), request.version());
    match read_body(request).await {
        Ok(body) => {
            let (path, query, version) = (uri.path(), uri.query(), format!("{version:?}"));
            let echo = json!({ "method": method, "path": path, "query": query, "version": version,
                "headers": headers, "body": text(&body) });
            ShopResponse::new(RepeatingBody::from(echo.to_string())).with_json_type()
        }
        Err(answer) => answer,
    }
}

fn redirect(argument: &str) -> ShopResponse {
    let Ok(left @ 0..=100) = argument.parse::<u32>() else {
        return error_response(StatusCode::BAD_REQUEST, "give a number of redirects, at most 100");
    };
    let to = if left <= 1 { "/health".to_owned() } else { format!("/redirect/{}", left - 1) };
    let mut answer = ShopResponse::new(RepeatingBody::from(json!({ "location": to }).to_string())).with_json_type();
    *answer.status_mut() = StatusCode::FOUND;
    answer.headers_mut().insert(header::LOCATION, HeaderValue::try_from(to).expect("a path of ASCII letters"));
    answer
}

fn freeze(shared: &TargetState, argument: &str) -> ShopResponse {
    match millis(argument) {
        Some(length) => {
            shared.freeze.start(Instant::now() + length);
            ShopResponse::new(RepeatingBody::from(format!("{{\"frozen_ms\":{}}}", length.as_millis()))).with_json_type()
        }
        None => bad_millis(),
    }
}
