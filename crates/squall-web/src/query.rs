//! Parses query strings. An error names the parameter and the values that it takes.

use axum::extract::{Query, rejection::QueryRejection};

use crate::error::ApiError;

/// The decoder's messages about text that is not a number.
const NUMBER_ERRORS: [&str; 3] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
];

/// The query, or an error that names the wrong parameter.
pub(crate) fn parse_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::validation(explain_error(&error.body_text())))
}

fn explain_error(text: &str) -> String {
    let text = text.trim_start_matches("Failed to deserialize query string: ");
    NUMBER_ERRORS
        .into_iter()
        .fold(text.to_owned(), |text, theirs| text.replace(theirs, "give a whole number of 0 or more"))
}

/// `count` if it is within its limits.
pub(crate) fn check_count(count: usize, min: usize, max: usize) -> Result<usize, ApiError> {
    match (min..=max).contains(&count) {
        true => Ok(count),
        false => Err(ApiError::validation(format!("count: give a number from {min} to {max}"))),
    }
}
