//! Takes values out of responses.

use regex::bytes::Regex;
use serde_json_path::JsonPath;

mod written;

use super::Answer;
use crate::template::Value;

#[derive(Debug)]
pub(crate) struct Extract {
    /// The user's variable that it sets.
    pub(crate) slot: usize,
    /// That variable's name.
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Used when the response does not have it; without one that is a failure.
    pub(crate) default: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Source {
    Json(JsonPath, String),
    Header(String),
    /// The pattern, and which of its groups.
    Regex(Regex, usize),
}

impl Extract {
    pub(crate) fn needs_body(&self) -> bool {
        !matches!(self.source, Source::Header(_))
    }

    /// The value, or in words why there is none.
    pub(crate) fn take(&self, answer: &mut Answer<'_>) -> Result<Value, String> {
        self.source.take(answer).or_else(|reason| match &self.default {
            Some(default) => Ok(Value::text(default)),
            None => Err(format!("cannot extract `{}`: {reason}", self.name)),
        })
    }
}

impl Source {
    fn take(&self, answer: &mut Answer<'_>) -> Result<Value, String> {
        match self {
            Source::Json(path, shown) => {
                let body = answer.response.body();
                let json = answer.json().map_err(|error| format!("the body is not JSON: {error}"))?;
                let found = path.query(json).first().ok_or_else(|| format!("{shown} selects nothing"))?;
                Ok(match found {
                    serde_json::Value::String(text) => Value::text(text),
                    // As the server wrote it: 1.10 and 1e3 are not read and written again, nor is what is too long for 64 bits.
                    serde_json::Value::Number(number) if number.is_f64() => {
                        let located = path.query_located(json).into_iter().next();
                        let written = located.and_then(|located| written::at(body, located.location()));
                        Value::literal(written.map_or_else(|| number.to_string(), str::to_owned))
                    }
                    other => Value::literal(other.to_string()),
                })
            }
            Source::Header(name) => {
                let found = answer.response.header(name).ok_or_else(|| format!("there is no header {name}"))?;
                Ok(Value::text(found))
            }
            Source::Regex(regex, group) => {
                let found = regex.captures(answer.response.body()).and_then(|captures| captures.get(*group));
                let found = found.ok_or_else(|| format!("nothing matches {regex}"))?;
                Ok(Value::text(String::from_utf8_lossy(found.as_bytes())))
            }
        }
    }
}
