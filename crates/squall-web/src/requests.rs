//! The request bodies of the API as types, decoded strictly and with limits. Unknown fields are
//! rejected, because a misspelled option of a load test would give a wrong result. The module reads
//! no socket, so that the fuzzer can pass it arbitrary bytes.

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use squall_model::Bundle;
use std::collections::BTreeMap;

/// Limit of all bodies except bundles.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Limit of a bundle: a scenario with its files.
const BUNDLE_BODY_BYTES: usize = 16 << 20;

/// First byte of a JSON object.
const OBJECT_START: u8 = b'{';

/// Why a body is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiBodyError {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body must be an object")]
    NotAnObject,
    #[error("{field}: {value} is more than {max}")]
    AboveMaximum { field: &'static str, value: u64, max: u64 },
    #[error("rate: give a number of 0 or more")]
    InvalidRate,
    /// A field is missing, unknown or has the wrong type.
    #[error("{0}")]
    Invalid(String),
}

/// Maximum number of users in one request.
pub const MAX_USERS: u64 = 1_000_000;
const MAX_INTERVAL_MS: u64 = 60_000;
/// Maximum number of resources that one request may add to a pool.
const MAX_RESOURCES: u64 = 100_000;
/// A note stands beside a chart and in the report.
const MAX_NOTE_CHARS: u64 = 500;

/// A request body with its limits.
pub(crate) trait ApiRequestBody: DeserializeOwned {
    const MAX_BYTES: usize = SMALL_BODY_BYTES;
    /// Whether an empty body means `{}`.
    const OPTIONAL: bool = false;

    /// Checks the limits that the types do not express.
    fn check(&self) -> Result<(), ApiBodyError> {
        Ok(())
    }
}

/// Decodes a body of type `T`.
pub(crate) fn parse_body<T: ApiRequestBody>(bytes: &[u8]) -> Result<T, ApiBodyError> {
    let bytes = if T::OPTIONAL && bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| ApiBodyError::NotJson(error.to_string()))?;
    // Serde would also accept a list with the fields in order, which no reader could understand.
    if bytes.trim_ascii_start().first() != Some(&OBJECT_START) {
        return Err(ApiBodyError::NotAnObject);
    }
    let body: T =
        serde_json::from_slice(bytes).map_err(|error| ApiBodyError::Invalid(explain_error::<T>(bytes, &error)))?;
    body.check()?;
    Ok(body)
}

/// The decoder's words for an expected type, and ours.
const EXPECTED_TYPES: [(&str, &str); 4] = [
    ("expected u64", "give a whole number of 0 or more"),
    ("expected f64", "give a number"),
    ("expected a boolean", "give true or false"),
    ("expected a map", "give an object"),
];

/// The error in a body that is a JSON object: the field and the type that it takes.
fn explain_error<T: ApiRequestBody>(bytes: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let text = EXPECTED_TYPES.into_iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    let names_field = ["missing field", "unknown field", "duplicate field"].iter().any(|start| text.starts_with(start));
    match find_wrong_field::<T>(bytes) {
        Some(name) if !names_field => format!("{name}: {text}"),
        _ => text,
    }
}

/// The field whose removal changes the decoder's error. The decoder does not name the field of a
/// wrong type.
fn find_wrong_field<T: ApiRequestBody>(bytes: &[u8]) -> Option<String> {
    let Ok(Value::Object(body)) = serde_json::from_slice(bytes) else { return None };
    let decode_error = |fields: &Map<String, Value>| T::deserialize(fields).err().map(|error| error.to_string());
    let error = decode_error(&body);
    let changes_error = |name: &&String| {
        let mut others = body.clone();
        others.remove(*name);
        decode_error(&others) != error
    };
    body.keys().find(changes_error).cloned()
}

/// `POST /start_test`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartTestRequest {
    #[serde(alias = "users")]
    pub(crate) target_users: u64,
    #[serde(default, alias = "params")]
    pub(crate) init_params: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) spawn_interval_ms: u64,
}

impl ApiRequestBody for StartTestRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        check_users("target_users", self.target_users)?;
        check_interval(self.spawn_interval_ms)
    }
}

/// `POST /change_users`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeUsersRequest {
    #[serde(alias = "users")]
    pub(crate) target_users: u64,
    #[serde(default)]
    pub(crate) spawn_interval_ms: u64,
}

impl ApiRequestBody for ChangeUsersRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        check_users("target_users", self.target_users)?;
        check_interval(self.spawn_interval_ms)
    }
}

/// A body without fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyRequest {}

impl ApiRequestBody for EmptyRequest {
    const OPTIONAL: bool = true;
}

/// `POST /api/v1/sign-in`. It has no `Debug`, so that the token cannot be logged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInRequest {
    pub(crate) token: String,
}

impl ApiRequestBody for SignInRequest {}

/// `POST /api/v1/runs/{id}/note`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunNoteRequest {
    /// An empty note removes the run's note.
    pub(crate) note: String,
}

impl ApiRequestBody for RunNoteRequest {}

/// `POST /create_resource` and `/ensure_resource`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FillPoolRequest {
    #[serde(alias = "resource_name")]
    pub(crate) name: String,
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) payload: Map<String, Value>,
}

impl ApiRequestBody for FillPoolRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        check_maximum("count", self.count, MAX_RESOURCES)
    }
}

/// `POST /api/v1/tests`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTestRequest {
    pub(crate) bundle: Bundle,
    #[serde(default)]
    pub(crate) params: BTreeMap<String, Value>,
}

impl ApiRequestBody for CreateTestRequest {
    const MAX_BYTES: usize = BUNDLE_BODY_BYTES;
}

/// `POST /api/v1/tests/current/stop`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopTestRequest {
    #[serde(default)]
    pub(crate) abort: bool,
}

impl ApiRequestBody for StopTestRequest {
    const OPTIONAL: bool = true;
}

/// `POST /api/v1/streams/{processor}/partitions/{partition}/release`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleasePartitionRequest {
    /// Acknowledge the events that failed instead of processing them again.
    #[serde(default)]
    pub(crate) skip: bool,
}

impl ApiRequestBody for ReleasePartitionRequest {
    const OPTIONAL: bool = true;
}

/// `POST /api/v1/tests/current/scale`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScaleUsersRequest {
    pub(crate) users: u64,
}

impl ApiRequestBody for ScaleUsersRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        check_users("users", self.users)
    }
}

/// `POST /api/v1/tests/current/rate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeRateRequest {
    /// Starts per second.
    pub(crate) rate: f64,
}

impl ApiRequestBody for ChangeRateRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        match self.rate.is_finite() && self.rate >= 0.0 {
            true => Ok(()),
            false => Err(ApiBodyError::InvalidRate),
        }
    }
}

/// `POST /api/v1/tests/current/notes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddNoteRequest {
    pub(crate) text: String,
    /// Seconds from the start of the run; now without it.
    #[serde(default)]
    pub(crate) t_s: Option<f64>,
}

impl ApiRequestBody for AddNoteRequest {
    fn check(&self) -> Result<(), ApiBodyError> {
        if self.text.trim().is_empty() {
            return Err(ApiBodyError::Invalid("text: give at least one character".to_owned()));
        }
        check_maximum("the length of text", self.text.chars().count() as u64, MAX_NOTE_CHARS)
    }
}

fn check_users(field: &'static str, users: u64) -> Result<(), ApiBodyError> {
    check_maximum(field, users, MAX_USERS)
}

fn check_interval(ms: u64) -> Result<(), ApiBodyError> {
    check_maximum("spawn_interval_ms", ms, MAX_INTERVAL_MS)
}

fn check_maximum(field: &'static str, value: u64, max: u64) -> Result<(), ApiBodyError> {
    if value > max { Err(ApiBodyError::AboveMaximum { field, value, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `bytes` as every type of body.
    fn parse_all(bytes: &[u8]) {
        let _ = parse_body::<StartTestRequest>(bytes);
        let _ = parse_body::<ChangeUsersRequest>(bytes);
        let _ = parse_body::<EmptyRequest>(bytes);
        let _ = parse_body::<SignInRequest>(bytes);
        let _ = parse_body::<FillPoolRequest>(bytes);
        let _ = parse_body::<CreateTestRequest>(bytes);
        let _ = parse_body::<StopTestRequest>(bytes);
        let _ = parse_body::<ScaleUsersRequest>(bytes);
        let _ = parse_body::<ChangeRateRequest>(bytes);
        let _ = parse_body::<AddNoteRequest>(bytes);
        let _ = parse_body::<ReleasePartitionRequest>(bytes);
        let _ = parse_body::<crate::StartOrder>(bytes);
    }

    #[test]
    fn body_error_names_the_field_and_the_expected_type() {
        let error = |body: &str| parse_body::<StartTestRequest>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(r#"{"users": "1"}"#), "users: invalid type: string \"1\", give a whole number of 0 or more");
        assert_eq!(
            error(r#"{"users": 1, "spawn_interval_ms": null}"#),
            "spawn_interval_ms: invalid type: null, give a whole number of 0 or more"
        );
        assert_eq!(error(r#"{"users": 1, "params": 7}"#), "params: invalid type: integer `7`, give an object");
        assert_eq!(error("{}"), "missing field `target_users`");
        let error = parse_body::<ScaleUsersRequest>(br#"{"users": 1000001}"#).unwrap_err().to_string();
        assert_eq!(error, "users: 1000001 is more than 1000000");
        let error = parse_body::<StopTestRequest>(br#"{"abort": "yes"}"#).unwrap_err().to_string();
        assert_eq!(error, "abort: invalid type: string \"yes\", give true or false");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_all(&bytes);
        }

        #[test]
        fn malformed_json_with_known_fields_does_not_panic(
            text in r#"([\[{]{0,3}"(users|target_users|init_params|params|count|name|payload|rate|abort|bundle)": ?(-?[0-9]{1,25}(\.[0-9]{1,3})?(e[0-9]{1,4})?|null|true|"[^"]{0,9}"|\{\}|\[\]),? ?){0,4}[}\]]{0,3}"#
        ) {
            parse_all(text.as_bytes());
        }

        #[test]
        fn values_within_their_limits_are_accepted(users in 0..=MAX_USERS, interval in 0..=MAX_INTERVAL_MS) {
            let body = format!(r#"{{"users": {users}, "spawn_interval_ms": {interval}}}"#);
            let body: StartTestRequest = parse_body(body.as_bytes()).unwrap();
            prop_assert_eq!((body.target_users, body.spawn_interval_ms), (users, interval));
        }
    }
}
