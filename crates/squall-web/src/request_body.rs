//! Reads request bodies with a size limit and a deadline. `requests.rs` defines and decodes their
//! contents.

use axum::body::{Body, HttpBody};
use http::StatusCode;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::timeout;

use crate::{
    error::ApiError,
    requests::{ApiBodyError, ApiRequestBody, parse_body},
};

/// A body must arrive within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Many clients read the response only after they have sent the whole body, so the server reads and
/// discards an oversized body up to this size. A client that announces more gets the response at
/// once.
const MAX_DISCARDED_BYTES: u64 = 64 << 20;

/// Reads a body of type `T`.
pub(crate) async fn read_body<T: ApiRequestBody>(body: Body) -> Result<T, ApiError> {
    let announced = body.size_hint().lower();
    if announced > T::MAX_BYTES as u64 {
        if announced <= MAX_DISCARDED_BYTES {
            // A client that stalls gets the same error after the timeout.
            let _ = timeout(BODY_TIMEOUT, discard(body)).await;
        }
        return Err(too_large::<T>());
    }
    let reading = axum::body::to_bytes(body, T::MAX_BYTES);
    let bytes = match timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(unreadable::<T>(&error)),
        Err(_) => {
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time"));
        }
    };
    parse_body(&bytes).map_err(ApiError::from)
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

impl From<ApiBodyError> for ApiError {
    fn from(error: ApiBodyError) -> ApiError {
        match error {
            ApiBodyError::NotJson(_) | ApiBodyError::NotAnObject => {
                ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", error.to_string())
            }
            ApiBodyError::AboveMaximum { .. } | ApiBodyError::InvalidRate | ApiBodyError::Invalid(_) => {
                ApiError::validation(error.to_string())
            }
        }
    }
}

fn unreadable<T: ApiRequestBody>(error: &axum::Error) -> ApiError {
    let too_long = std::iter::successors(std::error::Error::source(error), |cause| cause.source())
        .any(|cause| cause.is::<http_body_util::LengthLimitError>());
    if too_long { too_large::<T>() } else { ApiError::bad_request("the body was cut off") }
}

fn too_large<T: ApiRequestBody>() -> ApiError {
    let text = format!("the body is longer than {} bytes", T::MAX_BYTES);
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::EmptyRequest;
    use axum::response::IntoResponse;
    use bytes::Bytes;
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    /// A body that never arrives.
    struct StalledBody;

    impl HttpBody for StalledBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_body_times_out_with_408() {
        let response = read_body::<EmptyRequest>(Body::new(StalledBody)).await.unwrap_err().into_response();
        assert_eq!(response.status(), 408);
        let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        assert!(body.starts_with(br#"{"error":{"code":"timeout","#), "{body:?}");
    }
}
