//! One call of a scenario's function, from its first line to its last: steps it, performs what it asks for, records every request.

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyList};
use squall_http::{BodyMode, HttpError, PreparedRequest, Session};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
use squall_scenario::RequestGuard;
use std::{
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use super::{PythonThreadContext, unjudged_response::UnjudgedResponse};
use crate::{
    exceptions,
    function_stepper::{FunctionStepper, StepperOutcome},
    not_awaited,
    operation::OperationWork,
    response::PyResponse,
    routes::PreparedCall,
    watchdog::{self, CLEANUP_TIME, StepReport},
};

/// The task's time was over.
pub(super) const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: squall_metrics::OutcomeCode::Named("TASK_TIMEOUT") };

/// A request that lasted mostly because others' code had the thread, and by more than this, says more of the generator than of the target.
const MIN_BLOCKED_TIME: Duration = Duration::from_millis(10);

/// How long a user waits that found no descriptor or port to send by.
const NO_SOCKET_PAUSE: Duration = Duration::from_millis(20);

/// A user's connections: one session, and more where several requests are under way at once. All have the same cookies.
pub(super) struct UserSessions {
    pub(super) first: Session,
    pub(super) extra: Vec<Session>,
}

/// A function under way.
pub(super) struct FunctionCall<'a> {
    pub(super) thread: &'a PythonThreadContext,
    pub(super) sessions: &'a mut UserSessions,
    /// How late the function itself began; the first request that it makes was delayed by so much.
    pub(super) start_delay: Duration,
    /// When the whole visit must be over, the limit behind it, and whose it is.
    pub(super) time_limit: Option<(Instant, Duration)>,
    pub(super) name: &'a str,
    /// The last request, until the next one or the verdict.
    pub(super) last_request: Option<UnjudgedResponse<'a>>,
    /// Its time was over while a request was under way, which counts as failed.
    pub(super) timed_out_request: bool,
    /// It was told that its time is over, and cleans up after itself.
    pub(super) timed_out: bool,
    /// The last request before it was: those of the clean-up are not to blame.
    pub(super) request_before_timeout: Option<Box<UnjudgedResponse<'a>>>,
    /// What the last request brought.
    pub(super) last_response: Option<Py<PyResponse>>,
}

impl<'a> FunctionCall<'a> {
    /// Runs `stepper` to its end.
    pub(super) async fn drive(&mut self, mut stepper: FunctionStepper) -> PyResult<()> {
        drop(not_awaited::take_report());
        let mut step = self.run_watched(|py| stepper.step(py));
        let mut forgotten = None;
        loop {
            // Others run on this thread before the next step.
            forgotten = forgotten.or_else(not_awaited::take_report);
            match step {
                StepperOutcome::Returned => {
                    stepper.recycle(&self.thread.idle_fibers);
                    return self.final_result(not_awaited::check_all_awaited(forgotten));
                }
                StepperOutcome::Raised(error) => return self.final_result(Err(error)),
                StepperOutcome::AwaitsForeign => {
                    step = self.run_watched(|py| stepper.throw(py, foreign_await_error()));
                    if matches!(step, StepperOutcome::AwaitsForeign | StepperOutcome::AwaitsOperation(_)) {
                        return Err(foreign_await_error());
                    }
                }
                StepperOutcome::AwaitsOperation(operation) => {
                    let work = Python::attach(|py| operation.borrow_mut(py).take_work());
                    let result = match work {
                        None => Err(PyRuntimeError::new_err("this request is already under way elsewhere")),
                        // The usual case is spelled out: every level between would copy the whole exchange once more.
                        Some(OperationWork::Request(call)) if self.time_limit.is_none() => {
                            self.last_request = None;
                            let (shared, late) = (self.thread, std::mem::take(&mut self.start_delay));
                            let told =
                                send_request(shared, &mut self.sessions.first, &call, late, BodyMode::Keep).await;
                            self.finish_request(call, told)
                        }
                        Some(OperationWork::Sleep(Duration::ZERO)) if self.in_time() => {
                            self.last_request = None;
                            yield_to_ready_tasks().await;
                            Ok(Python::attach(|py| py.None()))
                        }
                        Some(work) => match Box::pin(self.perform_in_time(work)).await {
                            Some(result) => result,
                            // It goes on and on.
                            None if self.timed_out => return self.final_result(Ok(())),
                            None => {
                                self.grant_cleanup_time();
                                Err(Python::attach(|py| self.timeout_error(py)))
                            }
                        },
                    };
                    step = self.run_watched(|py| {
                        operation.borrow_mut(py).set_result(result);
                        // The code that waits holds it too, and is the last to let go.
                        drop(operation);
                        stepper.step(py)
                    });
                }
            }
        }
    }

    /// Runs a piece of the scenario's code that is cut if it outlasts the visit.
    pub(super) fn run_watched<R>(&mut self, run: impl FnOnce(Python<'_>) -> R) -> R {
        let long_steps = watchdog::long_step_time();
        let (done, noticed) = watchdog::step(self.time_limit.map(|(deadline, _)| deadline), || Python::attach(run));
        if watchdog::long_step_time() > long_steps {
            self.thread.note_blocking_code(self.name);
        }
        if let Some(StepReport { blocking_step: held, timeout_raised: cut }) = noticed {
            held.iter().for_each(|held| self.thread.record_blocking_step(held, self.name));
            if cut && !self.timed_out {
                self.grant_cleanup_time();
            }
        }
        done
    }

    /// Gives a function that was told that its time is over some more, to clean up after itself.
    #[cold]
    pub(super) fn grant_cleanup_time(&mut self) {
        self.timed_out = true;
        self.request_before_timeout = self.last_request.take().map(Box::new);
        if let Some((deadline, _)) = &mut self.time_limit {
            *deadline = Instant::now() + CLEANUP_TIME;
        }
    }

    /// How the function ended: whatever became of one that was cut, its time was over.
    pub(super) fn final_result(&mut self, ended: PyResult<()>) -> PyResult<()> {
        if !self.timed_out {
            return ended;
        }
        self.last_request = self.request_before_timeout.take().map(|borne| *borne);
        // The one that was raised says where.
        Err(Python::attach(|py| match ended {
            Err(error) if exceptions::is_task_timeout(py, &error) => error,
            _ => self.timeout_error(py),
        }))
    }

    /// `None` if the visit's time was over first.
    async fn perform_in_time(&mut self, work: OperationWork) -> Option<PyResult<Py<PyAny>>> {
        match self.time_limit {
            None => Some(self.perform(work).await),
            Some(_) if !self.in_time() => None,
            Some((deadline, _)) => {
                let shared = self.thread;
                let mut performed = Box::pin(self.perform(work));
                let ended = tokio::time::timeout_at(deadline.into(), &mut performed).await.ok();
                if ended.is_none() {
                    self.timed_out_request |= shared.recorder.cancel_as(performed, TASK_TIMEOUT) > 0;
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
        self.last_request = None;
        match work {
            OperationWork::Request(call) => {
                let (shared, late) = (self.thread, std::mem::take(&mut self.start_delay));
                let told = send_request(shared, &mut self.sessions.first, &call, late, BodyMode::Keep).await;
                self.finish_request(call, told)
            }
            OperationWork::Batch(calls) => self.send_batch(calls).await,
            // Boxed: few wait for it, and no user should be larger for it.
            OperationWork::Acquire(borrow) => Box::pin(borrow.perform(&self.thread.recorder)).await,
            OperationWork::Long(job) => job.start(self.thread.operation_context(self.sessions.first.cookies())).await,
            OperationWork::Sleep(time) => {
                pause(time).await;
                Ok(Python::attach(|py| py.None()))
            }
        }
    }

    /// What the code gets to see of one request.
    pub(super) fn finish_request(&mut self, call: PreparedCall, told: PythonRequestResult<'a>) -> PyResult<Py<PyAny>> {
        self.thread.routes.recycle(call);
        self.last_request = told.unjudged;
        let response = told.result?.expect("it was asked to be kept");
        Python::attach(|py| {
            let response = Py::new(py, response)?;
            self.last_response = Some(response.clone_ref(py));
            Ok(response.into_any())
        })
    }

    /// All at once, each on a connection of its own; results in the order of `calls`.
    async fn send_batch(&mut self, calls: Vec<PreparedCall>) -> PyResult<Py<PyAny>> {
        let (shared, late) = (self.thread, std::mem::take(&mut self.start_delay));
        let UserSessions { first, extra: more } = &mut *self.sessions;
        while more.len() + 1 < calls.len() {
            more.push(Session::with_cookies(&shared.script.connector, first.cookies().clone()));
        }
        let sessions = std::iter::once(first).chain(more.iter_mut());
        let told = send_all(shared, sessions, &calls, late).await;
        finish_batch(self, told, calls)
    }
}

/// A pause; none at all still lets others run.
pub(super) async fn pause(time: Duration) {
    match time.is_zero() {
        // A timer would last until the clock's next millisecond.
        true => yield_to_ready_tasks().await,
        false => tokio::time::sleep(time).await,
    }
}

/// Lets everybody go first who is ready. Not tokio's `yield_now`: that looks for I/O each time, which costs more than all the rest of an
/// await; from the end of the queue the runtime looks after every 61 tasks.
async fn yield_to_ready_tasks() {
    let mut aside = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut aside, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sends `calls` at once, each on a session of its own.
pub(super) async fn send_all<'p, 's>(
    shared: &'p PythonThreadContext,
    sessions: impl Iterator<Item = &'s mut Session>,
    calls: &[PreparedCall],
    late: Duration,
) -> Vec<PythonRequestResult<'p>> {
    let under_way = calls.iter().zip(sessions);
    join_all(under_way.map(|(call, session)| send_request(shared, session, call, late, BodyMode::Keep)).collect()).await
}

/// What the code gets to see of a batch. The last answer counts for the check.
pub(super) fn finish_batch<'a>(
    visit: &mut FunctionCall<'a>,
    mut told: Vec<PythonRequestResult<'a>>,
    calls: Vec<PreparedCall>,
) -> PyResult<Py<PyAny>> {
    calls.into_iter().for_each(|call| visit.thread.routes.recycle(call));
    visit.last_request = told.last_mut().and_then(|told| told.unjudged.take());
    let responses = told.into_iter().filter_map(|told| told.result.transpose()).collect::<PyResult<Vec<_>>>()?;
    Python::attach(|py| {
        let responses = responses.into_iter().map(|one| Py::new(py, one)).collect::<PyResult<Vec<_>>>()?;
        visit.last_response = responses.last().map(|last| last.clone_ref(py));
        Ok(PyList::new(py, responses)?.into_any().unbind())
    })
}

/// What became of a request.
pub(super) struct PythonRequestResult<'p> {
    /// Absent if only the outcome was asked for.
    result: PyResult<Option<PyResponse>>,
    /// Absent where it is already recorded.
    unjudged: Option<UnjudgedResponse<'p>>,
}

/// Sends one request, which is due now or was due `late` ago, and follows its redirects.
pub(super) async fn send_request<'p>(
    shared: &'p PythonThreadContext,
    session: &mut Session,
    call: &PreparedCall,
    late: Duration,
    body: BodyMode,
) -> PythonRequestResult<'p> {
    let metric = shared.metric(call);
    let (told, next) = send_once(shared, session, call.request(), &call.name, metric, late, body).await;
    match next {
        None => told,
        Some(next) => Box::pin(follow_redirects(shared, session, call, next, body)).await,
    }
}

async fn follow_redirects<'p>(
    shared: &'p PythonThreadContext,
    session: &mut Session,
    call: &PreparedCall,
    mut request: Box<PreparedRequest>,
    body: BodyMode,
) -> PythonRequestResult<'p> {
    let name = format!("{} (redirect)", call.name);
    let metric = shared.request_metric(&name);
    loop {
        let (told, next) = send_once(shared, session, &request, &name, metric, Duration::ZERO, body).await;
        match next {
            None => return told,
            Some(next) => request = next,
        }
    }
}

async fn send_once<'p>(
    shared: &'p PythonThreadContext,
    session: &mut Session,
    request: &PreparedRequest,
    name: &str,
    metric: MetricId,
    late: Duration,
    body: BodyMode,
) -> (PythonRequestResult<'p>, Option<Box<PreparedRequest>>) {
    let probe = &shared.recorder;
    let due = Instant::now();
    let started = probe.wait_for_budget(due).await;
    let Some(flight) = probe.begin(metric, due - late, started) else {
        let result = Err(Python::attach(|py| exceptions::worker_fenced(py, name)));
        return (PythonRequestResult { result, unjudged: None }, None);
    };
    let long_steps = watchdog::long_step_time();
    let mut aloft = RequestGuard::new(flight, session);
    let exchange = aloft.session.send(request, body).await;
    let flight = aloft.in_flight.take().expect("it has not landed yet");
    let held = watchdog::long_step_time() - long_steps;
    if held > MIN_BLOCKED_TIME && held * 2 > exchange.ended - exchange.started {
        shared.record_delayed_response(held, exchange.ended);
    }
    if let Some(times) = &exchange.phases {
        flight.record_phases(&[times.dns, times.connect, times.tls, times.first_byte, times.body]);
    }
    let response = match &exchange.result {
        Ok(response) => response,
        Err(error) => {
            let outcome = http_error_outcome(error);
            probe.note_error(metric, outcome, &error.to_string());
            let result = Err(Python::attach(|py| exceptions::request_failed(py, error, name)));
            if error.failed_before_sending() {
                // There was nothing to send it by: the target saw nothing, and trying again at once would only heat this machine.
                flight.end_unsent(exchange.ended, outcome);
                tokio::time::sleep(NO_SOCKET_PAUSE).await;
                return (PythonRequestResult { result, unjudged: None }, None);
            }
            let landing = Some(UnjudgedResponse::new(flight, &exchange, outcome));
            return (PythonRequestResult { result, unjudged: landing }, None);
        }
    };
    let mut landing = UnjudgedResponse::new(flight, &exchange, Outcome::of_status(response.status));
    let next = if (300..400).contains(&response.status) { request.redirect(response) } else { None };
    match next {
        Some(Ok(next)) => {
            drop(landing);
            (PythonRequestResult { result: Ok(None), unjudged: None }, Some(Box::new(next)))
        }
        Some(Err(error)) => {
            let outcome = Outcome::new(OutcomeCategory::ProtocolError, error.redirect_code());
            probe.note_error(metric, outcome, &error.to_string());
            landing.mark_failed(outcome);
            let result = Err(Python::attach(|py| {
                exceptions::protocol_error(py, error.redirect_code(), &error.to_string(), name)
            }));
            (PythonRequestResult { result, unjudged: Some(landing) }, None)
        }
        None => {
            let kept = (body == BodyMode::Keep).then(|| PyResponse::new(response, exchange.ended - exchange.started));
            (PythonRequestResult { result: Ok(kept), unjudged: Some(landing) }, None)
        }
    }
}

/// Sends the requests of a constant task, one after the other; the first that fails ends it.
pub(super) async fn send_constant(
    shared: &PythonThreadContext,
    session: &mut Session,
    calls: &[PreparedCall],
    late: Duration,
) -> PyResult<()> {
    let mut late = late;
    for call in calls {
        send_request(shared, session, call, std::mem::take(&mut late), BodyMode::Discard).await.result?;
    }
    Ok(())
}

/// Polls all until all are done. Batches are short: a scan per wake-up costs less than a queue, and one allocation for all of them
/// less than a box for each.
async fn join_all<F: Future>(futures: Box<[F]>) -> Vec<F::Output> {
    let mut futures: Pin<Box<[F]>> = Box::into_pin(futures);
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut left = done.len();
    poll_fn(|cx| {
        for (index, done) in done.iter_mut().enumerate().filter(|(_, done)| done.is_none()) {
            // SAFETY: the slice is pinned as a whole and never moved again before it is dropped, so each of its elements is pinned.
            let future = unsafe { futures.as_mut().map_unchecked_mut(|all| &mut all[index]) };
            if let Poll::Ready(value) = future.poll(cx) {
                *done = Some(value);
                left -= 1;
            }
        }
        if left > 0 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

pub(crate) fn http_error_outcome(error: &HttpError) -> Outcome {
    let category = match error.error_category() {
        squall_http::HttpErrorCategory::Protocol => OutcomeCategory::ProtocolError,
        squall_http::HttpErrorCategory::Transport => OutcomeCategory::TransportError,
        squall_http::HttpErrorCategory::Timeout => OutcomeCategory::Timeout,
    };
    Outcome::new(category, error.code())
}

#[cold]
fn foreign_await_error() -> PyErr {
    PyRuntimeError::new_err(
        "this awaits something that is not Squall's: run it with --mode asyncio, or use squall.sleep and the client",
    )
}
