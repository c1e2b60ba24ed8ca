//! Walks a user through the steps of a flow: draws its data, renders, sends, follows, judges, extracts, records, waits.

use squall_engine::{FENCED, ResourceError, ResourceLease};
use squall_http::{BodyMode, PreparedRequest, Session};
use squall_metrics::{OutcomeCategory, MetricId, Outcome};
use std::time::{Duration, Instant};

use super::{
    Aloft, Lane, LaneStep, Shared,
    exchange::{follow, is_starved, land, land_failure},
    render::{RenderError, Rendered},
};
use crate::{
    check::{Answer, Verdict},
    data::{Order, Per, Row},
    program::{Dynamic, Flow, Step},
    template::{Context, Unset, Value},
};

/// A user on its way through one iteration.
pub(super) struct Walk<'u> {
    pub(super) shared: &'u Shared,
    pub(super) session: &'u mut Session,
    pub(super) rng: &'u mut fastrand::Rng,
    pub(super) slots: &'u mut [Option<Value>],
    pub(super) rows: &'u mut [Option<Row>],
    pub(super) loans: &'u mut [Option<ResourceLease>],
    pub(super) user: u64,
    pub(super) iteration: u64,
}

/// When a request should have started, when it did, and by when its task must be over.
#[derive(Clone, Copy)]
struct Times {
    intended: Instant,
    started: Instant,
    deadline: Option<Instant>,
}

/// How a step ended: when, and with what if it failed.
type Ended = (Instant, Option<Outcome>);

/// A span around consecutive steps.
struct Span {
    metric: MetricId,
    due: Instant,
    begun: Instant,
    failed: Option<Outcome>,
}

/// A user that has nothing to send, or nothing to send it by, waits this long, so that a closed loop does not spin.
pub(super) const IDLE: Duration = Duration::from_millis(100);

const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: squall_metrics::OutcomeCode::Named("TASK_TIMEOUT") };

impl Walk<'_> {
    /// Runs `flow` once and says whether it was completed.
    pub(super) async fn flow(&mut self, flow: &Flow, lane: &Lane, intended: Instant, started: Instant) -> bool {
        if let Err((code, note)) = self.draw(flow).await {
            return self.nothing_sent(lane, intended, started, code, &note).await;
        }
        // What was waited for, a row or a resource, is no part of the target's service.
        let started = if flow.data.is_empty() { started } else { Instant::now() };
        let deadline = flow.timeout.map(|timeout| started + timeout);
        let mut times = Times { intended, started, deadline };
        let (mut ended, mut failed, mut completed) = (started, None, true);
        let shared = self.shared;
        let spans = shared.probe.open_span(&lane.spans, intended, started);
        let mut group: Option<Span> = None;
        for (index, (step, here)) in flow.steps.iter().zip(&lane.steps).enumerate() {
            if index > 0 {
                let now = Instant::now();
                times = Times { intended: now, started: now, deadline };
            }
            self.enter(here.group, (times.intended, times.started), ended, &mut group);
            let (end, outcome) = self.step(step, here, times).await;
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
                self.never_came(next);
                (ended, failed, completed) = (Instant::now(), failed.or(Some(TASK_TIMEOUT)), false);
                break;
            }
        }
        self.enter(None, (ended, ended), ended, &mut group);
        spans.end(ended, failed.unwrap_or(PASSED));
        completed
    }

    /// Follows a redirect to its end.
    pub(super) async fn hops(&mut self, step: &Step, here: &LaneStep, next: PreparedRequest) -> bool {
        let now = Instant::now();
        let times = Times { intended: now, started: now, deadline: None };
        self.exchange(step, here, None, Some(next), times).await.1.is_none()
    }

    /// Takes a row of every data source that `flow` uses, or says which has none left.
    async fn draw(&mut self, flow: &Flow) -> Result<(), (&'static str, String)> {
        for &index in &flow.data {
            let table = &self.shared.program.data[index];
            if let Order::Held { wait } = table.order {
                // Boxed: most users hold nothing, and none should be larger for it.
                Box::pin(self.hold(index, wait)).await.map_err(|error| (error.code(), error.to_string()))?;
                continue;
            }
            if table.per == Per::User && self.rows[index].is_some() {
                continue;
            }
            self.rows[index] = self.shared.dealers[index].deal(table, self.user, self.rng).await.map(Row::Own);
            if self.rows[index].is_none() {
                return Err(("DATA_EXHAUSTED", format!("data `{}` has no more rows", table.name)));
            }
        }
        Ok(())
    }

    /// Borrows a row that nobody else holds, unless this user has one.
    async fn hold(&mut self, index: usize, wait: Duration) -> Result<(), ResourceError> {
        if self.loans[index].as_ref().is_some_and(ResourceLease::is_valid) {
            return Ok(());
        }
        // First what may be another's by now.
        (self.loans[index], self.rows[index]) = (None, None);
        let table = &self.shared.program.data[index];
        let loan = self.shared.probe.resources()?.acquire(&table.name, wait).await?;
        match table.lent(loan.id(), loan.payload()) {
            Ok(row) => (self.loans[index], self.rows[index]) = (Some(loan), Some(row)),
            Err(unusable) => {
                // Given back it would be this user's again at once.
                let mut kept = self.shared.unusable.borrow_mut();
                kept.retain(ResourceLease::is_valid);
                kept.push(loan);
                return Err(ResourceError::Refused(unusable.to_string()));
            }
        }
        Ok(())
    }

    /// Records an iteration that failed before anything could be sent.
    async fn nothing_sent(
        &mut self,
        lane: &Lane,
        intended: Instant,
        started: Instant,
        code: &'static str,
        note: &str,
    ) -> bool {
        let outcome = Outcome::new(OutcomeCategory::Exception, code);
        let (probe, now) = (&self.shared.probe, Instant::now());
        if let Some(first) = lane.steps.first() {
            probe.record_unsent(first.metric, intended, started, outcome);
            probe.note_error(first.metric, outcome, note);
        }
        probe.open_span(&lane.spans, intended, started).end(now, outcome);
        tokio::time::sleep(IDLE).await;
        false
    }

    /// The task's time ran out while it waited: the request that would have been next is an error of the run that the target never saw.
    #[cold]
    fn never_came(&self, next: &LaneStep) {
        let (probe, now) = (&self.shared.probe, Instant::now());
        probe.record_unsent(next.metric, now, now, TASK_TIMEOUT);
        probe.note_error(
            next.metric,
            TASK_TIMEOUT,
            "the task's time was over before this could be sent: the waits before it take too long",
        );
    }

    /// Ends the group in hand if the next step is of another, and begins that.
    fn enter(
        &self,
        next: Option<MetricId>,
        (due, begun): (Instant, Instant),
        ended: Instant,
        group: &mut Option<Span>,
    ) {
        if let Some(span) = group.take_if(|span| Some(span.metric) != next) {
            self.shared.probe.record_scheduled_span(span.metric, span.due, span.begun, ended, span.failed.unwrap_or(PASSED));
        }
        if let (None, Some(metric)) = (&group, next) {
            *group = Some(Span { metric, due, begun, failed: None });
        }
    }

    async fn step(&mut self, step: &Step, here: &LaneStep, times: Times) -> Ended {
        let Some(dynamic) = &step.request.dynamic else {
            return self.exchange(step, here, None, None, times).await;
        };
        let (code, note) = match self.lost() {
            Some(name) => ("RESOURCE_LOST", format!("`{name}` may be another user's by now: this worker was away")),
            None => match self.render(step, dynamic, here) {
                Ok(rendered) => return self.exchange(step, here, Some(rendered), None, times).await,
                Err(RenderError::Unset(unset)) => ("VARIABLE_UNSET", unset_note(self.shared, unset)),
                Err(RenderError::Refused(reason)) => ("BAD_REQUEST", reason),
            },
        };
        let outcome = Outcome::new(OutcomeCategory::Exception, code);
        let (probe, now) = (&self.shared.probe, Instant::now());
        probe.record_unsent(here.metric, times.intended, times.started, outcome);
        probe.note_error(here.metric, outcome, &note);
        tokio::time::sleep(IDLE).await;
        (now, Some(outcome))
    }

    /// The name of something this user had borrowed and may not use any more.
    fn lost(&self) -> Option<&str> {
        let lost = self.loans.iter().position(|loan| loan.as_ref().is_some_and(|loan| !loan.is_valid()))?;
        Some(&self.shared.program.data[lost].name)
    }

    fn render<'l>(&mut self, step: &Step, dynamic: &Dynamic, here: &'l LaneStep) -> Result<Rendered<'l>, RenderError> {
        let shared = self.shared;
        shared.scratch.borrow_mut().render(&step.request, dynamic, here, &mut self.context())
    }

    /// Sends a request and whatever it is redirected to, and judges the last response.
    async fn exchange(
        &mut self,
        step: &Step,
        here: &LaneStep,
        rendered: Option<Rendered<'_>>,
        mut hop: Option<PreparedRequest>,
        mut times: Times,
    ) -> Ended {
        let probe = &self.shared.probe;
        let keep = if step.needs_body() { BodyMode::Keep } else { BodyMode::Discard };
        loop {
            let first = rendered.as_ref().map_or(&here.prepared, Rendered::get);
            let request = hop.as_ref().unwrap_or(first);
            let metric = if hop.is_some() { here.redirect_metric(step, probe) } else { here.metric };
            times.started = match hop {
                Some(_) => probe.wait_for_redirect_budget(times.started).await,
                None => probe.wait_for_budget(times.started).await,
            };
            let Some(flight) = probe.begin(metric, times.intended, times.started) else {
                return (Instant::now(), Some(FENCED));
            };
            let mut aloft = Aloft::new(flight, self.session);
            let sending = aloft.session.send(request, keep);
            let exchange = match times.deadline {
                None => sending.await,
                Some(deadline) => match tokio::time::timeout_at(deadline.into(), sending).await {
                    Ok(exchange) => exchange,
                    Err(_) => {
                        let now = Instant::now();
                        aloft.cut_off(now, TASK_TIMEOUT);
                        return (now, Some(TASK_TIMEOUT));
                    }
                },
            };
            let flight = aloft.flight.take().expect("it has not landed yet");
            let ended = exchange.ended;
            let response = match &exchange.result {
                Ok(response) => *response,
                Err(error) => {
                    let outcome = land_failure(probe, metric, flight, &exchange, error);
                    if is_starved(&exchange) {
                        tokio::time::sleep(IDLE).await;
                    }
                    return (ended, Some(outcome));
                }
            };
            let verdict = match follow(step, request, &response) {
                Some(Ok(next)) => {
                    let passing = Verdict { outcome: step.checks.passing(response.status), note: None };
                    land(probe, metric, flight, &exchange, &passing);
                    hop = Some(next);
                    let now = Instant::now();
                    times = Times { intended: now, started: now, ..times };
                    continue;
                }
                Some(Err(verdict)) => verdict,
                None => {
                    let mut context = Context {
                        slots: self.slots,
                        data: &self.shared.program.data,
                        rows: self.rows,
                        user: self.user,
                        iteration: self.iteration,
                        rng: self.rng,
                    };
                    let mut answer = Answer::new(response);
                    let service = ended.saturating_duration_since(times.started);
                    match step.checks.judge(&mut answer, service, &mut context) {
                        Ok(verdict) if verdict.outcome.is_error() => verdict,
                        Ok(verdict) => take_out(step, &mut answer, self.slots).unwrap_or(verdict),
                        Err(unset) => Verdict {
                            outcome: Outcome::new(OutcomeCategory::Exception, "VARIABLE_UNSET"),
                            note: Some(unset_note(self.shared, unset)),
                        },
                    }
                }
            };
            land(probe, metric, flight, &exchange, &verdict);
            return (ended, verdict.outcome.is_error().then_some(verdict.outcome));
        }
    }

    /// Waits as the step says; returns whether the task's time ran out meanwhile.
    async fn think(&mut self, step: &Step, deadline: Option<Instant>) -> bool {
        let Some(think) = step.think else { return false };
        let until = Instant::now() + think.pick(self.rng.f64());
        let over = deadline.filter(|deadline| *deadline < until);
        tokio::time::sleep_until(over.unwrap_or(until).into()).await;
        over.is_some()
    }

    fn context(&mut self) -> Context<'_> {
        Context {
            slots: self.slots,
            data: &self.shared.program.data,
            rows: self.rows,
            user: self.user,
            iteration: self.iteration,
            rng: self.rng,
        }
    }
}

/// The outcome of a span without failures.
const PASSED: Outcome = Outcome { category: OutcomeCategory::Ok, code: squall_metrics::OutcomeCode::Named("OK") };

fn unset_note(shared: &Shared, unset: Unset) -> String {
    let name = &shared.program.slots[unset.slot].name;
    format!("the variable `{name}` has no value yet: no response has brought it")
}

/// Sets the variables that a good response brings; a verdict if one of them is not there.
fn take_out(step: &Step, answer: &mut Answer<'_>, slots: &mut [Option<Value>]) -> Option<Verdict> {
    for extract in &step.extracts {
        match extract.take(answer) {
            Ok(value) => slots[extract.slot] = Some(value),
            Err(note) => return Some(Verdict::failed("EXTRACT", note)),
        }
    }
    None
}
