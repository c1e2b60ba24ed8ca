//! How a request ended: a category that all drivers share and a code of the driver. Both are
//! `Copy`, so that recording an outcome does not allocate.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::wire::code_names;

/// The category of an outcome. All but `Ok` are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeCategory {
    Ok,
    /// The response is a failure by the protocol (HTTP 4xx, 5xx) or cannot be parsed.
    ProtocolError,
    /// No complete response arrived: refused, reset, cut off, name not found.
    TransportError,
    Timeout,
    /// A response arrived, and a check of the scenario failed.
    CheckFailed,
    /// The scenario's own code failed.
    Exception,
}

impl OutcomeCategory {
    pub const ALL: [OutcomeCategory; 6] = [
        OutcomeCategory::Ok,
        OutcomeCategory::ProtocolError,
        OutcomeCategory::TransportError,
        OutcomeCategory::Timeout,
        OutcomeCategory::CheckFailed,
        OutcomeCategory::Exception,
    ];

    pub fn name(self) -> &'static str {
        match self {
            OutcomeCategory::Ok => "ok",
            OutcomeCategory::ProtocolError => "protocol_error",
            OutcomeCategory::TransportError => "transport_error",
            OutcomeCategory::Timeout => "timeout",
            OutcomeCategory::CheckFailed => "check_failed",
            OutcomeCategory::Exception => "exception",
        }
    }
}

/// The exact outcome, in the protocol's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeCode {
    /// An HTTP status, shown as `HTTP_200`.
    Http(u16),
    /// A fixed name, for example `CONNECT_REFUSED`.
    Named(&'static str),
}

impl fmt::Display for OutcomeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutcomeCode::Http(status) => write!(f, "HTTP_{status}"),
            OutcomeCode::Named(name) => f.write_str(name),
        }
    }
}

/// How one request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    pub category: OutcomeCategory,
    pub code: OutcomeCode,
}

impl Outcome {
    /// The request was in progress when the run was aborted.
    pub const ABORTED: Outcome =
        Outcome { category: OutcomeCategory::TransportError, code: OutcomeCode::Named("ABORTED") };

    pub fn new(category: OutcomeCategory, code: &'static str) -> Outcome {
        Outcome { category, code: OutcomeCode::Named(code) }
    }

    /// An outcome whose code another program chose. The number of distinct codes is limited.
    pub fn of_foreign_code(category: OutcomeCategory, code: &str) -> Outcome {
        let status = code.strip_prefix("HTTP_").and_then(|status| status.parse().ok());
        let code = if code_names::is_valid_name(code) { code } else { "OTHER" };
        let named = || OutcomeCode::Named(code_names::intern(code));
        Outcome { category, code: status.map_or_else(named, OutcomeCode::Http) }
    }

    /// The outcome of an HTTP status: an error from 400 on.
    pub fn of_status(status: u16) -> Outcome {
        let category = if status < 400 { OutcomeCategory::Ok } else { OutcomeCategory::ProtocolError };
        Outcome { category, code: OutcomeCode::Http(status) }
    }

    pub fn is_error(self) -> bool {
        self.category != OutcomeCategory::Ok
    }
}
