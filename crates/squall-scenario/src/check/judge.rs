//! Holds one response against its expectations. The first that fails decides the outcome.

use serde_json::Value;
use squall_http::HttpResponse;
use squall_metrics::{OutcomeCategory, OutcomeCode, Outcome};
use std::{borrow::Cow, time::Duration};

use super::{Checks, JsonCheck, TextCheck, Wanted};
use crate::template::{Context, Template, Unset};

/// A response as checks and extractors see it; its JSON is read at most once.
pub(crate) struct Answer<'r> {
    pub(crate) response: HttpResponse<'r>,
    json: Option<Result<Value, String>>,
}

impl<'r> Answer<'r> {
    pub(crate) fn new(response: HttpResponse<'r>) -> Answer<'r> {
        Answer { response, json: None }
    }

    /// The body as JSON, or why it is none.
    pub(crate) fn json(&mut self) -> Result<&Value, &str> {
        let body = self.response.body();
        let read = || serde_json::from_slice(body).map_err(|error| error.to_string());
        self.json.get_or_insert_with(read).as_ref().map_err(String::as_str)
    }
}

/// How a response was judged, and why in words if it failed.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) note: Option<String>,
}

impl Verdict {
    pub(crate) fn failed(code: &'static str, note: String) -> Verdict {
        Verdict { outcome: Outcome::new(OutcomeCategory::CheckFailed, code), note: Some(note) }
    }
}

impl Checks {
    pub(crate) fn judge(
        &self,
        answer: &mut Answer<'_>,
        service: Duration,
        context: &mut Context<'_>,
    ) -> Result<Verdict, Unset> {
        let status = answer.response.status;
        if !self.accepts(status) {
            return Ok(self.refused(status));
        }
        for (name, check) in &self.headers {
            if let Some(note) = header(name, check, answer, context)? {
                return Ok(Verdict::failed("HEADER", note));
            }
        }
        for check in &self.body {
            if let Some(note) = body(check, answer.response.body(), context)? {
                return Ok(Verdict::failed("BODY", note));
            }
        }
        for check in &self.json {
            if let Some(note) = json(check, answer, context)? {
                return Ok(Verdict::failed("JSON", note));
            }
        }
        if let Some(max) = self.max.filter(|max| service > *max) {
            // The time itself is in the histogram; without it equal failures are one note.
            return Ok(Verdict::failed("MAX_MS", format!("expected at most {} ms, took longer", shown_ms(max))));
        }
        Ok(Verdict { outcome: self.passing(status), note: None })
    }

    /// The outcome of a status that is as it should be, even if it is 404.
    #[inline]
    pub(crate) fn passing(&self, status: u16) -> Outcome {
        Outcome { category: OutcomeCategory::Ok, code: OutcomeCode::Http(status) }
    }

    /// The outcome of a status that is not accepted.
    pub(crate) fn refused(&self, status: u16) -> Verdict {
        if self.statuses.is_empty() {
            return Verdict { outcome: Outcome::of_status(status), note: None };
        }
        let note = format!("expected status {}, got {status}", self.statuses_shown());
        let outcome =
            if status >= 400 { Outcome::of_status(status) } else { Outcome::new(OutcomeCategory::CheckFailed, "STATUS") };
        Verdict { outcome, note: Some(note) }
    }
}

fn header(
    name: &str,
    check: &TextCheck,
    answer: &Answer<'_>,
    context: &mut Context<'_>,
) -> Result<Option<String>, Unset> {
    // A name can stand in several lines (Set-Cookie); one that is as it should be is enough.
    let mut found =
        answer.response.headers().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let holds = match check {
        TextCheck::Present(wanted) => *wanted == found.next().is_some(),
        TextCheck::Equals(wanted) => {
            let wanted = rendered(wanted, context)?;
            found.any(|found| *wanted == *found)
        }
        TextCheck::Contains(wanted) => {
            let wanted = rendered(wanted, context)?;
            found.any(|found| found.contains(&*wanted))
        }
        TextCheck::Matches(regex) => found.any(|found| regex.is_match(found.as_bytes())),
    };
    if holds {
        return Ok(None);
    }
    let found = answer.response.header(name);
    let found = found.map_or("it is missing".to_owned(), |found| format!("got {:?}", cut(found)));
    Ok(Some(format!("expected header {name} {}, {found}", wish(check, context)?)))
}

fn body(check: &TextCheck, found: &[u8], context: &mut Context<'_>) -> Result<Option<String>, Unset> {
    let holds = match check {
        TextCheck::Present(wanted) => *wanted != found.is_empty(),
        TextCheck::Equals(wanted) => rendered(wanted, context)?.as_bytes() == found,
        TextCheck::Contains(wanted) => contains(found, rendered(wanted, context)?.as_bytes()),
        TextCheck::Matches(regex) => regex.is_match(found),
    };
    if holds {
        return Ok(None);
    }
    let start = String::from_utf8_lossy(&found[..found.len().min(200)]);
    Ok(Some(format!("expected the body {}, got {:?}", wish(check, context)?, cut(&start))))
}

fn json(check: &JsonCheck, answer: &mut Answer<'_>, context: &mut Context<'_>) -> Result<Option<String>, Unset> {
    let json = match answer.json() {
        Ok(json) => json,
        Err(error) => return Ok(Some(format!("expected JSON, got something else: {error}"))),
    };
    let nodes = check.path.query(json);
    let shown = &check.shown;
    let wanted = match &check.wanted {
        Wanted::Present(wanted) => {
            let note = if *wanted { "to exist, it does not" } else { "not to exist, it does" };
            return Ok((*wanted == nodes.is_empty()).then(|| format!("expected {shown} {note}")));
        }
        Wanted::Count(count) => {
            let note = || format!("expected {shown} to select {count}, got {}", nodes.len());
            return Ok((nodes.len() != *count).then(note));
        }
        Wanted::EqualsConstant(value) => Cow::Borrowed(value),
        Wanted::Equals(template) => {
            let text = rendered(template, context)?;
            Cow::Owned(serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned())))
        }
    };
    if nodes.is_empty() {
        return Ok(Some(format!("expected {shown} to be {wanted}, it does not exist")));
    }
    let other = nodes.iter().find(|found| !same(found, &wanted));
    Ok(other.map(|found| format!("expected {shown} to be {wanted}, got {}", cut(&found.to_string()))))
}

/// Equal as people see it: `1` is `1.0`, and the order of an object's members does not matter.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (whole(a), whole(b)) {
            // Not as floats: numbers of 64 bits that differ by one would be the same.
            (Some(a), Some(b)) => a == b,
            _ => a == b || a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn whole(number: &serde_json::Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn wish(check: &TextCheck, context: &mut Context<'_>) -> Result<String, Unset> {
    Ok(match check {
        TextCheck::Equals(wanted) => format!("to be {:?}", cut(&rendered(wanted, context)?)),
        TextCheck::Contains(wanted) => format!("to contain {:?}", cut(&rendered(wanted, context)?)),
        TextCheck::Matches(regex) => format!("to match {}", cut(regex.as_str())),
        TextCheck::Present(true) => "to be there".to_owned(),
        TextCheck::Present(false) => "not to be there".to_owned(),
    })
}

fn rendered<'t>(template: &'t Template, context: &mut Context<'_>) -> Result<Cow<'t, str>, Unset> {
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

/// `0.001` and not `0`: a limit that nothing can keep should be seen to be one.
fn shown_ms(max: Duration) -> f64 {
    (max.as_secs_f64() * 1e9).round() / 1e6
}

/// Notes stay short.
fn cut(text: &str) -> Cow<'_, str> {
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
        fn contains_is_what_windows_say(found in "[ab]{0,12}", wanted in "[ab]{1,4}") {
            let expected = found.as_bytes().windows(wanted.len()).any(|window| window == wanted.as_bytes());
            prop_assert_eq!(contains(found.as_bytes(), wanted.as_bytes()), expected);
        }
    }

    /// All functions of RFC 9535, those with patterns included.
    #[test]
    fn json_paths_can_match_and_search() {
        let json: Value = serde_json::from_str(r#"[{"n":"a"},{"n":"ba"},{"n":"c"}]"#).unwrap();
        let count = |path: &str| serde_json_path::JsonPath::parse(path).expect(path).query(&json).len();
        assert_eq!(count(r#"$[?match(@.n, "a")]"#), 1);
        assert_eq!(count(r#"$[?search(@.n, "a")]"#), 2);
        assert_eq!(count("$[?length(@.n) == 2]"), 1);
        assert_eq!(count("$[?count(@.*) == 1]"), 3);
        assert_eq!(count(r#"$[?value(@.n) == "c"]"#), 1);
    }

    #[test]
    fn json_values_are_compared_as_people_see_them() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert!(same(&value("1"), &value("1.0")));
        assert!(same(&value(r#"{"a":1,"b":[2]}"#), &value(r#"{"b":[2.0],"a":1}"#)));
        assert!(!same(&value("\"1\""), &value("1")));
        assert!(!same(&value("[1]"), &value("[1,2]")));
        assert!(!same(&value("9007199254740993"), &value("9007199254740992")), "as floats they would be equal");
        assert!(!same(&value("18446744073709551615"), &value("18446744073709551614")));
    }
}
