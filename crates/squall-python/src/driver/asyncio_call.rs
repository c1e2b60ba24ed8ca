//! One call of a scenario's function on asyncio. The function runs in the user's asyncio task; this
//! side performs the operations that arrive in its queue, several at once if the function starts
//! several. The call ends when the function and all of its requests have ended. Called by the user.

use pyo3::{intern, prelude::*, types::PyTuple};
use squall_http::{BodyMode, Session};
use squall_metrics::Outcome;
use squall_scenario::EndedRequest;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::Sleep;

use super::{
    PythonThreadContext,
    function_call::{FunctionCall, TASK_TIMEOUT, UserSessions, pause},
    python_request::{PythonRequestResult, record, send_all, send_request},
};
use crate::{
    asyncio_loop::AsyncioLoop,
    context_variables::ContextVariables,
    not_awaited,
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
    python_scenario::ScenarioFunction,
    routes::RoutedRequest,
};

/// How long a response is not recorded while the function awaits something other than a Squall
/// operation. Then it is recorded, so that it counts in the second in which it arrived. The wait is
/// repeated once: after a stall of the process the first timer expires at once, although the
/// function had no time to run.
const CHECK_WAIT: Duration = Duration::from_millis(500);

/// A user's task on the asyncio loop.
pub(super) struct AsyncioUserTask {
    pub(super) queue: Py<OperationQueue>,
    task: Py<PyAny>,
}

impl AsyncioUserTask {
    pub(super) fn new(
        py: Python<'_>,
        asyncio_loop: &AsyncioLoop,
        queue: Py<OperationQueue>,
        context: &ContextVariables,
    ) -> PyResult<AsyncioUserTask> {
        Ok(AsyncioUserTask { task: asyncio_loop.start_user_task(py, &queue, context)?, queue })
    }

    /// Whether the task awaits `operation` directly, not a future around it.
    fn waits_for(&self, py: Python<'_>, operation: &Py<Operation>) -> bool {
        self.task.bind(py).getattr(intern!(py, "_fut_waiter")).is_ok_and(|waiter| waiter.is(operation))
    }

    fn cancel(&self, py: Python<'_>) {
        if let Err(error) = self.task.bind(py).call_method0("cancel") {
            error.write_unraisable(py, None);
        }
        crate::asyncio_loop::wake_loop();
    }

    /// Asks the task to end. Does not wait for it.
    pub(super) fn end(&self, py: Python<'_>) {
        self.queue.get().end_task(py);
        crate::asyncio_loop::wake_loop();
    }
}

/// An operation in progress. Its future owns the sessions that it uses.
struct InFlightOperation<'p> {
    operation: Py<Operation>,
    future: Pin<Box<dyn Future<Output = FinishedOperation<'p>> + 'p>>,
}

struct FinishedOperation<'p> {
    outcome: OperationOutcome<'p>,
    sessions: UsedSessions,
}

/// The sessions of an operation. `One` is not boxed: most operations use one session, and a box
/// would cost each of them an allocation.
#[allow(clippy::large_enum_variant)]
enum UsedSessions {
    None,
    One(Session),
    Several(Vec<Session>),
}

enum OperationOutcome<'p> {
    Slept,
    Value(PyResult<Py<PyAny>>),
    Request(PythonRequestResult<'p>, RoutedRequest),
    Batch(Vec<PythonRequestResult<'p>>, Vec<RoutedRequest>),
}

/// How much longer the response that ended at `response_ended` is not recorded.
struct CheckWait {
    response_ended: Instant,
    timers_left: u8,
}

/// Records the response in `last` if it has waited long enough.
fn record_after_wait(
    mut timer: Pin<&mut Sleep>,
    wait: &mut Option<CheckWait>,
    cx: &mut Context<'_>,
    last: &mut Option<EndedRequest<'_>>,
) {
    let Some(response_ended) = last.as_ref().map(EndedRequest::ended) else { return };
    let mut timers_left = match wait {
        Some(wait) if wait.response_ended == response_ended => wait.timers_left,
        _ => {
            timer.as_mut().reset(tokio::time::Instant::now() + CHECK_WAIT);
            2
        }
    };
    while timers_left > 0 && timer.as_mut().poll(cx).is_ready() {
        timers_left -= 1;
        timer.as_mut().reset(tokio::time::Instant::now() + CHECK_WAIT);
    }
    *wait = Some(CheckWait { response_ended, timers_left });
    if timers_left == 0 {
        record(last.take());
    }
}

/// How a call on asyncio ended.
pub(super) enum AsyncioCallEnd {
    /// The task has ended the call and can run the next one.
    TaskIdle(PyResult<()>),
    /// The task still runs the call after its clean-up time. The user needs another task.
    TaskStuck(PyResult<()>),
}

/// Cancels the task if the call's future is dropped before the call ends.
struct CancelTaskGuard<'l> {
    task: &'l AsyncioUserTask,
    ended: bool,
}

impl Drop for CancelTaskGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            Python::attach(|py| self.task.cancel(py));
        }
    }
}

impl<'a> FunctionCall<'a> {
    /// Runs `function` in the user's task.
    pub(super) async fn run_on_asyncio(
        &mut self,
        task: &AsyncioUserTask,
        function: &ScenarioFunction,
        arguments: &Py<PyTuple>,
    ) -> AsyncioCallEnd {
        let mut guard = CancelTaskGuard { task, ended: false };
        let asyncio_loop = self.thread.asyncio_loop.as_ref().expect("a user task has a loop");
        let deadline = self.time_limit.map(|(deadline, _)| deadline);
        let started = self.run_watched(|py| {
            let started = task.queue.get().start_call(py, &function.call, arguments, deadline);
            asyncio_loop.wake_if_ready(py);
            started
        });
        if let Err(error) = started {
            return AsyncioCallEnd::TaskIdle(Err(error));
        }
        let mut in_flight: Vec<InFlightOperation<'a>> = Vec::new();
        let (mut timer, mut wait) = (pin!(tokio::time::sleep(CHECK_WAIT)), None);
        loop {
            let deadline = self.time_limit.map(|(deadline, _)| deadline);
            let call = poll_fn(|cx| match self.poll_operations(cx, task, asyncio_loop, &mut in_flight) {
                Poll::Pending => {
                    record_after_wait(timer.as_mut(), &mut wait, cx, &mut self.last_request);
                    Poll::Pending
                }
                ended => ended,
            });
            let ended = match deadline {
                None => Some(call.await),
                Some(deadline) => tokio::time::timeout_at(deadline.into(), call).await.ok(),
            };
            if let Some(ended) = ended {
                guard.ended = true;
                return AsyncioCallEnd::TaskIdle(self.final_result(ended));
            }
            let deadline_moved = self.time_limit.map(|(deadline, _)| deadline) != deadline;
            if self.timed_out && !deadline_moved {
                // The clean-up has exceeded its time limit as well.
                self.request_cut_off |= self.thread.recorder.cancel_as(in_flight, TASK_TIMEOUT) > 0;
                return AsyncioCallEnd::TaskStuck(self.final_result(Ok(())));
            }
            if !self.timed_out {
                self.cancel_timed_out(task, asyncio_loop, std::mem::take(&mut in_flight));
            }
        }
    }

    /// Cancels a function whose time limit has passed, and all of its operations.
    fn cancel_timed_out(
        &mut self,
        task: &AsyncioUserTask,
        asyncio_loop: &AsyncioLoop,
        in_flight: Vec<InFlightOperation<'a>>,
    ) {
        // The last request has its response, so the function timed out while it awaited something
        // else.
        self.record_last_request();
        self.grant_cleanup_time();
        let operations: Vec<Py<Operation>> =
            Python::attach(|py| in_flight.iter().map(|one| one.operation.clone_ref(py)).collect());
        self.request_cut_off = self.thread.recorder.cancel_as(in_flight, TASK_TIMEOUT) > 0;
        let errors: Vec<PyErr> = Python::attach(|py| operations.iter().map(|_| self.timeout_error(py)).collect());
        self.run_watched(|py| {
            task.cancel(py);
            // Other tasks may await operations that this task does not.
            for (operation, error) in operations.into_iter().zip(errors) {
                Operation::complete_and_resume(operation, py, Err(error));
            }
            asyncio_loop.wake_if_ready(py);
        });
    }

    fn poll_operations(
        &mut self,
        cx: &mut Context<'_>,
        task: &AsyncioUserTask,
        asyncio_loop: &AsyncioLoop,
        in_flight: &mut Vec<InFlightOperation<'a>>,
    ) -> Poll<PyResult<()>> {
        loop {
            let changes = task.queue.get().poll(cx.waker());
            let mut progressed = !changes.submitted.is_empty();
            for cancelled in changes.cancelled {
                let (dropped, kept): (Vec<_>, Vec<_>) =
                    in_flight.drain(..).partition(|one| one.operation.is(&cancelled));
                *in_flight = kept;
                self.request_cut_off |= self.thread.recorder.cancel_as(dropped, Outcome::ABORTED) > 0;
            }
            for operation in changes.submitted {
                if let Some(work) = Python::attach(|py| operation.borrow_mut(py).take_work()) {
                    let future = self.start_operation(work);
                    in_flight.push(InFlightOperation { operation, future });
                }
            }
            let mut index = 0;
            while index < in_flight.len() {
                match in_flight[index].future.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(finished) => {
                        progressed = true;
                        let operation = in_flight.swap_remove(index).operation;
                        let result = self.finish_operation(finished);
                        let direct = self.run_watched(|py| {
                            let direct = task.waits_for(py, &operation);
                            Operation::complete_and_resume(operation, py, result);
                            asyncio_loop.wake_if_ready(py);
                            direct
                        });
                        if direct && task.queue.get().awaits_foreign() {
                            self.record_last_request();
                        }
                    }
                }
            }
            if progressed {
                continue;
            }
            // The call includes every request that the function has sent, awaited or not.
            if !in_flight.is_empty() || task.queue.get().has_background() {
                return Poll::Pending;
            }
            return match task.queue.get().take_call_result() {
                Some(None) => Poll::Ready(not_awaited::check_all_awaited(task.queue.get().take_not_awaited())),
                Some(Some(error)) => Poll::Ready(Err(Python::attach(|py| PyErr::from_value(error.into_bound(py))))),
                None => Poll::Pending,
            };
        }
    }

    fn start_operation(&mut self, work: OperationWork) -> Pin<Box<dyn Future<Output = FinishedOperation<'a>> + 'a>> {
        let thread = self.thread;
        // From here on, a failure of the code counts for this operation, even if it is cancelled,
        // and not for the last request.
        self.record_last_request();
        self.request_cut_off &= self.timed_out;
        match work {
            OperationWork::Sleep(time) => Box::pin(async move {
                pause(time).await;
                FinishedOperation { outcome: OperationOutcome::Slept, sessions: UsedSessions::None }
            }),
            OperationWork::Long(long_operation) => {
                let running = long_operation.start(thread, self.sessions.first.cookies(), &mut self.start_delay);
                Box::pin(async move {
                    FinishedOperation { outcome: OperationOutcome::Value(running.await), sessions: UsedSessions::None }
                })
            }
            OperationWork::Acquire(acquire) => Box::pin(async move {
                FinishedOperation {
                    outcome: OperationOutcome::Value(acquire.perform(&thread.recorder).await),
                    sessions: UsedSessions::None,
                }
            }),
            OperationWork::Request(call) => {
                let (mut session, start_delay) = (self.take_session(), std::mem::take(&mut self.start_delay));
                Box::pin(async move {
                    let sent = send_request(thread, &mut session, &call, start_delay, BodyMode::Keep).await;
                    FinishedOperation {
                        outcome: OperationOutcome::Request(sent, call),
                        sessions: UsedSessions::One(session),
                    }
                })
            }
            OperationWork::Batch(calls) => {
                let mut sessions: Vec<Session> = calls.iter().map(|_| self.take_session()).collect();
                let start_delay = if calls.is_empty() { Duration::ZERO } else { std::mem::take(&mut self.start_delay) };
                Box::pin(async move {
                    let sent = send_all(thread, sessions.iter_mut(), &calls, start_delay).await;
                    FinishedOperation {
                        outcome: OperationOutcome::Batch(sent, calls),
                        sessions: UsedSessions::Several(sessions),
                    }
                })
            }
        }
    }

    fn take_session(&mut self) -> Session {
        let UserSessions { first, extra } = &mut *self.sessions;
        extra.pop().unwrap_or_else(|| Session::with_cookies(&self.thread.scenario.connector, first.cookies().clone()))
    }

    /// Takes the operation's sessions back and returns its result for the scenario's code.
    fn finish_operation(&mut self, finished: FinishedOperation<'a>) -> PyResult<Py<PyAny>> {
        let FinishedOperation { outcome, sessions } = finished;
        match sessions {
            UsedSessions::None => {}
            UsedSessions::One(session) => self.sessions.extra.push(session),
            UsedSessions::Several(sessions) => self.sessions.extra.extend(sessions),
        }
        match outcome {
            OperationOutcome::Slept => Ok(Python::attach(|py| py.None())),
            OperationOutcome::Value(result) => result,
            OperationOutcome::Request(sent, call) => self.finish_request(call, sent),
            OperationOutcome::Batch(sent, calls) => self.finish_batch(sent, calls),
        }
    }
}

/// Creates an operation queue for a user, and a client that uses it. The user's resources use the
/// same queue.
pub(super) fn queue_and_client(
    user: &Bound<'_, PyAny>,
    thread: &PythonThreadContext,
) -> PyResult<(Py<OperationQueue>, Py<PyAny>)> {
    let py = user.py();
    let queue = Py::new(py, OperationQueue::new())?;
    user.getattr("resources")?.setattr("queue", &queue)?;
    let client = thread.clients.awaited.get().with_queue(queue.clone_ref(py));
    Ok((queue, Py::new(py, client)?.into_any()))
}
