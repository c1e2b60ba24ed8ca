//! Reads the bodies of requests, with a limit and a deadline. What may be in them is `inputs`' business.

use axum::body::Body;
use http::StatusCode;
use std::time::Duration;

use crate::{
    error::ApiError,
    inputs::{BadBody, Input, parse},
};

/// A body must be in by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a body of type `T`.
pub(crate) async fn read<T: Input>(body: Body) -> Result<T, ApiError> {
    let reading = axum::body::to_bytes(body, T::LIMIT);
    let bytes = match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(unreadable::<T>(&error)),
        Err(_) => {
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "bad_request", "the body did not come in time"));
        }
    };
    parse(&bytes).map_err(ApiError::from)
}

impl From<BadBody> for ApiError {
    fn from(error: BadBody) -> ApiError {
        let code = match error {
            BadBody::NotJson(_) | BadBody::NotAnObject => "invalid_json",
            BadBody::Invalid(_) => "validation_error",
        };
        ApiError::new(StatusCode::BAD_REQUEST, code, error.to_string())
    }
}

fn unreadable<T: Input>(error: &axum::Error) -> ApiError {
    let too_long = std::iter::successors(std::error::Error::source(error), |cause| cause.source())
        .any(|cause| cause.is::<http_body_util::LengthLimitError>());
    match too_long {
        true => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("the body is longer than {} bytes", T::LIMIT),
        ),
        false => ApiError::bad_request("the body was cut off"),
    }
}
