//! Checks of responses and extraction of values from them. Judges one response at a time and records
//! nothing. Called by the driver's steps.

mod extract;
mod judge;

pub(crate) use extract::{ExtractSource, ValueExtractor};
pub(crate) use judge::{LazyJsonResponse, RequestVerdict};

use regex::bytes::Regex;
use serde_json_path::JsonPath;
use std::time::Duration;

use crate::template::{ColumnRef, Template};

/// The expectations on one response.
#[derive(Debug, Default)]
pub(crate) struct ResponseChecks {
    /// Ranges of accepted statuses. Empty accepts every status below 400.
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
    /// The path selects at least one value, and all of them equal this JSON text.
    Equals(Template),
    EqualsConstant(serde_json::Value),
    Present(bool),
    Count(usize),
}

impl ResponseChecks {
    /// Whether the status is all that is checked.
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

    /// Whether the scenario expects this redirect itself, so that it is not followed.
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

    /// The accepted statuses for a message.
    pub(crate) fn format_statuses(&self) -> String {
        let one = |(low, high): &(u16, u16)| match (low % 100, high - low) {
            (_, 0) => low.to_string(),
            (0, 99) => format!("{}xx", low / 100),
            _ => format!("{low}-{high}"),
        };
        self.statuses.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
