//! Records what pages measured: the figures of each loaded document, each request that the browser sent, and
//! console errors, under the metric of the step that caused them. It drives no page. Called by
//! `browser_run` and, for what Playwright's pages measured, by the Python module.

use squall_browser::{BrowserStep, Page, PageMeasurements, RequestResult, StepRun, Vitals};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricId, MetricKey, MetricKind, Outcome, OutcomeCategory};
use std::{
    cell::Cell,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{ScenarioThreadState, flow_run::PASSED, thread_browser::UsedBrowser};
use crate::{build::PAGE_FIGURES, compiled_scenario::CompiledBrowserStep};

/// A step of a browser task, prepared for one thread.
pub(super) struct PreparedBrowserStep {
    pub(super) metric: MetricId,
    pub(super) group: Option<MetricId>,
    figures: StepFigures,
    /// Whether this thread has kept a picture of this step's failure. One is enough to see what happened.
    pictured: Cell<bool>,
}

/// Indexes into [`PAGE_FIGURES`].
const REQUESTS: usize = 7;
const CONSOLE_ERRORS: usize = 8;

impl PreparedBrowserStep {
    pub(super) fn new(step: &CompiledBrowserStep, recorder: &ThreadRecorder) -> PreparedBrowserStep {
        PreparedBrowserStep {
            metric: recorder.metric(step.metric.clone()),
            group: step.group.as_ref().map(|group| recorder.metric(MetricKey::group(group))),
            figures: StepFigures::new(step.metric.clone()),
            pictured: Cell::new(false),
        }
    }
}

/// The metrics of what pages measure in one step, beside the metric of the step itself.
pub struct StepFigures {
    key: MetricKey,
    /// The metrics of [`PAGE_FIGURES`], made when they are first needed, because most steps load no page.
    figures: [Cell<Option<MetricId>>; PAGE_FIGURES.len()],
}

impl StepFigures {
    /// `step` is the metric of the step.
    pub fn new(step: MetricKey) -> StepFigures {
        StepFigures { key: step, figures: Default::default() }
    }

    /// Records the figures of a document. Times are as the browser measured them, from the start of the
    /// navigation. CLS has no unit: 1 is recorded as 1 s.
    pub fn record_load(&self, vitals: &Vitals, due: Instant, recorder: &ThreadRecorder) {
        let Vitals { ttfb, fcp, dom_ready, load, lcp, cls, inp } = *vitals;
        let cls = cls.map(|shift| shift * 1000.0);
        for (index, milliseconds) in [ttfb, fcp, dom_ready, load, lcp, cls, inp].into_iter().enumerate() {
            if let Some(milliseconds) = milliseconds {
                let time = Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0));
                recorder.record_span(self.figure(index, recorder), due, due + time, PASSED);
            }
        }
    }

    /// Records a request that the browser sent.
    pub fn record_request(
        &self,
        (result, duration, bytes): (&RequestResult, Duration, u64),
        due: Instant,
        recorder: &ThreadRecorder,
    ) {
        let metric = self.figure(REQUESTS, recorder);
        let outcome = request_outcome(result);
        recorder.record_span(metric, due, due + duration, outcome);
        recorder.add_bytes(metric, due, bytes, 0);
        if let RequestResult::Failed(reason) = result {
            recorder.note_error(metric, due, outcome, reason);
        }
    }

    pub fn record_console_error(&self, message: &str, due: Instant, recorder: &ThreadRecorder) {
        let outcome = Outcome::new(OutcomeCategory::Exception, "CONSOLE_ERROR");
        let metric = self.figure(CONSOLE_ERRORS, recorder);
        recorder.record_span(metric, due, due, outcome);
        recorder.note_error(metric, due, outcome, message);
    }

    fn figure(&self, index: usize, recorder: &ThreadRecorder) -> MetricId {
        self.figures[index].get().unwrap_or_else(|| {
            let name = format!("{}:{}", self.key.name, PAGE_FIGURES[index]);
            let id = recorder.metric(MetricKey { name, kind: MetricKind::Custom, ..self.key.clone() });
            self.figures[index].set(Some(id));
            id
        })
    }
}

/// A page that records what it measures. What a dropped page has measured is recorded too.
pub(super) struct MeasuredPage<'p> {
    /// `None` once it is closed.
    page: Option<Page>,
    /// Dropped after the page.
    _browser: UsedBrowser<'p>,
    shared: &'p ScenarioThreadState,
    steps: &'p [PreparedBrowserStep],
    /// When each step so far was due.
    due: Vec<Instant>,
    /// Received since the last call of `take_received_bytes`.
    received_bytes: Cell<u64>,
}

impl<'p> MeasuredPage<'p> {
    pub(super) fn new(
        (page, browser): (Page, UsedBrowser<'p>),
        shared: &'p ScenarioThreadState,
        steps: &'p [PreparedBrowserStep],
    ) -> MeasuredPage<'p> {
        MeasuredPage {
            page: Some(page),
            _browser: browser,
            shared,
            steps,
            due: Vec::new(),
            received_bytes: Cell::new(0),
        }
    }

    pub(super) async fn run_step(
        &mut self,
        index: usize,
        step: &BrowserStep,
        intended: Instant,
        deadline: Instant,
    ) -> StepRun {
        self.due.push(intended);
        let page = self.page.as_ref().expect("open until `close`");
        let run = page.run_step(index, step, deadline).await;
        self.record(page.take_measurements());
        run
    }

    /// Bytes of the requests that have ended since the last call.
    pub(super) fn take_received_bytes(&self) -> u64 {
        self.received_bytes.take()
    }

    /// Keeps a picture of a failed step, if the scenario names a folder for it.
    pub(super) async fn screenshot(&self, step: &PreparedBrowserStep, name: &str) -> Option<PathBuf> {
        let folder = self.shared.compiled.browser.screenshots.as_ref().filter(|_| !step.pictured.replace(true))?;
        let picture = self.page.as_ref()?.screenshot();
        let picture = tokio::time::timeout(SCREENSHOT_TIMEOUT, picture).await.ok()?.ok()?;
        let file: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let path = folder.join(format!("{file}.png"));
        // A picture that cannot be kept does not change the result of the run.
        std::fs::create_dir_all(folder).ok()?;
        std::fs::write(&path, picture).ok()?;
        Some(path)
    }

    pub(super) async fn close(mut self) {
        if let Some(page) = self.page.take() {
            let rest = page.close().await;
            self.record(rest);
        }
    }

    fn record(&self, measured: PageMeasurements) {
        let recorder = &self.shared.recorder;
        for load in &measured.loads {
            if let Some((step, due)) = self.step(load.step) {
                step.figures.record_load(&load.vitals, due, recorder);
            }
        }
        for request in &measured.requests {
            let Some((step, due)) = self.step(request.step) else { continue };
            step.figures.record_request((&request.result, request.duration, request.bytes), due, recorder);
            self.received_bytes.set(self.received_bytes.get() + request.bytes);
        }
        for error in &measured.console_errors {
            let Some((step, due)) = self.step(error.step) else { continue };
            step.figures.record_console_error(&error.message, due, recorder);
        }
    }

    fn step(&self, index: usize) -> Option<(&'p PreparedBrowserStep, Instant)> {
        Some((self.steps.get(index)?, *self.due.get(index)?))
    }
}

impl Drop for MeasuredPage<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            self.record(page.take_all_measurements());
        }
    }
}

/// A page that hangs cannot be drawn.
const SCREENSHOT_TIMEOUT: Duration = Duration::from_secs(10);

fn request_outcome(result: &RequestResult) -> Outcome {
    match result {
        RequestResult::Status(status) => Outcome::of_status(*status),
        RequestResult::Failed(_) => Outcome::new(OutcomeCategory::TransportError, "REQUEST_FAILED"),
        RequestResult::Cancelled => Outcome::new(OutcomeCategory::Ok, "CANCELLED"),
    }
}
