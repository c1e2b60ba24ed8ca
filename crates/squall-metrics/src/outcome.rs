//! How a request ended: a category that every driver shares and a code of the driver's own. Both are `Copy`, so that an
//! outcome costs the hot path nothing.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of ending; everything but `Ok` is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeCategory {
    Ok,
    /// An answer came, and the protocol says that it is a failure (HTTP 4xx, 5xx) or cannot be understood.
    ProtocolError,
    /// No whole answer came: refused, reset, cut off, name not found.
    TransportError,
    Timeout,
    /// An answer came, and an expectation of the scenario did not hold.
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

/// What exactly happened, in the words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeCode {
    /// An HTTP status, shown as `HTTP_200`.
    Http(u16),
    /// A fixed word, `CONNECT_REFUSED`.
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
    /// The request was still under way when the run was aborted.
    pub const ABORTED: Outcome =
        Outcome { category: OutcomeCategory::TransportError, code: OutcomeCode::Named("ABORTED") };

    pub fn new(category: OutcomeCategory, code: &'static str) -> Outcome {
        Outcome { category, code: OutcomeCode::Named(code) }
    }

    /// The usual reading of an HTTP status: from 400 on it is an error.
    pub fn of_status(status: u16) -> Outcome {
        let category = if status < 400 { OutcomeCategory::Ok } else { OutcomeCategory::ProtocolError };
        Outcome { category, code: OutcomeCode::Http(status) }
    }

    pub fn is_error(self) -> bool {
        self.category != OutcomeCategory::Ok
    }
}
