//! Extracts values from responses.

use regex::bytes::Regex;
use serde_json_path::JsonPath;

mod json_source_text;

use super::LazyJsonResponse;
use crate::template::TemplateValue;

#[derive(Debug)]
pub(crate) struct ValueExtractor {
    /// The variable that it sets.
    pub(crate) variable: usize,
    /// The variable's name.
    pub(crate) name: String,
    pub(crate) source: ExtractSource,
    /// The value if the response has none. Without a default that is a failure.
    pub(crate) default: Option<String>,
}

#[derive(Debug)]
pub(crate) enum ExtractSource {
    /// The path, and the path as written.
    Json(JsonPath, String),
    Header(String),
    /// The pattern, and which of its groups.
    Regex(Regex, usize),
}

/// A value that a response does not have.
#[derive(Debug, thiserror::Error)]
#[error("cannot extract `{name}`: {reason}")]
pub(crate) struct ExtractError {
    name: String,
    reason: NoValueError,
}

/// Why a source has no value.
#[derive(Debug, thiserror::Error)]
enum NoValueError {
    #[error("the body is not JSON: {message}")]
    NotJson { message: String },
    #[error("{path} selects nothing")]
    EmptySelection { path: String },
    #[error("there is no header {name}")]
    NoHeader { name: String },
    #[error("nothing matches {regex}")]
    NoMatch { regex: String },
}

impl ValueExtractor {
    pub(crate) fn needs_body(&self) -> bool {
        !matches!(self.source, ExtractSource::Header(_))
    }

    /// The value from the response, or the default.
    pub(crate) fn extract(&self, lazy: &mut LazyJsonResponse<'_>) -> Result<TemplateValue, ExtractError> {
        self.source.extract(lazy).or_else(|reason| match &self.default {
            Some(default) => Ok(TemplateValue::text(default)),
            None => Err(ExtractError { name: self.name.clone(), reason }),
        })
    }
}

impl ExtractSource {
    fn extract(&self, lazy: &mut LazyJsonResponse<'_>) -> Result<TemplateValue, NoValueError> {
        match self {
            ExtractSource::Json(path, path_text) => {
                let body = lazy.response.body();
                let json = lazy.json().map_err(|error| NoValueError::NotJson { message: error.to_string() })?;
                let found = path.query(json).first();
                let found = found.ok_or_else(|| NoValueError::EmptySelection { path: path_text.clone() })?;
                Ok(match found {
                    serde_json::Value::String(text) => TemplateValue::text(text),
                    // The server's own text: parsing would change 1.10, 1e3 and numbers of more than 64 bits.
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
                let found = lazy.response.header(name);
                let found = found.ok_or_else(|| NoValueError::NoHeader { name: name.clone() })?;
                Ok(TemplateValue::text(found))
            }
            ExtractSource::Regex(regex, group) => {
                let found = regex.captures(lazy.response.body()).and_then(|captures| captures.get(*group));
                let found = found.ok_or_else(|| NoValueError::NoMatch { regex: regex.to_string() })?;
                Ok(TemplateValue::text(String::from_utf8_lossy(found.as_bytes())))
            }
        }
    }
}
