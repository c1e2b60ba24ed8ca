//! Sends the request of one step, judges its response and sets the variables that the step extracts.
//! The [`RequestRunner`] sends and records; the task's time limit is kept here. Called by
//! [`FlowRun`](super::flow_run::FlowRun) and, for constant tasks, by the user itself.

use squall_engine::{FENCED, ThreadRecorder};
use squall_http::{BodyMode, Exchange, HttpResponse, PreparedRequest, Session};
use squall_metrics::{MetricId, Outcome, OutcomeCategory, OutcomeCode};
use std::{
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use super::{
    EndedRequest, PreparedStep, RequestFailure, RequestHandler, RequestRunner, RequestStart, ScenarioThreadState,
    flow_run::{StepTimes, UserState, describe_render_error},
};
use crate::{
    check::{LazyJsonResponse, RequestVerdict},
    compiled_scenario::CompiledStep,
    template::TemplateValue,
};

/// The task's time limit passed.
pub(super) const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: OutcomeCode::Named("TASK_TIMEOUT") };

/// How a step ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepResult {
    pub(super) ended: Instant,
    /// The outcome of a step that failed.
    pub(super) failure: Option<Outcome>,
}

impl StepResult {
    pub(super) fn failed(ended: Instant, outcome: Outcome) -> StepResult {
        StepResult { ended, failure: Some(outcome) }
    }
}

/// Judges a response by its status alone. Its output is whether the task was completed.
pub(super) struct StatusHandler<'p> {
    pub(super) shared: &'p ScenarioThreadState,
    pub(super) compiled: &'p CompiledStep,
    pub(super) prepared: &'p PreparedStep,
}

impl<'p> RequestHandler<'p> for StatusHandler<'p> {
    type Output = bool;

    #[inline]
    fn body_mode(&self) -> BodyMode {
        BodyMode::Discard
    }

    fn redirect_metric(&mut self) -> MetricId {
        self.prepared.redirect_metric(self.compiled, &self.shared.recorder)
    }

    fn follows_redirect(&self, status: u16) -> bool {
        !self.compiled.checks.accepts_redirect(status)
    }

    #[inline]
    fn on_response(&mut self, request: EndedRequest<'p>, response: HttpResponse<'_>, _exchange: &Exchange<'_>) -> bool {
        let accepted = self.compiled.checks.accepts_status(response.status);
        if accepted {
            request.record_as(self.compiled.checks.passing_outcome(response.status));
        } else {
            record_verdict(request, &self.compiled.checks.unexpected_status(response.status));
        }
        accepted
    }

    fn on_failure(&mut self, failure: RequestFailure<'p, '_>) -> bool {
        record_failure(failure);
        false
    }
}

/// Judges a response by all checks of its step and extracts its variables.
pub(super) struct StepHandler<'p, 'h, 'u> {
    shared: &'p ScenarioThreadState,
    compiled: &'h CompiledStep,
    prepared: &'h PreparedStep,
    user: &'h mut UserState<'u>,
    /// The metric of the request under way, or of the next one.
    metric: MetricId,
    /// Set once the request is recorded as unsent; the user then pauses.
    unsent: Option<StepResult>,
}

impl<'p, 'h, 'u> StepHandler<'p, 'h, 'u> {
    pub(super) fn new(
        shared: &'p ScenarioThreadState,
        (compiled, prepared): (&'h CompiledStep, &'h PreparedStep),
        user: &'h mut UserState<'u>,
    ) -> StepHandler<'p, 'h, 'u> {
        StepHandler { shared, compiled, prepared, user, metric: prepared.metric, unsent: None }
    }

    /// Sends `request` and follows its redirects, until the task's deadline at most.
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn keeps each argument twice")]
    pub(super) fn send(
        mut self,
        session: &mut Session,
        request: &PreparedRequest,
        times: &StepTimes,
    ) -> impl Future<Output = StepResult> {
        async move {
            let start = RequestStart { metric: self.metric, intended: times.intended, started: times.started };
            match times.deadline {
                None => RequestRunner::new(&self.shared.recorder).run(session, request, start, &mut self).await,
                // Boxed: most tasks have no time limit, and no user should be larger for it.
                Some(deadline) => Box::pin(self.send_until(deadline, session, request, start)).await,
            }
        }
    }

    async fn send_until(
        mut self,
        deadline: Instant,
        session: &mut Session,
        request: &PreparedRequest,
        start: RequestStart,
    ) -> StepResult {
        let recorder = &self.shared.recorder;
        let ended = {
            let sending = pin!(Some(RequestRunner::new(recorder).run(session, request, start, &mut self)));
            run_until(Some(deadline), sending, recorder).await
        };
        match ended {
            Ok(result) => result,
            Err(CutShort { requests: 0 }) => {
                // After a redirect, the request that could not be sent has another metric.
                let start = RequestStart { metric: self.metric, ..start };
                self.unsent.unwrap_or_else(|| record_unsent_timeout(recorder, start))
            }
            Err(CutShort { .. }) => StepResult::failed(Instant::now(), TASK_TIMEOUT),
        }
    }

    fn verdict(&mut self, response: HttpResponse<'_>, service_time: Duration) -> RequestVerdict {
        let mut response = LazyJsonResponse::new(response);
        let mut context = self.user.context(self.shared);
        match self.compiled.checks.judge(&mut response, service_time, &mut context) {
            Ok(verdict) if verdict.outcome.is_error() => verdict,
            Ok(verdict) => extract_variables(self.compiled, &mut response, self.user.variables).unwrap_or(verdict),
            Err(error) => {
                let (code, note) = describe_render_error(self.shared, error);
                RequestVerdict { outcome: Outcome::new(OutcomeCategory::Exception, code), note: Some(note) }
            }
        }
    }
}

impl<'p> RequestHandler<'p> for StepHandler<'p, '_, '_> {
    type Output = StepResult;

    fn body_mode(&self) -> BodyMode {
        if self.compiled.needs_body() { BodyMode::Keep } else { BodyMode::Discard }
    }

    fn redirect_metric(&mut self) -> MetricId {
        self.metric = self.prepared.redirect_metric(self.compiled, &self.shared.recorder);
        self.metric
    }

    fn follows_redirect(&self, status: u16) -> bool {
        !self.compiled.checks.accepts_redirect(status)
    }

    fn on_response(
        &mut self,
        request: EndedRequest<'p>,
        response: HttpResponse<'_>,
        _exchange: &Exchange<'_>,
    ) -> StepResult {
        let verdict = self.verdict(response, request.service_time());
        let failure = verdict.outcome.is_error().then_some(verdict.outcome);
        let ended = request.ended();
        record_verdict(request, &verdict);
        StepResult { ended, failure }
    }

    fn on_failure(&mut self, failure: RequestFailure<'p, '_>) -> StepResult {
        let unsent = matches!(failure, RequestFailure::Unsent { .. });
        let result = record_failure(failure);
        self.unsent = unsent.then_some(result);
        result
    }
}

/// The task's time limit passed while the request waited for the send budget.
#[cold]
pub(super) fn record_unsent_timeout(recorder: &ThreadRecorder, start: RequestStart) -> StepResult {
    recorder.record_unsent(start.metric, start.intended, start.started, TASK_TIMEOUT);
    recorder.note_error(
        start.metric,
        start.intended,
        TASK_TIMEOUT,
        "not sent: the task's time limit passed while the request waited for the worker's send budget",
    );
    StepResult::failed(Instant::now(), TASK_TIMEOUT)
}

fn record_verdict(request: EndedRequest<'_>, verdict: &RequestVerdict) {
    request.record_as_noted(verdict.outcome, verdict.note.as_deref());
}

/// Records a request without a response to judge, unless the runner has recorded it.
#[cold]
fn record_failure(failure: RequestFailure<'_, '_>) -> StepResult {
    match failure {
        RequestFailure::Fenced => StepResult::failed(Instant::now(), FENCED),
        RequestFailure::Unsent { outcome, ended, .. } => StepResult::failed(ended, outcome),
        RequestFailure::NoResponse { request, .. } | RequestFailure::BadRedirect { request, .. } => {
            let result = StepResult::failed(request.ended(), request.outcome());
            request.record();
            result
        }
    }
}

/// Sets the variables that a good response brings. Returns a verdict if one of them is missing.
fn extract_variables(
    step: &CompiledStep,
    response: &mut LazyJsonResponse<'_>,
    variables: &mut [Option<TemplateValue>],
) -> Option<RequestVerdict> {
    for extract in &step.extracts {
        match extract.extract(response) {
            Ok(value) => variables[extract.variable] = Some(value),
            Err(error) => return Some(RequestVerdict::failed("EXTRACT", error.to_string())),
        }
    }
    None
}

/// Work that a deadline has cut, with its requests under way; they are recorded as [`TASK_TIMEOUT`].
pub(super) struct CutShort {
    pub(super) requests: u64,
}

/// Runs `work` until `deadline`, if there is one. The caller pins `work`, because a future that is moved into
/// another one takes its size twice.
pub(super) async fn run_until<F: Future>(
    deadline: Option<Instant>,
    mut work: Pin<&mut Option<F>>,
    recorder: &ThreadRecorder,
) -> Result<F::Output, CutShort> {
    let running = work.as_mut().as_pin_mut().expect("the caller has set it");
    let Some(deadline) = deadline else { return Ok(running.await) };
    match tokio::time::timeout_at(deadline.into(), running).await {
        Ok(output) => Ok(output),
        Err(_) => Err(CutShort { requests: recorder.cancel_as(DropInPlace(work), TASK_TIMEOUT) }),
    }
}

/// Drops a pinned value when it is dropped itself.
struct DropInPlace<'w, T>(Pin<&'w mut Option<T>>);

impl<T> Drop for DropInPlace<'_, T> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
