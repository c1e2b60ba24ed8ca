//! Errors of the API: `{"error": {"code", "message", "details"}}` with the codes of vikhry.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use squall_coord::StoreError;
use squall_model::{RunChangeError, error_chain};
use squall_orchestrator::FleetError;

/// The error response to a request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Value,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), details: json!({}) }
    }

    pub(crate) fn with_details(mut self, details: Value) -> ApiError {
        self.details = details;
        self
    }

    /// A body or query of the wrong shape.
    pub(crate) fn validation(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "validation_error", shorten(&message.into()))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// `expected` is one state, or several separated by ` or `.
    pub(crate) fn invalid_state(action: &str, current: &str, expected: &str) -> ApiError {
        let message = match current {
            "IDLE" => format!("cannot {action}: no test is running"),
            _ => format!("cannot {action} while the fleet is {current}; it must be {expected}"),
        };
        ApiError::new(StatusCode::CONFLICT, "invalid_state", message).with_details(json!({
            "action": vikhry_action(action),
            "current": current,
            "expected": expected.split(" or ").collect::<Vec<_>>(),
        }))
    }

    pub(crate) fn unauthorized(message: &str) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }
}

/// Shortens a message that repeats the request, which may be megabytes long. It keeps the
/// beginning, which names the field, and the end, which gives the expected value.
pub(crate) fn shorten(message: &str) -> String {
    const KEPT: usize = 150;
    let Some((begin, _)) = message.char_indices().nth(KEPT) else { return message.to_owned() };
    let Some((end, _)) = message.char_indices().rev().nth(KEPT - 1) else { return message.to_owned() };
    if end <= begin { message.to_owned() } else { format!("{} … {}", &message[..begin], &message[end..]) }
}

/// vikhry's name of the action, if it has one.
fn vikhry_action(action: &str) -> &str {
    match action {
        "start a test" => "start_test",
        "change users" | "change the load" => "change_users",
        "stop" => "stop_test",
        other => other,
    }
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> ApiError {
        match error {
            FleetError::InvalidState { action, current, expected } => {
                ApiError::invalid_state(action, current.name(), expected)
            }
            FleetError::NoWorkers
            | FleetError::WorkersOfOtherProtocol { .. }
            | FleetError::OnlyVikhryWorkers { .. } => {
                ApiError::new(StatusCode::CONFLICT, "no_alive_workers", error.to_string())
            }
            FleetError::RunChange(change) => {
                let (action, current, expected) = match change {
                    RunChangeError::PausedAlready => ("pause", "PAUSED", "RUNNING"),
                    RunChangeError::NotPaused => ("resume", "RUNNING", "PAUSED"),
                    RunChangeError::Paused => ("change_users", "PAUSED", "RUNNING"),
                    RunChangeError::MultipleScenarios | RunChangeError::Profile(_) => {
                        ("change_users", "RUNNING", "RUNNING")
                    }
                };
                ApiError::new(StatusCode::CONFLICT, "invalid_state", change.to_string())
                    .with_details(json!({"action": action, "current": current, "expected": [expected]}))
            }
            FleetError::UnknownWorker { .. } => ApiError::not_found(error.to_string()),
            FleetError::CannotDrain { .. } | FleetError::TooManyNotes { .. } => {
                ApiError::new(StatusCode::CONFLICT, "invalid_state", error.to_string())
            }
            FleetError::LevelOutOfRange { .. }
            | FleetError::RecordNotWritable
            | FleetError::BundleUnreadable(_)
            | FleetError::RunSpecUnreadable(_)
            | FleetError::ResultUnreadable { .. } => ApiError::bad_request(error.to_string()),
            FleetError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let text = error_chain(&error);
        tracing::warn!(error = text, "the store failed during a request");
        match error {
            StoreError::Unreachable(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unreachable", text),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", text),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message, "details": self.details}});
        let mut response = json_response(self.status, &body);
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The result of every handler.
pub(crate) type ApiResult = Result<Response, ApiError>;

/// 200 with a body.
pub(crate) fn json_ok(body: &impl serde::Serialize) -> Response {
    json_response(StatusCode::OK, body)
}

pub(crate) fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response {
    let text = serde_json::to_vec(body).expect("every response body has a JSON form");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
