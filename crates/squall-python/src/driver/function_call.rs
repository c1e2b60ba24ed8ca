//! One call of a scenario's function: steps it to its end, performs the operations that it awaits,
//! and keeps its time limit. [`python_request`](super::python_request) sends and records requests.
//! Called by the user; functions on asyncio run in [`asyncio_call`](super::asyncio_call) instead.

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyList};
use squall_http::{BodyMode, Session};
use squall_metrics::{Outcome, OutcomeCategory, OutcomeCode};
use squall_scenario::EndedRequest;
use std::{
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use super::{
    PythonThreadContext,
    python_request::{PythonRequestResult, record, send_all, send_request},
};
use crate::{
    exceptions,
    function_stepper::{FunctionStepper, StepperOutcome},
    not_awaited,
    operation::OperationWork,
    response::PyResponse,
    routes::RoutedRequest,
    watchdog::{self, CLEANUP_TIME, StepReport},
};

/// The task's time limit passed.
pub(super) const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: OutcomeCode::Named("TASK_TIMEOUT") };

/// A user's sessions: the first, and more while several requests are in flight at once. All share
/// the user's cookies.
pub(super) struct UserSessions {
    pub(super) first: Session,
    pub(super) extra: Vec<Session>,
}

/// A call of one function.
pub(super) struct FunctionCall<'a> {
    pub(super) thread: &'a PythonThreadContext,
    pub(super) sessions: &'a mut UserSessions,
    /// How late the function itself began. Its first request counts as due this much earlier.
    pub(super) start_delay: Duration,
    /// When the call must end, and the task's time limit. After a timeout, the clean-up moves the
    /// former.
    pub(super) time_limit: Option<(Instant, Duration)>,
    pub(super) name: &'a str,
    /// The last request, not recorded until the function awaits something else or ends. Replaced only
    /// by [`FunctionCall::set_last_request`], which records the one before.
    pub(super) last_request: Option<EndedRequest<'a>>,
    /// A request in flight was cut off, by the time limit or because the code cancelled it. It is
    /// recorded as failed, so a failure of the code adds no error of its own.
    pub(super) request_cut_off: bool,
    /// The time limit has passed, and the function cleans up.
    pub(super) timed_out: bool,
    /// The last request before the time limit passed. The timeout fails this request, not a request
    /// of the clean-up.
    pub(super) request_before_timeout: Option<Box<EndedRequest<'a>>>,
    /// The response to the last request.
    pub(super) last_response: Option<Py<PyResponse>>,
}

impl<'a> FunctionCall<'a> {
    /// Records the last request with its present outcome. A later failure of the code does not
    /// change it.
    pub(super) fn record_last_request(&mut self) {
        record(self.last_request.take());
    }

    /// Makes `request` the last one and records the one before.
    pub(super) fn set_last_request(&mut self, request: Option<EndedRequest<'a>>) {
        self.record_last_request();
        self.last_request = request;
    }

    /// Runs `stepper` to its end.
    pub(super) async fn drive(&mut self, mut stepper: FunctionStepper) -> PyResult<()> {
        drop(not_awaited::take_report());
        if watchdog::run_is_over() {
            return wait_for_abort().await;
        }
        let mut step = self.run_watched(|py| stepper.step(py));
        let mut unawaited = None;
        loop {
            // Taken before the next step, because other users run on this thread until then.
            unawaited = unawaited.or_else(not_awaited::take_report);
            match step {
                StepperOutcome::Returned => {
                    stepper.recycle(&self.thread.idle_fibers);
                    return self.final_result(not_awaited::check_all_awaited(unawaited));
                }
                StepperOutcome::Raised(error) => return self.final_result(Err(error)),
                StepperOutcome::AwaitsForeign => {
                    // Code that catches the exception has not waited either, so the call fails.
                    let error = match self.run_watched(|py| stepper.throw(py, foreign_await_error())) {
                        StepperOutcome::Raised(error) => error,
                        _ => foreign_await_error(),
                    };
                    return self.final_result(Err(error));
                }
                StepperOutcome::AwaitsOperation(operation) => {
                    let work = Python::attach(|py| operation.borrow_mut(py).take_work());
                    let result = match work {
                        None => Err(PyRuntimeError::new_err(
                            "this request is already in progress; call the client again to send another one",
                        )),
                        // The most frequent case is inlined: each async function in between would
                        // copy the response once more.
                        Some(OperationWork::Request(call)) if self.time_limit.is_none() => {
                            self.record_last_request();
                            let (thread, start_delay) = (self.thread, std::mem::take(&mut self.start_delay));
                            let session = &mut self.sessions.first;
                            let sent = send_request(thread, session, &call, start_delay, BodyMode::Keep).await;
                            self.finish_request(call, sent)
                        }
                        Some(OperationWork::Sleep(Duration::ZERO)) if self.in_time() => {
                            self.record_last_request();
                            yield_to_ready_tasks().await;
                            Ok(Python::attach(|py| py.None()))
                        }
                        Some(work) => match Box::pin(self.perform_in_time(work)).await {
                            Some(result) => result,
                            // The clean-up has exceeded its time limit as well.
                            None if self.timed_out => return self.final_result(Ok(())),
                            None => {
                                self.grant_cleanup_time();
                                Err(Python::attach(|py| self.timeout_error(py)))
                            }
                        },
                    };
                    if watchdog::run_is_over() {
                        return wait_for_abort().await;
                    }
                    step = self.run_watched(|py| {
                        operation.borrow_mut(py).set_result(result);
                        // Dropped before the step, so that the awaiting code holds the last
                        // reference.
                        drop(operation);
                        stepper.step(py)
                    });
                }
            }
        }
    }

    /// Runs a piece of the scenario's code, and interrupts it if it outlasts the call's time limit.
    pub(super) fn run_watched<R>(&mut self, run: impl FnOnce(Python<'_>) -> R) -> R {
        let long_steps = watchdog::long_step_time();
        let (output, report) = watchdog::step(self.time_limit.map(|(deadline, _)| deadline), || Python::attach(run));
        if watchdog::long_step_time() > long_steps {
            self.thread.note_blocking_code(self.name);
        }
        if let Some(StepReport { blocking_step, timeout_raised }) = report {
            blocking_step.iter().for_each(|step| self.thread.record_blocking_step(step, self.name));
            if timeout_raised && !self.timed_out {
                self.grant_cleanup_time();
            }
        }
        output
    }

    /// Gives a function whose time limit has passed time to clean up.
    #[cold]
    pub(super) fn grant_cleanup_time(&mut self) {
        self.timed_out = true;
        record(self.request_before_timeout.take().map(|request| *request));
        self.request_before_timeout = self.last_request.take().map(Box::new);
        if let Some((deadline, _)) = &mut self.time_limit {
            *deadline = Instant::now() + CLEANUP_TIME;
        }
    }

    /// The result of the function. If its time limit has passed, the result is a timeout, however
    /// the clean-up ended.
    pub(super) fn final_result(&mut self, ended: PyResult<()>) -> PyResult<()> {
        if !self.timed_out {
            return ended;
        }
        let request = self.request_before_timeout.take().map(|request| *request);
        self.set_last_request(request);
        // Prefer the error that was raised in the code: it names the line.
        Err(Python::attach(|py| match ended {
            Err(error) if exceptions::is_task_timeout(py, &error) => error,
            _ => self.timeout_error(py),
        }))
    }

    /// Performs `work`. `None` if the call's time limit passed first.
    pub(super) async fn perform_in_time(&mut self, work: OperationWork) -> Option<PyResult<Py<PyAny>>> {
        match self.time_limit {
            None => Some(self.perform(work).await),
            Some(_) if !self.in_time() => None,
            Some((deadline, _)) => {
                let thread = self.thread;
                let mut performed = Box::pin(self.perform(work));
                let ended = tokio::time::timeout_at(deadline.into(), &mut performed).await.ok();
                if ended.is_none() {
                    self.request_cut_off |= thread.recorder.cancel_as(performed, TASK_TIMEOUT) > 0;
                }
                ended
            }
        }
    }

    fn in_time(&self) -> bool {
        self.time_limit.is_none_or(|(deadline, _)| Instant::now() < deadline)
    }

    pub(super) fn timeout_error(&self, py: Python<'_>) -> PyErr {
        exceptions::task_timeout(py, self.name, self.time_limit.map_or(Duration::ZERO, |(_, limit)| limit))
    }

    async fn perform(&mut self, work: OperationWork) -> PyResult<Py<PyAny>> {
        self.record_last_request();
        match work {
            OperationWork::Request(call) => {
                let (thread, start_delay) = (self.thread, std::mem::take(&mut self.start_delay));
                let sent = send_request(thread, &mut self.sessions.first, &call, start_delay, BodyMode::Keep).await;
                self.finish_request(call, sent)
            }
            OperationWork::Batch(calls) => self.send_batch(calls).await,
            // Boxed, so that users that acquire no resources stay small.
            OperationWork::Acquire(acquire) => Box::pin(acquire.perform(&self.thread.recorder)).await,
            OperationWork::Long(long_operation) => {
                long_operation.start(self.thread, self.sessions.first.cookies(), &mut self.start_delay).await
            }
            OperationWork::Sleep(time) => {
                pause(time).await;
                Ok(Python::attach(|py| py.None()))
            }
        }
    }

    /// Records the last request before this one, and returns the result of this one for the
    /// scenario's code.
    pub(super) fn finish_request(&mut self, call: RoutedRequest, sent: PythonRequestResult<'a>) -> PyResult<Py<PyAny>> {
        self.thread.routes.recycle(call);
        self.set_last_request(sent.ended_request);
        let response = sent.result?.expect("the body was kept");
        Python::attach(|py| {
            let response = Py::new(py, response)?;
            self.last_response = Some(response.clone_ref(py));
            Ok(response.into_any())
        })
    }

    /// Sends all calls at once, each on a session of its own. Results are in the order of `calls`.
    async fn send_batch(&mut self, calls: Vec<RoutedRequest>) -> PyResult<Py<PyAny>> {
        let (thread, start_delay) = (self.thread, std::mem::take(&mut self.start_delay));
        let UserSessions { first, extra } = &mut *self.sessions;
        while extra.len() + 1 < calls.len() {
            extra.push(Session::with_cookies(&thread.scenario.connector, first.cookies().clone()));
        }
        let sessions = std::iter::once(first).chain(extra.iter_mut());
        let sent = send_all(thread, sessions, &calls, start_delay).await;
        self.finish_batch(sent, calls)
    }

    /// Returns the result of a batch for the scenario's code. A check sees the last response.
    pub(super) fn finish_batch(
        &mut self,
        sent: Vec<PythonRequestResult<'a>>,
        calls: Vec<RoutedRequest>,
    ) -> PyResult<Py<PyAny>> {
        calls.into_iter().for_each(|call| self.thread.routes.recycle(call));
        self.record_last_request();
        let (mut responses, mut first_error) = (Vec::with_capacity(sent.len()), None);
        for one in sent {
            // Each call records the request before, so that the code can fail only the last one.
            self.set_last_request(one.ended_request);
            match one.result {
                Ok(response) => responses.extend(response),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        Python::attach(|py| {
            let responses = responses.into_iter().map(|one| Py::new(py, one)).collect::<PyResult<Vec<_>>>()?;
            self.last_response = responses.last().map(|last| last.clone_ref(py));
            Ok(PyList::new(py, responses)?.into_any().unbind())
        })
    }
}

/// Pauses the user. A pause of zero still lets other users run.
pub(super) async fn pause(time: Duration) {
    match time.is_zero() {
        // A timer would wait for the next millisecond of the clock.
        true => yield_to_ready_tasks().await,
        false => tokio::time::sleep(time).await,
    }
}

/// Lets every ready task of this thread run first. Tokio's `yield_now` polls I/O each time, which
/// costs more than the rest of an await. A task that wakes itself is put at the end of the queue
/// without that poll; the runtime polls I/O after every 61 tasks anyway.
async fn yield_to_ready_tasks() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the engine to abort this user, because the run must have ended. The user's code would
/// delay the end: code that blocks cannot be interrupted.
#[cold]
async fn wait_for_abort() -> PyResult<()> {
    std::future::pending().await
}

#[cold]
fn foreign_await_error() -> PyErr {
    PyRuntimeError::new_err(
        "the code awaits something that is not Squall's: run it with --mode asyncio, or use squall.sleep and the client",
    )
}
