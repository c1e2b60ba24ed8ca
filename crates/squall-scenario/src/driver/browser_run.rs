//! Runs one browser task for one user: opens a page of its own, runs the steps on it, and records each step
//! as a request. Driving the page is the job of squall-browser; recording what the page measured is that of
//! [`MeasuredPage`]. Called by [`FlowRun`].

use squall_browser::{BrowserStep, StepError};
use squall_engine::FENCED;
use squall_metrics::{Outcome, OutcomeCategory};
use std::time::Instant;

use super::{
    PreparedFlow, ScenarioThreadState,
    browser_metrics::{MeasuredPage, PreparedBrowserStep},
    flow_run::{FlowRun, GroupSpan, PASSED, StepTimes, describe_render_error},
    request_runner::UNSENT_PAUSE,
    step_request::{StepResult, TASK_TIMEOUT},
};
use crate::compiled_scenario::{CompiledBrowserStep, CompiledFlow};

impl FlowRun<'_> {
    /// Runs the steps of a browser task. Returns whether it was completed.
    pub(super) async fn run_in_browser(
        &mut self,
        flow: &CompiledFlow,
        prepared: &PreparedFlow,
        intended: Instant,
        started: Instant,
    ) -> bool {
        if !self.acquire_rows(flow, prepared, &StepTimes { intended, started, deadline: None }).await {
            return false;
        }
        let shared = self.shared;
        let page = match shared.browser.open_page().await {
            Ok(page) => page,
            Err(reason) => {
                self.record_unopened((flow, prepared), intended, started, &reason).await;
                return false;
            }
        };
        // Opening the page is work of the generator, as the wait for a data row is.
        let started = Instant::now();
        let mut page = MeasuredPage::new(page, shared, &prepared.browser_steps);
        let spans = shared.recorder.open_span(&prepared.spans, intended, started);
        let (ended, failure, completed) = self.run_steps(flow, prepared, &mut page, (intended, started)).await;
        page.close().await;
        spans.end(ended, failure.unwrap_or(PASSED));
        completed
    }

    async fn run_steps(
        &mut self,
        flow: &CompiledFlow,
        prepared: &PreparedFlow,
        page: &mut MeasuredPage<'_>,
        (intended, started): (Instant, Instant),
    ) -> (Instant, Option<Outcome>, bool) {
        let deadline = flow.timeout.map(|timeout| started + timeout);
        let mut times = StepTimes { intended, started, deadline };
        let (mut ended, mut failure) = (started, None);
        let mut group: Option<GroupSpan> = None;
        let mut completed = true;
        for (index, (step, prepared_step)) in flow.browser_steps.iter().zip(&prepared.browser_steps).enumerate() {
            if index > 0 {
                times = times.of_next_step();
            }
            self.switch_group(prepared_step.group, (times.intended, times.started), ended, &mut group);
            let result = self.run_browser_step((index, step, prepared_step), page, times).await;
            ended = result.ended;
            failure = failure.or(result.failure);
            if let Some(group) = &mut group {
                group.failure = group.failure.or(result.failure);
            }
            if result.failure.is_some() && !step.continue_on_failure {
                completed = false;
                break;
            }
            let timed_out = self.think(step.think, deadline).await;
            if let (true, Some(next)) = (timed_out, prepared.browser_steps.get(index + 1)) {
                self.record_task_timeout(next.metric);
                (ended, failure, completed) = (Instant::now(), failure.or(Some(TASK_TIMEOUT)), false);
                break;
            }
        }
        self.switch_group(None, (ended, ended), ended, &mut group);
        (ended, failure, completed)
    }

    async fn run_browser_step(
        &mut self,
        (index, step, prepared): (usize, &CompiledBrowserStep, &PreparedBrowserStep),
        page: &mut MeasuredPage<'_>,
        times: StepTimes,
    ) -> StepResult {
        let shared = self.shared;
        let rendered = match self.render_browser_step(step) {
            Ok(rendered) => rendered,
            Err(reason) => return self.record_unrendered(prepared.metric, &times, reason).await,
        };
        let started = shared.recorder.wait_for_budget(times.started).await;
        let Some(in_flight) = shared.recorder.begin(prepared.metric, times.intended, started) else {
            return StepResult::failed(Instant::now(), FENCED);
        };
        let step_timeout = step.timeout.unwrap_or(shared.compiled.browser.step_timeout);
        let step_deadline = started + step_timeout;
        let deadline = times.deadline.map_or(step_deadline, |task| task.min(step_deadline));
        let run = page.run_step(index, &rendered, times.intended, deadline).await;
        let failure = run.result.as_ref().err().map(|error| match (error, times.deadline) {
            (StepError::Timeout { .. } | StepError::Expectation { .. }, Some(task)) if task <= Instant::now() => {
                TASK_TIMEOUT
            }
            (error, _) => outcome_of(error),
        });
        in_flight.end(run.ended, failure.unwrap_or(PASSED), page.take_received_bytes(), 0);
        if let (Err(error), Some(outcome)) = (&run.result, failure) {
            let picture = page.screenshot(prepared, &step.metric.name).await;
            let picture = picture.map(|path| format!("; screenshot {}", path.display())).unwrap_or_default();
            let note = format!("{error} ({}{picture})", step.location);
            shared.recorder.note_error(prepared.metric, times.intended, outcome, &note);
        }
        StepResult { ended: run.ended, failure }
    }

    fn render_browser_step(&mut self, step: &CompiledBrowserStep) -> Result<BrowserStep, (&'static str, String)> {
        if let Some(lost) = self.lost_resource_error() {
            return Err(lost);
        }
        let shared: &ScenarioThreadState = self.shared;
        let mut context = self.user.context(shared);
        let rendered = step.step.try_map(|template| {
            let mut text = String::new();
            template.render(&mut context, &mut text).map(|()| text)
        });
        rendered.map_err(|error| describe_render_error(shared, error))
    }

    /// Records an iteration for which no page could be opened, and pauses.
    async fn record_unopened(
        &self,
        (flow, prepared): (&CompiledFlow, &PreparedFlow),
        intended: Instant,
        started: Instant,
        reason: &str,
    ) {
        let outcome = Outcome::new(OutcomeCategory::Exception, "BROWSER_LOST");
        let recorder = &self.shared.recorder;
        if let Some(metric) = prepared.first_metric(flow) {
            recorder.record_unsent(metric, intended, started, outcome);
            recorder.note_error(metric, intended, outcome, reason);
        }
        recorder.open_span(&prepared.spans, intended, started).end(Instant::now(), outcome);
        tokio::time::sleep(UNSENT_PAUSE).await;
    }
}

fn outcome_of(error: &StepError) -> Outcome {
    let category = match error {
        StepError::Status { status, .. } => return Outcome::of_status(*status),
        StepError::Navigation { .. } => OutcomeCategory::TransportError,
        StepError::Timeout { .. } => OutcomeCategory::Timeout,
        StepError::Expectation { .. } => OutcomeCategory::CheckFailed,
        StepError::Impossible { .. } | StepError::Crashed | StepError::Browser(_) => OutcomeCategory::Exception,
    };
    Outcome::new(category, error.code())
}
