//! What a page measured: its loads, its requests and its console errors. It measures nothing; `page_state` keeps
//! what the browser's events say.

use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// The figures of one loaded document, in milliseconds since its navigation began; CLS has no unit. A
/// figure that the document does not have is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Vitals {
    pub ttfb: Option<f64>,
    pub fcp: Option<f64>,
    pub dom_ready: Option<f64>,
    pub load: Option<f64>,
    pub lcp: Option<f64>,
    pub cls: Option<f64>,
    pub inp: Option<f64>,
}

impl Vitals {
    pub(super) fn parse(value: &Value) -> Option<Vitals> {
        Vitals::deserialize(value).ok()
    }
}

/// A document that was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct PageLoad {
    /// The step that loaded it.
    pub step: usize,
    pub vitals: Vitals,
}

/// A request that the browser sent for a page: a document, a script, a picture, …
#[derive(Debug, Clone, PartialEq)]
pub struct SentRequest {
    /// The step in which it was sent.
    pub step: usize,
    pub duration: Duration,
    /// Bytes received, headers included.
    pub bytes: u64,
    pub result: RequestResult,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RequestResult {
    Status(u16),
    /// The browser's own text, such as `net::ERR_CONNECTION_REFUSED`.
    Failed(String),
    /// The page was left or closed first.
    Cancelled,
}

/// An error in the console, or an exception that no code caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleError {
    pub step: usize,
    pub message: String,
}

/// What a page measured.
#[derive(Debug, Default)]
pub struct PageMeasurements {
    pub loads: Vec<PageLoad>,
    pub requests: Vec<SentRequest>,
    pub console_errors: Vec<ConsoleError>,
}
