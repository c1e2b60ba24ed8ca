//! A request that has ended, with or without a response, and whose outcome its caller still decides.
//! It judges nothing itself and is recorded exactly once. Made by the
//! [`RequestRunner`](super::RequestRunner).

use squall_engine::{InFlightRequest, ThreadRecorder};
use squall_http::Exchange;
use squall_metrics::{MetricId, Outcome, OutcomeCode};
use std::time::{Duration, Instant};

use super::RequestStart;

/// A finished request that is not recorded yet; it may have failed without a response. Dropping it
/// records it with its present outcome, for example when a timeout cuts a batch.
#[must_use = "dropping it records it at once, with its present outcome"]
pub struct EndedRequest<'p> {
    recorder: &'p ThreadRecorder,
    metric: MetricId,
    /// Set until it is recorded.
    in_flight: Option<InFlightRequest<'p>>,
    intended: Instant,
    started: Instant,
    ended: Instant,
    outcome: Outcome,
    bytes_in: u64,
    bytes_out: u64,
}

impl<'p> EndedRequest<'p> {
    #[inline]
    pub(super) fn new(
        recorder: &'p ThreadRecorder,
        in_flight: InFlightRequest<'p>,
        start: RequestStart,
        exchange: &Exchange<'_>,
        outcome: Outcome,
    ) -> EndedRequest<'p> {
        EndedRequest {
            recorder,
            metric: start.metric,
            in_flight: Some(in_flight),
            intended: start.intended,
            started: start.started,
            ended: exchange.ended,
            outcome,
            bytes_in: exchange.bytes_in,
            bytes_out: exchange.bytes_out,
        }
    }

    /// When the request should have started.
    pub fn intended(&self) -> Instant {
        self.intended
    }

    /// When the last byte of the response was read, or the failure was known.
    pub fn ended(&self) -> Instant {
        self.ended
    }

    /// From the start of the request to its end.
    pub fn service_time(&self) -> Duration {
        self.ended.saturating_duration_since(self.started)
    }

    /// The outcome that [`EndedRequest::record`] writes.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the outcome is the HTTP status of the response. False if there is no response, if the
    /// redirect could not be followed, and after [`EndedRequest::mark_failed`].
    pub fn has_status_outcome(&self) -> bool {
        matches!(self.outcome.code, OutcomeCode::Http(_))
    }

    /// Makes the request a failure, unless it already is one.
    pub fn mark_failed(&mut self, outcome: Outcome) {
        if !self.outcome.is_error() {
            self.outcome = outcome;
        }
    }

    /// Adds a message to the report's errors, under the present outcome.
    pub fn note_error(&self, message: &str) {
        self.recorder.note_error(self.metric, self.intended, self.outcome, message);
    }

    /// Records the request with its present outcome.
    #[inline]
    pub fn record(mut self) {
        self.record_once();
    }

    /// Records the request as `outcome`.
    #[inline]
    pub fn record_as(mut self, outcome: Outcome) {
        self.outcome = outcome;
        self.record_once();
    }

    /// Records the request as `outcome` and adds `message` to the report's errors.
    pub fn record_as_noted(mut self, outcome: Outcome, message: Option<&str>) {
        self.outcome = outcome;
        if let Some(message) = message {
            self.note_error(message);
        }
        self.record_once();
    }

    #[inline]
    fn record_once(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.end(self.ended, self.outcome, self.bytes_in, self.bytes_out);
        }
    }
}

impl Drop for EndedRequest<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record_once();
    }
}
