//! What an exchange means: its outcome, whether it is to be followed, and its record.

use squall_engine::{InFlightRequest, ThreadRecorder};
use squall_http::{Exchange, HttpError, HttpResponse, PreparedRequest};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};

use super::ScenarioThreadState;
use crate::{check::RequestVerdict, compiled_scenario::CompiledStep};

pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The request that `response` leads to, or why it leads nowhere; `None` if it is to be judged as it is.
pub(super) fn follow_redirect(
    step: &CompiledStep,
    request: &PreparedRequest,
    response: &HttpResponse<'_>,
) -> Option<Result<PreparedRequest, RequestVerdict>> {
    if !is_redirect(response.status) || step.checks.accepts_redirect(response.status) {
        return None;
    }
    request.redirect(response).map(|next| {
        next.map_err(|error| RequestVerdict {
            outcome: Outcome::new(OutcomeCategory::ProtocolError, error.redirect_code()),
            note: Some(error.to_string()),
        })
    })
}

/// The outcome of an exchange without a response.
fn failure_verdict(error: &HttpError) -> RequestVerdict {
    let category = match error.error_category() {
        squall_http::HttpErrorCategory::Protocol => OutcomeCategory::ProtocolError,
        squall_http::HttpErrorCategory::Transport => OutcomeCategory::TransportError,
        squall_http::HttpErrorCategory::Timeout => OutcomeCategory::Timeout,
    };
    RequestVerdict { outcome: Outcome::new(category, error.code()), note: Some(error.to_string()) }
}

/// Records an exchange without a response; what never left this machine is not counted as sent.
#[cold]
pub(super) fn record_failure(
    probe: &ThreadRecorder,
    metric: MetricId,
    flight: InFlightRequest<'_>,
    exchange: &Exchange<'_>,
    error: &HttpError,
) -> Outcome {
    let verdict = failure_verdict(error);
    if error.failed_before_sending() {
        flight.end_unsent(exchange.ended, verdict.outcome);
        probe.note_error(metric, verdict.outcome, &error.to_string());
    } else {
        record_exchange(probe, metric, flight, exchange, &verdict);
    }
    verdict.outcome
}

/// Whether this machine had nothing to send a request by. Trying again at once would only heat it.
pub(super) fn is_unsent(exchange: &Exchange<'_>) -> bool {
    matches!(&exchange.result, Err(error) if error.failed_before_sending())
}

/// Records an exchange as judged.
pub(super) fn record_exchange(
    probe: &ThreadRecorder,
    metric: MetricId,
    flight: InFlightRequest<'_>,
    exchange: &Exchange<'_>,
    verdict: &RequestVerdict,
) {
    record_phases(&flight, exchange);
    flight.end(exchange.ended, verdict.outcome, exchange.bytes_in, exchange.bytes_out);
    if let Some(note) = &verdict.note {
        probe.note_error(metric, verdict.outcome, note);
    }
}

#[inline]
pub(super) fn record_phases(flight: &InFlightRequest<'_>, exchange: &Exchange<'_>) {
    if let Some(phases) = &exchange.phases {
        flight.record_phases(&[phases.dns, phases.connect, phases.tls, phases.first_byte, phases.body]);
    }
}

/// The rare rest of a plain request: it failed, or it leads somewhere else. `Err` says whether the task was completed.
#[cold]
pub(super) fn finish_fast_path(
    shared: &ScenarioThreadState,
    step: &CompiledStep,
    metric: MetricId,
    request: &PreparedRequest,
    (flight, exchange): (InFlightRequest<'_>, &Exchange<'_>),
) -> Result<PreparedRequest, bool> {
    let probe = &shared.recorder;
    let response = match &exchange.result {
        Ok(response) => response,
        Err(error) => {
            record_failure(probe, metric, flight, exchange, error);
            return Err(false);
        }
    };
    let passing = RequestVerdict { outcome: step.checks.passing_outcome(response.status), note: None };
    match follow_redirect(step, request, response) {
        Some(Ok(next)) => {
            record_exchange(probe, metric, flight, exchange, &passing);
            Ok(next)
        }
        Some(Err(verdict)) => {
            record_exchange(probe, metric, flight, exchange, &verdict);
            Err(false)
        }
        None => {
            let accepted = step.checks.accepts_status(response.status);
            let verdict = if accepted { passing } else { step.checks.unexpected_status(response.status) };
            record_exchange(probe, metric, flight, exchange, &verdict);
            Err(accepted)
        }
    }
}
