//! Reads the named parts of a path. In place of axum's extractor, whose refusal is plain text: clients of
//! the API expect every error as JSON.

use axum::extract::{FromRequestParts, rejection::PathRejection};
use http::request::Parts;

use crate::error::ApiError;

/// The named parts of a path, percent-decoded.
pub(crate) struct Path<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    axum::extract::Path<T>: FromRequestParts<S, Rejection = PathRejection>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Path(path)).map_err(|error| ApiError::bad_request(error.body_text()))
    }
}
