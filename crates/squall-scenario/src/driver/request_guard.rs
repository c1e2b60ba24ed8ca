//! A request under way on a user's session. Cut off half-way, it is recorded with what it had moved by then; the flight alone
//! could not know that. Sends nothing itself.

use squall_engine::InFlightRequest;
use squall_http::Session;
use squall_metrics::Outcome;
use std::time::Instant;

/// Take the flight out once the exchange is over; dropped with it, the request counts as aborted.
pub struct RequestGuard<'p, 's> {
    /// Until it has landed.
    pub in_flight: Option<InFlightRequest<'p>>,
    /// Whose request it is.
    pub session: &'s mut Session,
}

impl<'p, 's> RequestGuard<'p, 's> {
    /// A request that begins now.
    #[inline]
    pub fn new(flight: InFlightRequest<'p>, session: &'s mut Session) -> RequestGuard<'p, 's> {
        RequestGuard { in_flight: Some(flight), session }
    }

    /// Records how a request ended whose exchange was given up.
    pub fn abandon(mut self, ended: Instant, outcome: Outcome) {
        if let Some(flight) = self.in_flight.take() {
            let (bytes_in, bytes_out) = self.session.close_abandoned();
            flight.end(ended, outcome, bytes_in, bytes_out);
        }
    }
}

impl Drop for RequestGuard<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(flight) = self.in_flight.take() {
            let (bytes_in, bytes_out) = self.session.close_abandoned();
            flight.cancel(bytes_in, bytes_out);
        }
    }
}
