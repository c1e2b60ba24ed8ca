//! Takes values out of responses.

use regex::bytes::Regex;
use serde_json_path::JsonPath;

mod json_source_text;

use super::LazyJsonResponse;
use crate::template::TemplateValue;

#[derive(Debug)]
pub(crate) struct ValueExtractor {
    /// The user's variable that it sets.
    pub(crate) slot: usize,
    /// That variable's name.
    pub(crate) name: String,
    pub(crate) source: ExtractSource,
    /// Used when the response does not have it; without one that is a failure.
    pub(crate) default: Option<String>,
}

#[derive(Debug)]
pub(crate) enum ExtractSource {
    Json(JsonPath, String),
    Header(String),
    /// The pattern, and which of its groups.
    Regex(Regex, usize),
}

impl ValueExtractor {
    pub(crate) fn needs_body(&self) -> bool {
        !matches!(self.source, ExtractSource::Header(_))
    }

    /// The value, or in words why there is none.
    pub(crate) fn extract(&self, answer: &mut LazyJsonResponse<'_>) -> Result<TemplateValue, String> {
        self.source.extract(answer).or_else(|reason| match &self.default {
            Some(default) => Ok(TemplateValue::text(default)),
            None => Err(format!("cannot extract `{}`: {reason}", self.name)),
        })
    }
}

impl ExtractSource {
    fn extract(&self, answer: &mut LazyJsonResponse<'_>) -> Result<TemplateValue, String> {
        match self {
            ExtractSource::Json(path, shown) => {
                let body = answer.response.body();
                let json = answer.json().map_err(|error| format!("the body is not JSON: {error}"))?;
                let found = path.query(json).first().ok_or_else(|| format!("{shown} selects nothing"))?;
                Ok(match found {
                    serde_json::Value::String(text) => TemplateValue::text(text),
                    // As the server wrote it: 1.10 and 1e3 are not read and written again, nor is what is too long for 64 bits.
                    serde_json::Value::Number(number) if number.is_f64() => {
                        let located = path.query_located(json).into_iter().next();
                        let written =
                            located.and_then(|located| json_source_text::value_text_at(body, located.location()));
                        TemplateValue::literal(written.map_or_else(|| number.to_string(), str::to_owned))
                    }
                    other => TemplateValue::literal(other.to_string()),
                })
            }
            ExtractSource::Header(name) => {
                let found = answer.response.header(name).ok_or_else(|| format!("there is no header {name}"))?;
                Ok(TemplateValue::text(found))
            }
            ExtractSource::Regex(regex, group) => {
                let found = regex.captures(answer.response.body()).and_then(|captures| captures.get(*group));
                let found = found.ok_or_else(|| format!("nothing matches {regex}"))?;
                Ok(TemplateValue::text(String::from_utf8_lossy(found.as_bytes())))
            }
        }
    }
}
