//! Browsers of Python users: starts the browser that Playwright connects to, registers Playwright's driver as
//! part of the generator, and records steps and what their pages measured. It drives no page and reads no
//! event of Playwright: `squall._browser` does, and calls this on the engine thread.

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use squall_engine::{HelperProcesses, ThreadRecorder};
use squall_metrics::{MetricId, MetricKey, Outcome, OutcomeCategory};
use squall_scenario::{BrowserSettings, RequestResult, StepFigures, ThreadBrowser, Vitals};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    asyncio_loop,
    driver::exception_code,
    exceptions,
    long_operation::{LongOperation, LongOperationKind},
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
};

thread_local! {
    static THREAD_BROWSERS: RefCell<Option<Rc<ThreadBrowsers>>> = const { RefCell::new(None) };
}

/// What the browser users of one engine thread share.
pub(crate) struct ThreadBrowsers {
    settings: BrowserSettings,
    browser: Rc<ThreadBrowser>,
    recorder: ThreadRecorder,
    prefix: String,
    base_url: String,
    steps: RefCell<HashMap<String, Rc<StepMetrics>>>,
    /// Playwright's driver, whose CPU time and memory count as the generator's.
    driver: RefCell<Option<HelperProcesses>>,
    starting: RefCell<JoinSet<()>>,
}

struct StepMetrics {
    metric: MetricId,
    figures: StepFigures,
}

impl ThreadBrowsers {
    /// Makes the browsers of this thread. Only code of this thread uses them.
    pub(crate) fn set_up(settings: &BrowserSettings, recorder: &ThreadRecorder, names: (&str, &str)) {
        let (prefix, base_url) = (names.0.to_owned(), names.1.to_owned());
        THREAD_BROWSERS.set(Some(Rc::new(ThreadBrowsers {
            settings: settings.clone(),
            browser: Rc::new(ThreadBrowser::listening(settings)),
            recorder: recorder.clone(),
            prefix,
            base_url,
            steps: RefCell::default(),
            driver: RefCell::default(),
            starting: RefCell::default(),
        })));
    }

    /// Ends the browser of this thread.
    pub(crate) fn tear_down() {
        drop(THREAD_BROWSERS.take());
    }

    fn step(&self, name: &str) -> Rc<StepMetrics> {
        let mut steps = self.steps.borrow_mut();
        if let Some(known) = steps.get(name) {
            return known.clone();
        }
        let key = MetricKey::request(format!("{}{name}", self.prefix));
        let step = StepMetrics { metric: self.recorder.metric(key.clone()), figures: StepFigures::new(key) };
        steps.entry(name.to_owned()).or_insert(Rc::new(step)).clone()
    }
}

fn thread_browsers() -> PyResult<Rc<ThreadBrowsers>> {
    let browsers = THREAD_BROWSERS.with_borrow(Clone::clone);
    browsers.ok_or_else(|| PyRuntimeError::new_err("browsers work inside a running scenario on asyncio"))
}

/// The settings of browsers: viewport, time limit of a step in milliseconds, folder for screenshots, target.
type PageSettings = ((u32, u32), f64, Option<String>, String);

#[pyfunction]
pub(crate) fn browser_settings() -> PyResult<PageSettings> {
    let browsers = thread_browsers()?;
    let settings = &browsers.settings;
    let screenshots = settings.screenshots.as_ref().map(|folder| folder.display().to_string());
    let timeout = settings.step_timeout.as_secs_f64() * 1e3;
    Ok((settings.viewport.unwrap_or((1280, 720)), timeout, screenshots, browsers.base_url.clone()))
}

/// Starts the browser if none runs. The result of `future` becomes its CDP URL, or the URL and the token of
/// the grid.
#[pyfunction]
pub(crate) fn start_browser(py: Python<'_>, future: Py<PyAny>) -> PyResult<()> {
    let browsers = thread_browsers()?;
    if let Some(grid) = &browsers.settings.grid {
        let place = ("grid", grid.playwright_url(), grid.token.clone());
        return future.call_method1(py, "set_result", (place,)).map(drop);
    }
    let browser = browsers.browser.clone();
    browsers.starting.borrow_mut().spawn_local(async move {
        let endpoint = browser.endpoint().await;
        Python::attach(|py| {
            let set = match endpoint {
                Ok(url) => future.call_method1(py, "set_result", (("cdp", url, None::<String>),)),
                Err(reason) => {
                    let error = PyRuntimeError::new_err(reason);
                    future.call_method1(py, "set_exception", (error.into_value(py),))
                }
            };
            // A future that the code has cancelled takes no result.
            drop(set);
        });
        asyncio_loop::wake_loop();
    });
    Ok(())
}

/// Gives up the browser of this thread, which does not answer; the next start is that of another.
#[pyfunction]
pub(crate) fn give_up_browser() -> PyResult<()> {
    thread_browsers().map(|browsers| browsers.browser.give_up())
}

/// Counts the process group of Playwright's driver as a part of the generator.
#[pyfunction]
pub(crate) fn register_browser_driver(group: i32) -> PyResult<()> {
    let registered = HelperProcesses::register(group);
    // The old registration ends with the process that it stands for.
    drop(thread_browsers()?.driver.borrow_mut().replace(registered));
    Ok(())
}

/// Reads the CPU time of Playwright's driver for the last time. Call it before the driver is ended.
#[pyfunction]
pub(crate) fn release_browser_driver() {
    if let Ok(browsers) = thread_browsers() {
        drop(browsers.driver.borrow_mut().take());
    }
}

/// The script that observes the figures of a page.
#[pyfunction]
pub(crate) fn browser_page_script() -> &'static str {
    squall_scenario::PAGE_SCRIPT
}

/// One step of a browser user, and what pages measured in it.
#[pyclass(unsendable, name = "BrowserStep", module = "squall._squall")]
pub(crate) struct PythonBrowserStep {
    name: String,
    browsers: Rc<ThreadBrowsers>,
    metrics: Rc<StepMetrics>,
    due: Cell<Instant>,
    /// When the step's code had ended; the wait for the first paint after it is not included.
    acted: Cell<Option<Instant>>,
    received_bytes: Cell<u64>,
    end: RefCell<Option<oneshot::Sender<StepEnd>>>,
}

struct StepEnd {
    ended: Instant,
    outcome: Outcome,
    message: Option<String>,
    received_bytes: u64,
}

#[pymethods]
impl PythonBrowserStep {
    /// A step that is due now. Without `run` it is not recorded itself, only what pages measured.
    #[new]
    fn new(name: &str) -> PyResult<PythonBrowserStep> {
        let browsers = thread_browsers()?;
        Ok(PythonBrowserStep {
            name: name.to_owned(),
            metrics: browsers.step(name),
            browsers,
            due: Cell::new(Instant::now()),
            acted: Cell::new(None),
            received_bytes: Cell::new(0),
            end: RefCell::default(),
        })
    }

    /// The operation that is the step as a request of the run. It sets the result of `begun` when it may
    /// send, and ends with `end`.
    fn run(slf: Bound<'_, Self>, queue: Py<OperationQueue>, begun: Py<PyAny>) -> Operation {
        let (sender, ended) = oneshot::channel();
        let metric = slf.borrow().metrics.metric;
        slf.borrow().end.replace(Some(sender));
        let step = slf.unbind();
        let work = LongOperation::new(LongOperationKind::Open, move |context| {
            Box::pin(async move {
                let recorder = context.recorder();
                let due = Instant::now() - context.start_delay;
                let started = recorder.wait_for_budget(Instant::now()).await;
                let in_flight = recorder.begin(metric, due, started);
                Python::attach(|py| {
                    let step = step.borrow(py);
                    step.due.set(due);
                    match in_flight {
                        Some(_) => begun.call_method1(py, "set_result", (py.None(),)),
                        None => {
                            let fenced = exceptions::worker_fenced(py, &step.name).into_value(py);
                            begun.call_method1(py, "set_exception", (fenced,))
                        }
                    }
                })?;
                asyncio_loop::wake_loop();
                // A step that is dropped without an end counts as cancelled.
                if let (Some(in_flight), Ok(end)) = (in_flight, ended.await) {
                    in_flight.end(end.ended, end.outcome, end.received_bytes, 0);
                    end.message.iter().for_each(|note| recorder.note_error(metric, due, end.outcome, note));
                }
                Ok(Python::attach(|py| py.None()))
            })
        });
        Operation::new(OperationWork::Long(work), Some(queue))
    }

    /// Notes that the step's code has ended.
    fn set_acted(&self) {
        self.acted.set(Some(Instant::now()));
    }

    /// Ends the step: `category` is a status, or the name of a category of outcomes.
    #[pyo3(signature = (category, code, message = None))]
    fn end(&self, category: StepCategory, code: &str, message: Option<String>) {
        let outcome = match category {
            StepCategory::Status(status) => Outcome::of_status(status),
            StepCategory::Name(name) => Outcome::new(outcome_category(&name), exception_code(code)),
        };
        let ended = self.acted.get().unwrap_or_else(Instant::now);
        if let Some(sender) = self.end.borrow_mut().take() {
            // A step that the engine has cut off is recorded.
            drop(sender.send(StepEnd { ended, outcome, message, received_bytes: self.received_bytes.get() }));
        }
    }

    /// Records the figures of a document, as `page.js` reports them in JSON.
    fn record_load(&self, vitals: &str) {
        if let Ok(vitals) = serde_json::from_str::<Vitals>(vitals) {
            self.metrics.figures.record_load(&vitals, self.due.get(), &self.browsers.recorder);
        }
    }

    /// Records a request that the browser sent: `status`, or why it `failed`, or neither if it was
    /// cancelled.
    #[pyo3(signature = (milliseconds, bytes, status = None, failed = None))]
    fn record_request(&self, milliseconds: f64, bytes: u64, status: Option<u16>, failed: Option<String>) {
        let result = match (status, failed) {
            (Some(status), _) => RequestResult::Status(status),
            (None, Some(reason)) => RequestResult::Failed(reason),
            (None, None) => RequestResult::Cancelled,
        };
        let duration = Duration::from_secs_f64((milliseconds / 1e3).clamp(0.0, 86_400.0));
        self.received_bytes.set(self.received_bytes.get() + bytes);
        self.metrics.figures.record_request((&result, duration, bytes), self.due.get(), &self.browsers.recorder);
    }

    fn record_console_error(&self, message: &str) {
        self.metrics.figures.record_console_error(message, self.due.get(), &self.browsers.recorder);
    }
}

#[derive(FromPyObject)]
enum StepCategory {
    Status(u16),
    Name(String),
}

fn outcome_category(name: &str) -> OutcomeCategory {
    match name {
        "ok" => OutcomeCategory::Ok,
        "timeout" => OutcomeCategory::Timeout,
        "check_failed" => OutcomeCategory::CheckFailed,
        "transport_error" => OutcomeCategory::TransportError,
        _ => OutcomeCategory::Exception,
    }
}
