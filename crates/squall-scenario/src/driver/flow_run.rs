//! Walks a user through the steps of a flow: draws its data, renders, sends, follows, judges, extracts, records, waits.

use squall_engine::{FENCED, ResourceError, ResourceLease};
use squall_http::{BodyMode, PreparedRequest, Session};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
use std::time::{Duration, Instant};

use super::{
    PreparedFlow, PreparedStep, RequestGuard, ScenarioThreadState,
    exchange::{follow_redirect, is_unsent, record_exchange, record_failure},
    render::{RenderError, RenderedRequest},
};
use crate::{
    check::{LazyJsonResponse, RequestVerdict},
    compiled_scenario::{CompiledFlow, CompiledStep, RequestTemplate},
    data::{RowLifetime, RowOrder, UserRow},
    template::{RenderContext, TemplateValue, UnsetVariableError},
};

/// A user on its way through one iteration.
pub(super) struct FlowRun<'u> {
    pub(super) shared: &'u ScenarioThreadState,
    pub(super) session: &'u mut Session,
    pub(super) rng: &'u mut fastrand::Rng,
    pub(super) slots: &'u mut [Option<TemplateValue>],
    pub(super) rows: &'u mut [Option<UserRow>],
    pub(super) leases: &'u mut [Option<ResourceLease>],
    pub(super) user: u64,
    pub(super) iteration: u64,
}

/// When a request should have started, when it did, and by when its task must be over.
#[derive(Clone, Copy)]
struct RequestTimes {
    intended: Instant,
    started: Instant,
    deadline: Option<Instant>,
}

/// How a step ended: when, and with what if it failed.
type StepResult = (Instant, Option<Outcome>);

/// A span around consecutive steps.
struct GroupSpan {
    metric: MetricId,
    intended: Instant,
    started: Instant,
    failed: Option<Outcome>,
}

/// A user that has nothing to send, or nothing to send it by, waits this long, so that a closed loop does not spin.
pub(super) const IDLE_WAIT: Duration = Duration::from_millis(100);

const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: squall_metrics::OutcomeCode::Named("TASK_TIMEOUT") };

impl FlowRun<'_> {
    /// Runs `flow` once and says whether it was completed.
    pub(super) async fn run(
        &mut self,
        flow: &CompiledFlow,
        lane: &PreparedFlow,
        intended: Instant,
        started: Instant,
    ) -> bool {
        if let Err((code, note)) = self.acquire_rows(flow).await {
            return self.record_unsent(lane, intended, started, code, &note).await;
        }
        // What was waited for, a row or a resource, is no part of the target's service.
        let started = if flow.data.is_empty() { started } else { Instant::now() };
        let deadline = flow.timeout.map(|timeout| started + timeout);
        let mut times = RequestTimes { intended, started, deadline };
        let (mut ended, mut failed, mut completed) = (started, None, true);
        let shared = self.shared;
        let spans = shared.recorder.open_span(&lane.spans, intended, started);
        let mut group: Option<GroupSpan> = None;
        for (index, (step, here)) in flow.steps.iter().zip(&lane.steps).enumerate() {
            if index > 0 {
                let now = Instant::now();
                times = RequestTimes { intended: now, started: now, deadline };
            }
            self.switch_group(here.group, (times.intended, times.started), ended, &mut group);
            let (end, outcome) = self.run_step(step, here, times).await;
            ended = end;
            failed = failed.or(outcome);
            if let Some(group) = &mut group {
                group.failed = group.failed.or(outcome);
            }
            if outcome.is_some() && !step.continue_on_failure {
                completed = false;
                break;
            }
            let cut = self.think(step, deadline).await;
            if let (true, Some(next)) = (cut, lane.steps.get(index + 1)) {
                self.record_task_timeout(next);
                (ended, failed, completed) = (Instant::now(), failed.or(Some(TASK_TIMEOUT)), false);
                break;
            }
        }
        self.switch_group(None, (ended, ended), ended, &mut group);
        spans.end(ended, failed.unwrap_or(PASSED));
        completed
    }

    /// Follows a redirect to its end.
    pub(super) async fn follow_redirects(
        &mut self,
        step: &CompiledStep,
        here: &PreparedStep,
        next: PreparedRequest,
    ) -> bool {
        let now = Instant::now();
        let times = RequestTimes { intended: now, started: now, deadline: None };
        self.send_request(step, here, None, Some(next), times).await.1.is_none()
    }

    /// Takes a row of every data source that `flow` uses, or says which has none left.
    async fn acquire_rows(&mut self, flow: &CompiledFlow) -> Result<(), (&'static str, String)> {
        for &index in &flow.data {
            let table = &self.shared.compiled.data[index];
            if let RowOrder::Leased { wait } = table.order {
                // Boxed: most users hold nothing, and none should be larger for it.
                Box::pin(self.acquire_resource(index, wait))
                    .await
                    .map_err(|error| (error.code(), error.to_string()))?;
                continue;
            }
            if table.per == RowLifetime::User && self.rows[index].is_some() {
                continue;
            }
            self.rows[index] =
                self.shared.feeders[index].next_row(table, self.user, self.rng).await.map(UserRow::TableIndex);
            if self.rows[index].is_none() {
                return Err(("DATA_EXHAUSTED", format!("data `{}` has no more rows", table.name)));
            }
        }
        Ok(())
    }

    /// Borrows a row that nobody else holds, unless this user has one.
    async fn acquire_resource(&mut self, index: usize, wait: Duration) -> Result<(), ResourceError> {
        if self.leases[index].as_ref().is_some_and(ResourceLease::is_valid) {
            return Ok(());
        }
        // First what may be another's by now.
        (self.leases[index], self.rows[index]) = (None, None);
        let table = &self.shared.compiled.data[index];
        let loan = self.shared.recorder.resources()?.acquire(&table.name, wait).await?;
        match table.resource_row(loan.id(), loan.payload()) {
            Ok(row) => (self.leases[index], self.rows[index]) = (Some(loan), Some(row)),
            Err(unusable) => {
                // Given back it would be this user's again at once.
                let mut kept = self.shared.unusable_leases.borrow_mut();
                kept.retain(ResourceLease::is_valid);
                kept.push(loan);
                return Err(ResourceError::Refused(unusable.to_string()));
            }
        }
        Ok(())
    }

    /// Records an iteration that failed before anything could be sent.
    async fn record_unsent(
        &mut self,
        lane: &PreparedFlow,
        intended: Instant,
        started: Instant,
        code: &'static str,
        note: &str,
    ) -> bool {
        let outcome = Outcome::new(OutcomeCategory::Exception, code);
        let (probe, now) = (&self.shared.recorder, Instant::now());
        if let Some(first) = lane.steps.first() {
            probe.record_unsent(first.metric, intended, started, outcome);
            probe.note_error(first.metric, outcome, note);
        }
        probe.open_span(&lane.spans, intended, started).end(now, outcome);
        tokio::time::sleep(IDLE_WAIT).await;
        false
    }

    /// The task's time ran out while it waited: the request that would have been next is an error of the run that the target never saw.
    #[cold]
    fn record_task_timeout(&self, next: &PreparedStep) {
        let (probe, now) = (&self.shared.recorder, Instant::now());
        probe.record_unsent(next.metric, now, now, TASK_TIMEOUT);
        probe.note_error(
            next.metric,
            TASK_TIMEOUT,
            "the task's time was over before this could be sent: the waits before it take too long",
        );
    }

    /// Ends the group in hand if the next step is of another, and begins that.
    fn switch_group(
        &self,
        next: Option<MetricId>,
        (due, begun): (Instant, Instant),
        ended: Instant,
        group: &mut Option<GroupSpan>,
    ) {
        if let Some(span) = group.take_if(|span| Some(span.metric) != next) {
            self.shared.recorder.record_scheduled_span(
                span.metric,
                span.intended,
                span.started,
                ended,
                span.failed.unwrap_or(PASSED),
            );
        }
        if let (None, Some(metric)) = (&group, next) {
            *group = Some(GroupSpan { metric, intended: due, started: begun, failed: None });
        }
    }

    async fn run_step(&mut self, step: &CompiledStep, here: &PreparedStep, times: RequestTimes) -> StepResult {
        let Some(dynamic) = &step.request.template else {
            return self.send_request(step, here, None, None, times).await;
        };
        let (code, note) = match self.lost_resource() {
            Some(name) => ("RESOURCE_LOST", format!("`{name}` may be another user's by now: this worker was away")),
            None => match self.render(step, dynamic, here) {
                Ok(rendered) => return self.send_request(step, here, Some(rendered), None, times).await,
                Err(RenderError::Unset(unset)) => ("VARIABLE_UNSET", unset_note(self.shared, unset)),
                Err(RenderError::InvalidRequest(reason)) => ("BAD_REQUEST", reason),
            },
        };
        let outcome = Outcome::new(OutcomeCategory::Exception, code);
        let (probe, now) = (&self.shared.recorder, Instant::now());
        probe.record_unsent(here.metric, times.intended, times.started, outcome);
        probe.note_error(here.metric, outcome, &note);
        tokio::time::sleep(IDLE_WAIT).await;
        (now, Some(outcome))
    }

    /// The name of something this user had borrowed and may not use any more.
    fn lost_resource(&self) -> Option<&str> {
        let lost = self.leases.iter().position(|loan| loan.as_ref().is_some_and(|loan| !loan.is_valid()))?;
        Some(&self.shared.compiled.data[lost].name)
    }

    fn render<'l>(
        &mut self,
        step: &CompiledStep,
        dynamic: &RequestTemplate,
        here: &'l PreparedStep,
    ) -> Result<RenderedRequest<'l>, RenderError> {
        let shared = self.shared;
        shared.render_buffers.borrow_mut().render(&step.request, dynamic, here, &mut self.context())
    }

    /// Sends a request and whatever it is redirected to, and judges the last response.
    async fn send_request(
        &mut self,
        step: &CompiledStep,
        here: &PreparedStep,
        rendered: Option<RenderedRequest<'_>>,
        mut hop: Option<PreparedRequest>,
        mut times: RequestTimes,
    ) -> StepResult {
        let probe = &self.shared.recorder;
        let keep = if step.needs_body() { BodyMode::Keep } else { BodyMode::Discard };
        loop {
            let first = rendered.as_ref().map_or(&here.prepared, RenderedRequest::get);
            let request = hop.as_ref().unwrap_or(first);
            let metric = if hop.is_some() { here.redirect_metric(step, probe) } else { here.metric };
            times.started = match hop {
                Some(_) => probe.wait_for_redirect_budget(times.started).await,
                None => probe.wait_for_budget(times.started).await,
            };
            let Some(flight) = probe.begin(metric, times.intended, times.started) else {
                return (Instant::now(), Some(FENCED));
            };
            let mut aloft = RequestGuard::new(flight, self.session);
            let sending = aloft.session.send(request, keep);
            let exchange = match times.deadline {
                None => sending.await,
                Some(deadline) => match tokio::time::timeout_at(deadline.into(), sending).await {
                    Ok(exchange) => exchange,
                    Err(_) => {
                        let now = Instant::now();
                        aloft.abandon(now, TASK_TIMEOUT);
                        return (now, Some(TASK_TIMEOUT));
                    }
                },
            };
            let flight = aloft.in_flight.take().expect("it has not landed yet");
            let ended = exchange.ended;
            let response = match &exchange.result {
                Ok(response) => *response,
                Err(error) => {
                    let outcome = record_failure(probe, metric, flight, &exchange, error);
                    if is_unsent(&exchange) {
                        tokio::time::sleep(IDLE_WAIT).await;
                    }
                    return (ended, Some(outcome));
                }
            };
            let verdict = match follow_redirect(step, request, &response) {
                Some(Ok(next)) => {
                    let passing = RequestVerdict { outcome: step.checks.passing_outcome(response.status), note: None };
                    record_exchange(probe, metric, flight, &exchange, &passing);
                    hop = Some(next);
                    let now = Instant::now();
                    times = RequestTimes { intended: now, started: now, ..times };
                    continue;
                }
                Some(Err(verdict)) => verdict,
                None => {
                    let mut context = RenderContext {
                        slots: self.slots,
                        data: &self.shared.compiled.data,
                        rows: self.rows,
                        user: self.user,
                        iteration: self.iteration,
                        rng: self.rng,
                    };
                    let mut answer = LazyJsonResponse::new(response);
                    let service = ended.saturating_duration_since(times.started);
                    match step.checks.judge(&mut answer, service, &mut context) {
                        Ok(verdict) if verdict.outcome.is_error() => verdict,
                        Ok(verdict) => extract_variables(step, &mut answer, self.slots).unwrap_or(verdict),
                        Err(unset) => RequestVerdict {
                            outcome: Outcome::new(OutcomeCategory::Exception, "VARIABLE_UNSET"),
                            note: Some(unset_note(self.shared, unset)),
                        },
                    }
                }
            };
            record_exchange(probe, metric, flight, &exchange, &verdict);
            return (ended, verdict.outcome.is_error().then_some(verdict.outcome));
        }
    }

    /// Waits as the step says; returns whether the task's time ran out meanwhile.
    async fn think(&mut self, step: &CompiledStep, deadline: Option<Instant>) -> bool {
        let Some(think) = step.think else { return false };
        let until = Instant::now() + think.pick(self.rng.f64());
        let over = deadline.filter(|deadline| *deadline < until);
        tokio::time::sleep_until(over.unwrap_or(until).into()).await;
        over.is_some()
    }

    fn context(&mut self) -> RenderContext<'_> {
        RenderContext {
            slots: self.slots,
            data: &self.shared.compiled.data,
            rows: self.rows,
            user: self.user,
            iteration: self.iteration,
            rng: self.rng,
        }
    }
}

/// The outcome of a span without failures.
const PASSED: Outcome = Outcome { category: OutcomeCategory::Ok, code: squall_metrics::OutcomeCode::Named("OK") };

fn unset_note(shared: &ScenarioThreadState, unset: UnsetVariableError) -> String {
    let name = &shared.compiled.slots[unset.slot].name;
    format!("the variable `{name}` has no value yet: no response has brought it")
}

/// Sets the variables that a good response brings; a verdict if one of them is not there.
fn extract_variables(
    step: &CompiledStep,
    answer: &mut LazyJsonResponse<'_>,
    slots: &mut [Option<TemplateValue>],
) -> Option<RequestVerdict> {
    for extract in &step.extracts {
        match extract.extract(answer) {
            Ok(value) => slots[extract.slot] = Some(value),
            Err(note) => return Some(RequestVerdict::failed("EXTRACT", note)),
        }
    }
    None
}
