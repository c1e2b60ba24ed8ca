//! Reads the queries of requests and says what is wrong with one: which parameter, and what it takes.

use axum::extract::{Query, rejection::QueryRejection};

use crate::error::ApiError;

/// What the decoder says of a number that is none.
const NUMBER_ERRORS: [&str; 3] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    "number too large to fit in target type",
];

/// The query, or which parameter is wrong.
pub(crate) fn parse_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::validation(explain_error(&error.body_text())))
}

fn explain_error(text: &str) -> String {
    let text = text.trim_start_matches("Failed to deserialize query string: ");
    NUMBER_ERRORS
        .into_iter()
        .fold(text.to_owned(), |text, theirs| text.replace(theirs, "give a whole number of 0 or more"))
}

/// `count`, if it is within its limits.
pub(crate) fn check_count(count: usize, least: usize, most: usize) -> Result<usize, ApiError> {
    match (least..=most).contains(&count) {
        true => Ok(count),
        false => Err(ApiError::validation(format!("count: give a number from {least} to {most}"))),
    }
}
