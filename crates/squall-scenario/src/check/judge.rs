//! Judges one response by its checks. The first failing check decides the outcome.

use serde_json::Value;
use squall_http::HttpResponse;
use squall_metrics::{Outcome, OutcomeCategory, OutcomeCode};
use std::{borrow::Cow, time::Duration};

use super::{JsonCheck, JsonExpectation, ResponseChecks, TextCheck};
use crate::template::{RenderContext, RenderTemplateError, Template};

/// A response for checks and extractors. Its JSON is parsed at most once.
pub(crate) struct LazyJsonResponse<'r> {
    pub(crate) response: HttpResponse<'r>,
    json: Option<Result<Value, serde_json::Error>>,
}

impl<'r> LazyJsonResponse<'r> {
    pub(crate) fn new(response: HttpResponse<'r>) -> LazyJsonResponse<'r> {
        LazyJsonResponse { response, json: None }
    }

    /// The body as JSON.
    pub(crate) fn json(&mut self) -> Result<&Value, &serde_json::Error> {
        let body = self.response.body();
        self.json.get_or_insert_with(|| serde_json::from_slice(body)).as_ref()
    }
}

/// The outcome of a response, and a message if it failed.
#[derive(Debug, PartialEq)]
pub(crate) struct RequestVerdict {
    pub(crate) outcome: Outcome,
    pub(crate) note: Option<String>,
}

impl RequestVerdict {
    pub(crate) fn failed(code: &'static str, note: String) -> RequestVerdict {
        RequestVerdict { outcome: Outcome::new(OutcomeCategory::CheckFailed, code), note: Some(note) }
    }
}

impl ResponseChecks {
    pub(crate) fn judge(
        &self,
        lazy: &mut LazyJsonResponse<'_>,
        service: Duration,
        context: &mut RenderContext<'_>,
    ) -> Result<RequestVerdict, RenderTemplateError> {
        let status = lazy.response.status;
        if !self.accepts_status(status) {
            return Ok(self.unexpected_status(status));
        }
        for (name, check) in &self.headers {
            if let Some(note) = check_header(name, check, lazy, context)? {
                return Ok(RequestVerdict::failed("HEADER", note));
            }
        }
        for check in &self.body {
            if let Some(note) = check_body(check, lazy.response.body(), context)? {
                return Ok(RequestVerdict::failed("BODY", note));
            }
        }
        for check in &self.json {
            if let Some(note) = check_json(check, lazy, context)? {
                return Ok(RequestVerdict::failed("JSON", note));
            }
        }
        if let Some(max) = self.max_service_time.filter(|max| service > *max) {
            // Without the measured time, so that equal failures share one message.
            return Ok(RequestVerdict::failed(
                "MAX_MS",
                format!("expected at most {} ms, took longer", display_ms(max)),
            ));
        }
        Ok(RequestVerdict { outcome: self.passing_outcome(status), note: None })
    }

    /// The outcome of an accepted status, which may be 404.
    #[inline]
    pub(crate) fn passing_outcome(&self, status: u16) -> Outcome {
        Outcome { category: OutcomeCategory::Ok, code: OutcomeCode::Http(status) }
    }

    /// The outcome of a status that is not accepted.
    pub(crate) fn unexpected_status(&self, status: u16) -> RequestVerdict {
        if self.statuses.is_empty() {
            return RequestVerdict { outcome: Outcome::of_status(status), note: None };
        }
        let note = format!("expected status {}, got {status}", self.format_statuses());
        let outcome = if status >= 400 {
            Outcome::of_status(status)
        } else {
            Outcome::new(OutcomeCategory::CheckFailed, "STATUS")
        };
        RequestVerdict { outcome, note: Some(note) }
    }
}

fn check_header(
    name: &str,
    check: &TextCheck,
    lazy: &LazyJsonResponse<'_>,
    context: &mut RenderContext<'_>,
) -> Result<Option<String>, RenderTemplateError> {
    // A header can occur several times (Set-Cookie). One that passes is enough.
    let mut found =
        lazy.response.headers().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let holds = match check {
        TextCheck::Present(wanted) => *wanted == found.next().is_some(),
        TextCheck::Equals(wanted) => {
            let wanted = render(wanted, context)?;
            found.any(|found| *wanted == *found)
        }
        TextCheck::Contains(wanted) => {
            let wanted = render(wanted, context)?;
            found.any(|found| found.contains(&*wanted))
        }
        TextCheck::Matches(regex) => found.any(|found| regex.is_match(found.as_bytes())),
    };
    if holds {
        return Ok(None);
    }
    let found = lazy.response.header(name);
    let found = found.map_or("it is missing".to_owned(), |found| format!("got {:?}", truncate(found)));
    Ok(Some(format!("expected header {name} {}, {found}", describe_expectation(check, context)?)))
}

fn check_body(
    check: &TextCheck,
    found: &[u8],
    context: &mut RenderContext<'_>,
) -> Result<Option<String>, RenderTemplateError> {
    let holds = match check {
        TextCheck::Present(wanted) => *wanted != found.is_empty(),
        TextCheck::Equals(wanted) => render(wanted, context)?.as_bytes() == found,
        TextCheck::Contains(wanted) => contains(found, render(wanted, context)?.as_bytes()),
        TextCheck::Matches(regex) => regex.is_match(found),
    };
    if holds {
        return Ok(None);
    }
    let start = String::from_utf8_lossy(&found[..found.len().min(200)]);
    Ok(Some(format!("expected the body {}, got {:?}", describe_expectation(check, context)?, truncate(&start))))
}

fn check_json(
    check: &JsonCheck,
    lazy: &mut LazyJsonResponse<'_>,
    context: &mut RenderContext<'_>,
) -> Result<Option<String>, RenderTemplateError> {
    let json = match lazy.json() {
        Ok(json) => json,
        Err(error) => return Ok(Some(format!("expected JSON, got something else: {error}"))),
    };
    let nodes = check.path.query(json);
    let shown = &check.path_text;
    let wanted = match &check.expected {
        JsonExpectation::Present(wanted) => {
            let note = if *wanted { "to exist, it does not" } else { "not to exist, it does" };
            return Ok((*wanted == nodes.is_empty()).then(|| format!("expected {shown} {note}")));
        }
        JsonExpectation::Count(count) => {
            let note = || format!("expected {shown} to select {count}, got {}", nodes.len());
            return Ok((nodes.len() != *count).then(note));
        }
        JsonExpectation::EqualsConstant(value) => Cow::Borrowed(value),
        JsonExpectation::Equals(template) => {
            let text = render(template, context)?;
            Cow::Owned(serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned())))
        }
    };
    if nodes.is_empty() {
        return Ok(Some(format!("expected {shown} to be {wanted}, it does not exist")));
    }
    let other = nodes.iter().find(|found| !json_equal(found, &wanted));
    Ok(other.map(|found| format!("expected {shown} to be {wanted}, got {}", truncate(&found.to_string()))))
}

/// Whether two values are equal: `1` equals `1.0`, and the order of an object's members does not matter.
fn json_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (as_integer(a), as_integer(b)) {
            // Not as floats, for which 64-bit integers that differ by one can be equal.
            (Some(a), Some(b)) => a == b,
            _ => a == b || a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| json_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| json_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

fn as_integer(number: &serde_json::Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn describe_expectation(check: &TextCheck, context: &mut RenderContext<'_>) -> Result<String, RenderTemplateError> {
    Ok(match check {
        TextCheck::Equals(wanted) => format!("to be {:?}", truncate(&render(wanted, context)?)),
        TextCheck::Contains(wanted) => format!("to contain {:?}", truncate(&render(wanted, context)?)),
        TextCheck::Matches(regex) => format!("to match {}", truncate(regex.as_str())),
        TextCheck::Present(true) => "to be there".to_owned(),
        TextCheck::Present(false) => "not to be there".to_owned(),
    })
}

fn render<'t>(template: &'t Template, context: &mut RenderContext<'_>) -> Result<Cow<'t, str>, RenderTemplateError> {
    if let Some(text) = template.constant() {
        return Ok(Cow::Borrowed(text));
    }
    let mut text = String::new();
    template.render(context, &mut text)?;
    Ok(Cow::Owned(text))
}

fn contains(found: &[u8], wanted: &[u8]) -> bool {
    let Some(first) = wanted.first() else { return true };
    let last = found.len().saturating_sub(wanted.len() - 1);
    let mut at = 0;
    while let Some(next) = found[at.min(last)..last].iter().position(|byte| byte == first) {
        at += next;
        if found[at..].starts_with(wanted) {
            return true;
        }
        at += 1;
    }
    false
}

/// Milliseconds with as many decimals as needed: a limit of 0.001 must not look like 0.
fn display_ms(max: Duration) -> f64 {
    (max.as_secs_f64() * 1e9).round() / 1e6
}

/// Shortens a text for a message.
fn truncate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(80) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn contains_agrees_with_windows(found in "[ab]{0,12}", wanted in "[ab]{1,4}") {
            let expected = found.as_bytes().windows(wanted.len()).any(|window| window == wanted.as_bytes());
            prop_assert_eq!(contains(found.as_bytes(), wanted.as_bytes()), expected);
        }
    }

    /// All functions of RFC 9535, including those with patterns.
    #[test]
    fn json_path_supports_match_and_search() {
        let json: Value = serde_json::from_str(r#"[{"n":"a"},{"n":"ba"},{"n":"c"}]"#).unwrap();
        let count = |path: &str| serde_json_path::JsonPath::parse(path).expect(path).query(&json).len();
        assert_eq!(count(r#"$[?match(@.n, "a")]"#), 1);
        assert_eq!(count(r#"$[?search(@.n, "a")]"#), 2);
        assert_eq!(count("$[?length(@.n) == 2]"), 1);
        assert_eq!(count("$[?count(@.*) == 1]"), 3);
        assert_eq!(count(r#"$[?value(@.n) == "c"]"#), 1);
    }

    #[test]
    fn json_equality_ignores_number_notation_and_member_order() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert!(json_equal(&value("1"), &value("1.0")));
        assert!(json_equal(&value(r#"{"a":1,"b":[2]}"#), &value(r#"{"b":[2.0],"a":1}"#)));
        assert!(!json_equal(&value("\"1\""), &value("1")));
        assert!(!json_equal(&value("[1]"), &value("[1,2]")));
        assert!(!json_equal(&value("9007199254740993"), &value("9007199254740992")), "as floats they would be equal");
        assert!(!json_equal(&value("18446744073709551615"), &value("18446744073709551614")));
    }
}
