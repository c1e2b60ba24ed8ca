//! A request whose bytes are in, but whose verdict is not: the code that asked for it may still refuse the answer. Recorded exactly
//! once, with its own outcome unless somebody objects.

use squall_engine::InFlightRequest;
use squall_http::Exchange;
use squall_metrics::{Outcome, OutcomeCode};
use std::time::Instant;

/// A finished request that waits for its verdict.
pub(super) struct UnjudgedResponse<'p> {
    request: Option<InFlightRequest<'p>>,
    ended: Instant,
    outcome: Outcome,
    bytes: (u64, u64),
}

impl<'p> UnjudgedResponse<'p> {
    pub(super) fn new(flight: InFlightRequest<'p>, exchange: &Exchange<'_>, outcome: Outcome) -> UnjudgedResponse<'p> {
        let bytes = (exchange.bytes_in, exchange.bytes_out);
        UnjudgedResponse { request: Some(flight), ended: exchange.ended, outcome, bytes }
    }

    /// When its last byte was in.
    pub(super) fn ended(&self) -> Instant {
        self.ended
    }

    /// Whether an answer came, whatever it says.
    pub(super) fn has_response(&self) -> bool {
        matches!(self.outcome.code, OutcomeCode::Http(_))
    }

    /// Makes it a failure, unless it already is one.
    pub(super) fn mark_failed(&mut self, outcome: Outcome) {
        if !self.outcome.is_error() {
            self.outcome = outcome;
        }
    }
}

impl Drop for UnjudgedResponse<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.request.take() {
            flight.end(self.ended, self.outcome, self.bytes.0, self.bytes.1);
        }
    }
}
