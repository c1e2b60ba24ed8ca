//! Expectations on responses and values taken out of them. Judges one response at a time; records nothing.

mod extract;
mod judge;

pub(crate) use extract::{ExtractSource, ValueExtractor};
pub(crate) use judge::{LazyJsonResponse, RequestVerdict};

use regex::bytes::Regex;
use serde_json_path::JsonPath;
use std::time::Duration;

use crate::template::{ColumnRef, Template};

/// What a response must be like.
#[derive(Debug, Default)]
pub(crate) struct ResponseChecks {
    /// Ranges of statuses that are success; empty is the usual reading: below 400.
    pub(crate) statuses: Vec<(u16, u16)>,
    pub(crate) headers: Vec<(String, TextCheck)>,
    pub(crate) body: Vec<TextCheck>,
    pub(crate) json: Vec<JsonCheck>,
    /// Longest service time.
    pub(crate) max_service_time: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum TextCheck {
    Equals(Template),
    Contains(Template),
    Matches(Regex),
    Present(bool),
}

#[derive(Debug)]
pub(crate) struct JsonCheck {
    pub(crate) path: JsonPath,
    /// The path as written.
    pub(crate) path_text: String,
    pub(crate) expected: JsonExpectation,
}

#[derive(Debug)]
pub(crate) enum JsonExpectation {
    /// All selected values, and at least one, equal this JSON text.
    Equals(Template),
    EqualsConstant(serde_json::Value),
    Present(bool),
    Count(usize),
}

impl ResponseChecks {
    /// Whether nothing but the status is looked at.
    pub(crate) fn checks_only_status(&self) -> bool {
        self.headers.is_empty() && !self.needs_body() && self.max_service_time.is_none()
    }

    pub(crate) fn needs_body(&self) -> bool {
        !(self.body.is_empty() && self.json.is_empty())
    }

    pub(crate) fn accepts_status(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            return status < 400;
        }
        self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }

    /// Whether a redirect is what the scenario wants to see rather than to follow.
    pub(crate) fn accepts_redirect(&self, status: u16) -> bool {
        !self.statuses.is_empty() && self.accepts_status(status)
    }

    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        let texts = self.headers.iter().map(|(_, check)| check).chain(&self.body);
        for check in texts {
            if let TextCheck::Equals(template) | TextCheck::Contains(template) = check {
                template.columns_used(used);
            }
        }
        for check in &self.json {
            if let JsonExpectation::Equals(template) = &check.expected {
                template.columns_used(used);
            }
        }
    }

    /// The statuses in words.
    pub(crate) fn format_statuses(&self) -> String {
        let one = |(low, high): &(u16, u16)| match (low % 100, high - low) {
            (_, 0) => low.to_string(),
            (0, 99) => format!("{}xx", low / 100),
            _ => format!("{low}-{high}"),
        };
        self.statuses.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
