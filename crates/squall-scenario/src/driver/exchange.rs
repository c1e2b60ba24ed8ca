//! What an exchange means: its outcome, whether it is to be followed, and its record.

use squall_engine::{InFlightRequest, ThreadRecorder};
use squall_http::{Exchange, HttpError, PreparedRequest, HttpResponse};
use squall_metrics::{OutcomeCategory, MetricId, Outcome};

use super::Shared;
use crate::{check::Verdict, program::Step};

pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The request that `response` leads to, or why it leads nowhere; `None` if it is to be judged as it is.
pub(super) fn follow(step: &Step, request: &PreparedRequest, response: &HttpResponse<'_>) -> Option<Result<PreparedRequest, Verdict>> {
    if !is_redirect(response.status) || step.checks.wants_redirect(response.status) {
        return None;
    }
    request.redirect(response).map(|next| {
        next.map_err(|error| Verdict {
            outcome: Outcome::new(OutcomeCategory::ProtocolError, error.redirect_code()),
            note: Some(error.to_string()),
        })
    })
}

/// The outcome of an exchange without a response.
fn failure(error: &HttpError) -> Verdict {
    let category = match error.error_category() {
        squall_http::HttpErrorCategory::Protocol => OutcomeCategory::ProtocolError,
        squall_http::HttpErrorCategory::Transport => OutcomeCategory::TransportError,
        squall_http::HttpErrorCategory::Timeout => OutcomeCategory::Timeout,
    };
    Verdict { outcome: Outcome::new(category, error.code()), note: Some(error.to_string()) }
}

/// Records an exchange without a response; what never left this machine is not counted as sent.
#[cold]
pub(super) fn land_failure(
    probe: &ThreadRecorder,
    metric: MetricId,
    flight: InFlightRequest<'_>,
    exchange: &Exchange<'_>,
    error: &HttpError,
) -> Outcome {
    let verdict = failure(error);
    if error.failed_before_sending() {
        flight.end_unsent(exchange.ended, verdict.outcome);
        probe.note_error(metric, verdict.outcome, &error.to_string());
    } else {
        land(probe, metric, flight, exchange, &verdict);
    }
    verdict.outcome
}

/// Whether this machine had nothing to send a request by. Trying again at once would only heat it.
pub(super) fn is_starved(exchange: &Exchange<'_>) -> bool {
    matches!(&exchange.result, Err(error) if error.failed_before_sending())
}

/// Records an exchange as judged.
pub(super) fn land(probe: &ThreadRecorder, metric: MetricId, flight: InFlightRequest<'_>, exchange: &Exchange<'_>, verdict: &Verdict) {
    flight.end(exchange.ended, verdict.outcome, exchange.bytes_in, exchange.bytes_out);
    record_phases(probe, metric, exchange);
    if let Some(note) = &verdict.note {
        probe.note_error(metric, verdict.outcome, note);
    }
}

#[inline]
pub(super) fn record_phases(probe: &ThreadRecorder, metric: MetricId, exchange: &Exchange<'_>) {
    if let Some(phases) = &exchange.phases {
        probe.record_phases(metric, &[phases.dns, phases.connect, phases.tls, phases.first_byte, phases.body]);
    }
}

/// The rare rest of a plain request: it failed, or it leads somewhere else. `Err` says whether the task was completed.
#[cold]
pub(super) fn settle(
    shared: &Shared,
    step: &Step,
    metric: MetricId,
    request: &PreparedRequest,
    (flight, exchange): (InFlightRequest<'_>, &Exchange<'_>),
) -> Result<PreparedRequest, bool> {
    let probe = &shared.probe;
    let response = match &exchange.result {
        Ok(response) => response,
        Err(error) => {
            land_failure(probe, metric, flight, exchange, error);
            return Err(false);
        }
    };
    let passing = Verdict { outcome: step.checks.passing(response.status), note: None };
    match follow(step, request, response) {
        Some(Ok(next)) => {
            land(probe, metric, flight, exchange, &passing);
            Ok(next)
        }
        Some(Err(verdict)) => {
            land(probe, metric, flight, exchange, &verdict);
            Err(false)
        }
        None => {
            let accepted = step.checks.accepts(response.status);
            let verdict = if accepted { passing } else { step.checks.refused(response.status) };
            land(probe, metric, flight, exchange, &verdict);
            Err(accepted)
        }
    }
}
