//! The bodies that the API takes, as types: decoded strictly, with limits. Unknown fields are refused, because a typing error in a load test
//! is a wrong result. Reads no socket, so that any bytes can be tried on it.

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use squall_model::Bundle;
use std::collections::BTreeMap;

/// For everything but bundles.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// For a scenario with its files.
const BUNDLE_BODY_BYTES: usize = 16 << 20;

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiBodyError {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body must be an object")]
    NotAnObject,
    #[error("{0}")]
    Invalid(String),
}

/// Most users that one request may ask for.
pub const MAX_USERS: u64 = 1_000_000;
const MAX_INTERVAL_MS: u64 = 60_000;
/// Most things that one request may put into a pool.
const MAX_RESOURCES: u64 = 100_000;

/// A body that knows what is allowed in it.
pub(crate) trait ApiRequestBody: DeserializeOwned {
    const MAX_BYTES: usize = SMALL_BODY_BYTES;
    /// Whether no body at all is the same as `{}`.
    const OPTIONAL: bool = false;

    /// What the types cannot say.
    fn check(&self) -> Result<(), ApiBodyError> {
        Ok(())
    }
}

/// Decodes a body of type `T`.
pub(crate) fn parse_body<T: ApiRequestBody>(bytes: &[u8]) -> Result<T, ApiBodyError> {
    let bytes = if T::OPTIONAL && bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| ApiBodyError::NotJson(error.to_string()))?;
    // A list in the order of the fields would do otherwise, and nobody could read it.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(ApiBodyError::NotAnObject);
    }
    let body: T =
        serde_json::from_slice(bytes).map_err(|error| ApiBodyError::Invalid(explain_error::<T>(bytes, &error)))?;
    body.check()?;
    Ok(body)
}

/// What is wrong with a body that is an object, with the field and what it takes instead of what the decoder calls it.
fn explain_error<T: ApiRequestBody>(bytes: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let text = [("expected u64", "give a whole number of 0 or more"), ("expected f64", "give a number")]
        .into_iter()
        .chain([("expected a boolean", "give true or false"), ("expected a map", "give an object")])
        .fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    if text.starts_with("missing field") || text.starts_with("unknown field") || text.starts_with("duplicate field") {
        return text;
    }
    // The decoder does not say where: it is the field without which it finds nothing wrong, or something else.
    let Ok(Value::Object(whole)) = serde_json::from_slice(bytes) else { return text };
    let complaint = |fields: &Map<String, Value>| T::deserialize(fields).err().map(|error| error.to_string());
    let first = complaint(&whole);
    let mut names = whole.keys().filter(|name| {
        let mut others = whole.clone();
        others.remove(*name);
        complaint(&others) != first
    });
    match names.next() {
        Some(name) => format!("{name}: {text}"),
        None => text,
    }
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
        match self.count > MAX_RESOURCES {
            true => Err(ApiBodyError::Invalid(format!("count: {} is more than {MAX_RESOURCES}", self.count))),
            false => Ok(()),
        }
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
            false => Err(ApiBodyError::Invalid("rate: give a number of 0 or more".to_owned())),
        }
    }
}

fn check_users(field: &str, users: u64) -> Result<(), ApiBodyError> {
    match users > MAX_USERS {
        true => Err(ApiBodyError::Invalid(format!("{field}: {users} is more than {MAX_USERS}"))),
        false => Ok(()),
    }
}

fn check_interval(ms: u64) -> Result<(), ApiBodyError> {
    match ms > MAX_INTERVAL_MS {
        true => Err(ApiBodyError::Invalid(format!("spawn_interval_ms: {ms} is more than {MAX_INTERVAL_MS}"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `bytes` as every body there is.
    fn parse_all(bytes: &[u8]) {
        let _ = parse_body::<StartTestRequest>(bytes);
        let _ = parse_body::<ChangeUsersRequest>(bytes);
        let _ = parse_body::<EmptyRequest>(bytes);
        let _ = parse_body::<FillPoolRequest>(bytes);
        let _ = parse_body::<CreateTestRequest>(bytes);
        let _ = parse_body::<StopTestRequest>(bytes);
        let _ = parse_body::<ScaleUsersRequest>(bytes);
        let _ = parse_body::<ChangeRateRequest>(bytes);
    }

    #[test]
    fn refusals_name_the_field_and_what_it_takes() {
        let said = |body: &str| parse_body::<StartTestRequest>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(said(r#"{"users": "1"}"#), "users: invalid type: string \"1\", give a whole number of 0 or more");
        assert_eq!(
            said(r#"{"users": 1, "spawn_interval_ms": null}"#),
            "spawn_interval_ms: invalid type: null, give a whole number of 0 or more"
        );
        assert_eq!(said(r#"{"users": 1, "params": 7}"#), "params: invalid type: integer `7`, give an object");
        assert_eq!(said("{}"), "missing field `target_users`");
        let said = parse_body::<ScaleUsersRequest>(br#"{"users": 1000001}"#).unwrap_err().to_string();
        assert_eq!(said, "users: 1000001 is more than 1000000");
        let said = parse_body::<StopTestRequest>(br#"{"abort": "yes"}"#).unwrap_err().to_string();
        assert_eq!(said, "abort: invalid type: string \"yes\", give true or false");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_all(&bytes);
        }

        #[test]
        fn no_text_with_the_right_words_makes_it_panic(
            text in r#"([\[{]{0,3}"(users|target_users|init_params|params|count|name|payload|rate|abort|bundle)": ?(-?[0-9]{1,25}(\.[0-9]{1,3})?(e[0-9]{1,4})?|null|true|"[^"]{0,9}"|\{\}|\[\]),? ?){0,4}[}\]]{0,3}"#
        ) {
            parse_all(text.as_bytes());
        }

        #[test]
        fn what_is_within_its_limits_is_taken(users in 0..=MAX_USERS, interval in 0..=MAX_INTERVAL_MS) {
            let body = format!(r#"{{"users": {users}, "spawn_interval_ms": {interval}}}"#);
            let body: StartTestRequest = parse_body(body.as_bytes()).unwrap();
            prop_assert_eq!((body.target_users, body.spawn_interval_ms), (users, interval));
        }
    }
}
