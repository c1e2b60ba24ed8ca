//! Runs one flow of steps for one user: acquires its data rows, renders and sends each request, waits
//! between steps, and records groups. Judging a response is the job of
//! [`StepHandler`](super::step_request::StepHandler). Called by
//! [`ScenarioUser`](super::ScenarioUser), once per iteration and once for `on_start`.

use squall_engine::{ResourceError, ResourceLease};
use squall_http::Session;
use squall_metrics::{MetricId, Outcome, OutcomeCategory, OutcomeCode};
use squall_model::Pause;
use std::time::{Duration, Instant};

use super::{
    PreparedFlow, PreparedStep, ScenarioThreadState,
    render::{RenderError, RenderedRequest},
    request_runner::UNSENT_PAUSE,
    step_request::{StepHandler, StepResult, TASK_TIMEOUT},
};
use crate::{
    compiled_scenario::{CompiledFlow, CompiledStep, FlowStep, RequestTemplate},
    data::{RowLifetime, RowOrder, UserRow},
    template::{MAX_RENDERED_BYTES, RenderContext, RenderTemplateError, TemplateValue},
};

/// A user on its way through one iteration.
pub(super) struct FlowRun<'u> {
    pub(super) shared: &'u ScenarioThreadState,
    pub(super) session: &'u mut Session,
    pub(super) user: UserState<'u>,
}

/// What templates, checks and extractors use of a user.
pub(super) struct UserState<'u> {
    pub(super) rng: &'u mut fastrand::Rng,
    pub(super) variables: &'u mut [Option<TemplateValue>],
    pub(super) rows: &'u mut [Option<UserRow>],
    pub(super) leases: &'u mut [Option<ResourceLease>],
    pub(super) number: u64,
    pub(super) iteration: u64,
}

impl UserState<'_> {
    pub(super) fn context<'c>(&'c mut self, shared: &'c ScenarioThreadState) -> RenderContext<'c> {
        RenderContext {
            variables: self.variables,
            data: &shared.compiled.data,
            rows: self.rows,
            user: self.number,
            iteration: self.iteration,
            rng: self.rng,
        }
    }
}

/// When a step should have started, when it did, and by when its task must end.
#[derive(Clone, Copy)]
pub(super) struct StepTimes {
    pub(super) intended: Instant,
    pub(super) started: Instant,
    pub(super) deadline: Option<Instant>,
}

impl StepTimes {
    /// Those of the next step of the same task, which is due now.
    pub(super) fn of_next_step(self) -> StepTimes {
        let now = Instant::now();
        StepTimes { intended: now, started: now, ..self }
    }
}

/// A span around consecutive steps.
pub(super) struct GroupSpan {
    metric: MetricId,
    intended: Instant,
    started: Instant,
    pub(super) failure: Option<Outcome>,
}

/// Why a flow cannot have the data rows that it needs.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error("data `{name}` has no more rows")]
    Exhausted { name: String },
    #[error(transparent)]
    Resource(#[from] ResourceError),
}

impl RowError {
    fn code(&self) -> &'static str {
        match self {
            RowError::Exhausted { .. } => "DATA_EXHAUSTED",
            RowError::Resource(error) => error.code(),
        }
    }
}

/// The outcome of a span without failures.
pub(super) const PASSED: Outcome = Outcome { category: OutcomeCategory::Ok, code: OutcomeCode::Named("OK") };

impl FlowRun<'_> {
    /// Runs `flow` once. Returns whether it was completed.
    ///
    /// Not an `async fn`, whose future keeps each argument twice: the future of an iteration should fit into a
    /// block that the allocator keeps.
    pub(super) fn run(
        &mut self,
        flow: &CompiledFlow,
        prepared: &PreparedFlow,
        intended: Instant,
        started: Instant,
    ) -> impl Future<Output = bool> {
        let mut times = StepTimes { intended, started, deadline: None };
        async move {
            #[cfg(feature = "browser")]
            if !flow.browser_steps.is_empty() {
                // Boxed: most users open no pages, and none should be larger for it.
                return Box::pin(self.run_in_browser(flow, prepared, times.intended, times.started)).await;
            }
            if !flow.data.is_empty() {
                if !self.acquire_rows(flow, prepared, &times).await {
                    return false;
                }
                // The wait for a row or a resource is not part of the target's service time.
                times.started = Instant::now();
            }
            times.deadline = flow.timeout.map(|timeout| times.started + timeout);
            let (mut ended, mut failure) = (times.started, None);
            let spans = self.shared.recorder.open_span(&prepared.spans, times.intended, times.started);
            let mut group: Option<GroupSpan> = None;
            let mut index = 0;
            let completed = loop {
                let Some(&step) = flow.order.get(index) else { break true };
                if index > 0 {
                    times = times.of_next_step();
                }
                index += 1;
                let (_, step_group) = prepared.metric_and_group(step);
                self.switch_group(step_group, (times.intended, times.started), ended, &mut group);
                let step_failure = {
                    let result = match step {
                        FlowStep::Request(at) => self.run_step(&flow.steps[at], &prepared.steps[at], &times).await,
                        #[cfg(feature = "cql")]
                        FlowStep::Statement(at) => {
                            // Boxed: most users send no statements, and none should be larger for it.
                            Box::pin(self.run_statement(&flow.statements[at], &prepared.statements[at], &times)).await
                        }
                        #[cfg(not(feature = "cql"))]
                        FlowStep::Statement(_) => unreachable!("no statement is built without the feature"),
                    };
                    ended = result.ended;
                    result.failure
                };
                failure = failure.or(step_failure);
                if let Some(group) = &mut group {
                    group.failure = group.failure.or(step_failure);
                }
                let (think, continue_on_failure) = flow.after_step(flow.order[index - 1]);
                if step_failure.is_some() && !continue_on_failure {
                    break false;
                }
                let timed_out = self.think(think, times.deadline).await;
                if let (true, Some(&next)) = (timed_out, flow.order.get(index)) {
                    self.record_task_timeout(prepared.metric_and_group(next).0);
                    (ended, failure) = (Instant::now(), failure.or(Some(TASK_TIMEOUT)));
                    break false;
                }
            };
            self.switch_group(None, (ended, ended), ended, &mut group);
            spans.end(ended, failure.unwrap_or(PASSED));
            completed
        }
    }

    /// Takes a row of every data source that `flow` uses. Returns `false` if one has none: the iteration is
    /// then recorded as failed before its first request, and the user has paused.
    pub(super) async fn acquire_rows(
        &mut self,
        flow: &CompiledFlow,
        prepared: &PreparedFlow,
        times: &StepTimes,
    ) -> bool {
        match self.take_rows(flow).await {
            Ok(()) => true,
            Err(error) => {
                self.record_missing_data(flow, prepared, times, &error);
                tokio::time::sleep(UNSENT_PAUSE).await;
                false
            }
        }
    }

    async fn take_rows(&mut self, flow: &CompiledFlow) -> Result<(), RowError> {
        for &index in &flow.data {
            let table = &self.shared.compiled.data[index];
            if let RowOrder::Leased { wait } = table.order {
                // Boxed: most users lease no resources, and none should be larger for it.
                Box::pin(self.acquire_resource(index, wait)).await?;
                continue;
            }
            let user = &mut self.user;
            if table.per == RowLifetime::User && user.rows[index].is_some() {
                continue;
            }
            let row = self.shared.feeders[index].next_row(table, user.number, user.rng).await;
            user.rows[index] = row.map(UserRow::TableIndex);
            if user.rows[index].is_none() {
                return Err(RowError::Exhausted { name: table.name.clone() });
            }
        }
        Ok(())
    }

    /// Leases a resource, unless this user has one.
    async fn acquire_resource(&mut self, index: usize, wait: Duration) -> Result<(), ResourceError> {
        let user = &mut self.user;
        if user.leases[index].as_ref().is_some_and(ResourceLease::is_valid) {
            return Ok(());
        }
        // Cleared first: another user may have this resource by now.
        (user.leases[index], user.rows[index]) = (None, None);
        let table = &self.shared.compiled.data[index];
        let lease = self.shared.recorder.resources()?.acquire(&table.name, wait).await?;
        match table.resource_row(lease.id(), lease.payload()) {
            Ok(row) => (user.leases[index], user.rows[index]) = (Some(lease), Some(row)),
            Err(unusable) => {
                // Kept: released, the pool would hand it to this user again at once.
                let mut kept = self.shared.unusable_leases.borrow_mut();
                kept.retain(ResourceLease::is_valid);
                kept.push(lease);
                return Err(ResourceError::Refused(unusable.to_string()));
            }
        }
        Ok(())
    }

    #[cold]
    fn record_missing_data(
        &self,
        flow: &CompiledFlow,
        prepared: &PreparedFlow,
        &StepTimes { intended, started, .. }: &StepTimes,
        error: &RowError,
    ) {
        let outcome = Outcome::new(OutcomeCategory::Exception, error.code());
        let (recorder, now) = (&self.shared.recorder, Instant::now());
        if let Some(metric) = prepared.first_metric(flow) {
            recorder.record_unsent(metric, intended, started, outcome);
            recorder.note_error(metric, intended, outcome, &error.to_string());
        }
        recorder.open_span(&prepared.spans, intended, started).end(now, outcome);
    }

    /// Records a request that the task's time limit left no time to send. It is an error of the run
    /// that the target never saw.
    #[cold]
    pub(super) fn record_task_timeout(&self, next: MetricId) {
        let (recorder, now) = (&self.shared.recorder, Instant::now());
        recorder.record_unsent(next, now, now, TASK_TIMEOUT);
        recorder.note_error(
            next,
            now,
            TASK_TIMEOUT,
            "not sent: the task's time limit passed during the think time before this request; \
             raise `timeout` or shorten `think`",
        );
    }

    /// Ends the open group if the next step belongs to another one, and opens that one.
    pub(super) fn switch_group(
        &self,
        next: Option<MetricId>,
        (intended, started): (Instant, Instant),
        ended: Instant,
        group: &mut Option<GroupSpan>,
    ) {
        if let Some(span) = group.take_if(|span| Some(span.metric) != next) {
            self.shared.recorder.record_scheduled_span(
                span.metric,
                span.intended,
                span.started,
                ended,
                span.failure.unwrap_or(PASSED),
            );
        }
        if let (None, Some(metric)) = (&group, next) {
            *group = Some(GroupSpan { metric, intended, started, failure: None });
        }
    }

    #[expect(clippy::manual_async_fn, reason = "the future of an async fn keeps each argument twice")]
    fn run_step(
        &mut self,
        step: &CompiledStep,
        prepared: &PreparedStep,
        times: &StepTimes,
    ) -> impl Future<Output = StepResult> {
        async move {
            let rendered = match &step.request.template {
                None => None,
                Some(template) => match self.render(step, template, prepared) {
                    Ok(rendered) => Some(rendered),
                    // Boxed: a user rarely fails to render, and should not be larger for it.
                    Err(reason) => return Box::pin(self.record_unrendered(prepared.metric, times, reason)).await,
                },
            };
            let request = rendered.as_ref().map_or(&prepared.base_request, RenderedRequest::get);
            StepHandler::new(self.shared, (step, prepared), &mut self.user).send(self.session, request, times).await
        }
    }

    /// Renders the step's request. Fails with an outcome's code and a message.
    fn render<'l>(
        &mut self,
        step: &CompiledStep,
        template: &RequestTemplate,
        prepared: &'l PreparedStep,
    ) -> Result<RenderedRequest<'l>, (&'static str, String)> {
        if let Some(lost) = self.lost_resource_error() {
            return Err(lost);
        }
        let shared = self.shared;
        let mut context = self.user.context(shared);
        let rendered = shared.render_buffers.borrow_mut().render(&step.request, template, prepared, &mut context);
        rendered.map_err(|error| match error {
            RenderError::Template(error) => describe_render_error(shared, error),
            RenderError::InvalidRequest(reason) => ("BAD_REQUEST", reason),
        })
    }

    /// Records a request that could not be rendered, and pauses.
    #[cold]
    pub(super) async fn record_unrendered(
        &self,
        metric: MetricId,
        times: &StepTimes,
        (code, note): (&'static str, String),
    ) -> StepResult {
        let outcome = Outcome::new(OutcomeCategory::Exception, code);
        let (recorder, now) = (&self.shared.recorder, Instant::now());
        recorder.record_unsent(metric, times.intended, times.started, outcome);
        recorder.note_error(metric, times.intended, outcome, &note);
        tokio::time::sleep(UNSENT_PAUSE).await;
        StepResult::failed(now, outcome)
    }

    /// The outcome's code and the message if this user has lost a lease.
    pub(super) fn lost_resource_error(&self) -> Option<(&'static str, String)> {
        let name = self.lost_resource()?;
        let note = format!("the lease of `{name}` has expired: this worker was away, and another user may have it");
        Some(("RESOURCE_LOST", note))
    }

    /// The data source of a lease that this user has lost.
    fn lost_resource(&self) -> Option<&str> {
        let lost = |lease: &Option<ResourceLease>| lease.as_ref().is_some_and(|lease| !lease.is_valid());
        let index = self.user.leases.iter().position(lost)?;
        Some(&self.shared.compiled.data[index].name)
    }

    /// Waits for the step's think time. Returns whether the task's time limit cut the wait.
    pub(super) async fn think(&mut self, think: Option<Pause>, deadline: Option<Instant>) -> bool {
        let Some(think) = think else { return false };
        let until = Instant::now() + think.pick(self.user.rng.f64());
        let cut_at = deadline.filter(|deadline| *deadline < until);
        tokio::time::sleep_until(cut_at.unwrap_or(until).into()).await;
        cut_at.is_some()
    }
}

/// The code of an outcome and a message.
pub(super) fn describe_render_error(
    shared: &ScenarioThreadState,
    error: RenderTemplateError,
) -> (&'static str, String) {
    match error {
        RenderTemplateError::Unset { variable } => {
            let name = &shared.compiled.variables[variable].name;
            ("VARIABLE_UNSET", format!("the variable `{name}` has no value yet: no response has set it"))
        }
        RenderTemplateError::TooLong => {
            let limit = MAX_RENDERED_BYTES >> 20;
            ("VALUE_TOO_LONG", format!("the path, a header, the body or an expected text is longer than {limit} MiB"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_output<A, B, C, T>(_: impl FnOnce(A, B, C) -> T) -> usize {
        size_of::<T>()
    }

    /// glibc keeps freed blocks of up to 1,032 bytes for the thread that freed them. A larger block costs
    /// each iteration about a tenth of the program's instructions.
    #[test]
    fn iteration_fits_into_a_block_that_the_allocator_keeps() {
        let iteration =
            |run: &'static mut FlowRun<'static>, flow: &'static CompiledFlow, prepared: &'static PreparedFlow| {
                let now = Instant::now();
                run.run(flow, prepared, now, now)
            };
        let bytes = size_of_output(iteration);
        assert!(bytes <= 1032, "the future of an iteration takes {bytes} bytes");
    }
}
