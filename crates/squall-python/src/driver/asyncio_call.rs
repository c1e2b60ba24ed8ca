//! One call of a scenario's function on asyncio: its task runs by itself, this side performs what comes out of its port, several things
//! at once if it wants. Ends when the function has, and its requests.

use pyo3::{intern, prelude::*, types::PyTuple};
use squall_http::{BodyMode, Session};
use squall_metrics::Outcome;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::Sleep;

use super::{
    PythonThreadContext,
    function_call::{
        FunctionCall, PythonRequestResult, TASK_TIMEOUT, UserSessions, finish_batch, pause, send_all, send_request,
    },
    unjudged_response::UnjudgedResponse,
};
use crate::{
    asyncio_loop::AsyncioLoop,
    context_variables::ContextVariables,
    not_awaited,
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
    python_scenario::ScenarioFunction,
    routes::PreparedCall,
};

/// How long a request that was answered waits for its verdict while the function awaits something of its own: then it is recorded, so that
/// it counts in the second it belongs to. Waited for twice, so that a process that stood still does not take that for the function's time.
const CHECK_WAIT: Duration = Duration::from_millis(500);

/// A user's task on the loop.
pub(super) struct AsyncioUserTask {
    pub(super) queue: Py<OperationQueue>,
    task: Py<PyAny>,
}

impl AsyncioUserTask {
    pub(super) fn new(
        py: Python<'_>,
        guest: &AsyncioLoop,
        port: Py<OperationQueue>,
        context: &ContextVariables,
    ) -> PyResult<AsyncioUserTask> {
        Ok(AsyncioUserTask { task: guest.start_user_task(py, &port, context)?, queue: port })
    }

    /// Whether it waits for `operation` itself, and not for something around it.
    fn waits_for(&self, py: Python<'_>, operation: &Py<Operation>) -> bool {
        self.task.bind(py).getattr(intern!(py, "_fut_waiter")).is_ok_and(|waiter| waiter.is(operation))
    }

    fn cancel(&self, py: Python<'_>) {
        if let Err(error) = self.task.bind(py).call_method0("cancel") {
            error.write_unraisable(py, None);
        }
        crate::asyncio_loop::wake_loop();
    }

    /// Its task is told to end; whether it does, nobody waits for.
    pub(super) fn end(&self, py: Python<'_>) {
        self.queue.get().end_task(py);
        crate::asyncio_loop::wake_loop();
    }
}

/// An operation under way with the sessions that it uses.
struct InFlightOperation<'p> {
    operation: Py<Operation>,
    future: Pin<Box<dyn Future<Output = FinishedOperation<'p>> + 'p>>,
}

struct FinishedOperation<'p> {
    outcome: OperationOutcome<'p>,
    sessions: UsedSessions,
}

/// The sessions of an operation; most need one, and a box around it would cost each of them an allocation.
#[allow(clippy::large_enum_variant)]
enum UsedSessions {
    None,
    One(Session),
    Several(Vec<Session>),
}

enum OperationOutcome<'p> {
    Slept,
    Value(PyResult<Py<PyAny>>),
    Request(PythonRequestResult<'p>, PreparedCall),
    Batch(Vec<PythonRequestResult<'p>>, Vec<PreparedCall>),
}

/// Which answer waits for its verdict, and how many times more it may.
type CheckWait = Option<(Instant, u8)>;

/// Records the answer in `last` if it has waited long enough.
fn record_unjudged(
    mut due: Pin<&mut Sleep>,
    waits: &mut CheckWait,
    cx: &mut Context<'_>,
    last: &mut Option<UnjudgedResponse<'_>>,
) {
    let Some(answered) = last.as_ref().map(UnjudgedResponse::ended) else { return };
    let mut left = match *waits {
        Some((of, left)) if of == answered => left,
        _ => {
            due.as_mut().reset(tokio::time::Instant::now() + CHECK_WAIT);
            2
        }
    };
    while left > 0 && due.as_mut().poll(cx).is_ready() {
        left -= 1;
        due.as_mut().reset(tokio::time::Instant::now() + CHECK_WAIT);
    }
    *waits = Some((answered, left));
    if left == 0 {
        *last = None;
    }
}

/// Cancels the task if the visit is given up before it ended.
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
    /// Runs `hook` in the user's task. `Err(true)` beside the error says that the task did not end and must not be used again.
    pub(super) async fn run_on_asyncio(
        &mut self,
        lodger: &AsyncioUserTask,
        hook: &ScenarioFunction,
        arguments: &Py<PyTuple>,
    ) -> (PyResult<()>, bool) {
        let mut guard = CancelTaskGuard { task: lodger, ended: false };
        let guest = self.thread.asyncio_loop.as_ref().expect("a lodger has a loop");
        let deadline = self.time_limit.map(|(deadline, _)| deadline);
        let begun = self.run_watched(|py| {
            let begun = lodger.queue.get().start_call(py, &hook.call, arguments, deadline);
            guest.wake_if_ready(py);
            begun
        });
        if let Err(error) = begun {
            return (Err(error), false);
        }
        let mut under_way: Vec<InFlightOperation<'a>> = Vec::new();
        let (mut due, mut waits) = (pin!(tokio::time::sleep(CHECK_WAIT)), None);
        loop {
            let deadline = self.time_limit.map(|(deadline, _)| deadline);
            let whole = poll_fn(|cx| match self.poll_operations(cx, lodger, guest, &mut under_way) {
                Poll::Pending => {
                    record_unjudged(due.as_mut(), &mut waits, cx, &mut self.last_request);
                    Poll::Pending
                }
                ended => ended,
            });
            let ended = match deadline {
                None => Some(whole.await),
                Some(deadline) => tokio::time::timeout_at(deadline.into(), whole).await.ok(),
            };
            if let Some(ended) = ended {
                guard.ended = true;
                return (self.final_result(ended), false);
            }
            let granted = self.time_limit.map(|(deadline, _)| deadline) != deadline;
            if self.timed_out && !granted {
                // It goes on and on.
                self.timed_out_request |= self.thread.recorder.cancel_as(under_way, TASK_TIMEOUT) > 0;
                return (self.final_result(Ok(())), true);
            }
            if !self.timed_out {
                self.cancel_timed_out(lodger, guest, std::mem::take(&mut under_way));
            }
        }
    }

    /// Cancels a function whose time is over, and all that it has under way.
    fn cancel_timed_out(
        &mut self,
        lodger: &AsyncioUserTask,
        guest: &AsyncioLoop,
        under_way: Vec<InFlightOperation<'a>>,
    ) {
        // Whatever it waited for, it was not what had been answered.
        self.last_request = None;
        self.grant_cleanup_time();
        let operations: Vec<Py<Operation>> =
            Python::attach(|py| under_way.iter().map(|one| one.operation.clone_ref(py)).collect());
        self.timed_out_request = self.thread.recorder.cancel_as(under_way, TASK_TIMEOUT) > 0;
        let errors: Vec<PyErr> = Python::attach(|py| operations.iter().map(|_| self.timeout_error(py)).collect());
        self.run_watched(|py| {
            lodger.cancel(py);
            // What it does not wait for itself somebody else does.
            for (operation, error) in operations.into_iter().zip(errors) {
                Operation::complete_and_resume(operation, py, Err(error));
            }
            guest.wake_if_ready(py);
        });
    }

    fn poll_operations(
        &mut self,
        cx: &mut Context<'_>,
        lodger: &AsyncioUserTask,
        guest: &AsyncioLoop,
        under_way: &mut Vec<InFlightOperation<'a>>,
    ) -> Poll<PyResult<()>> {
        loop {
            let news = lodger.queue.get().poll(cx.waker());
            let mut moved = !news.submitted.is_empty();
            for gone in news.cancelled {
                let (given_up, others) = under_way.drain(..).partition(|one| one.operation.is(&gone));
                *under_way = others;
                let given_up: Vec<InFlightOperation<'a>> = given_up;
                self.timed_out_request |= self.thread.recorder.cancel_as(given_up, Outcome::ABORTED) > 0;
            }
            for operation in news.submitted {
                if let Some(work) = Python::attach(|py| operation.borrow_mut(py).take_work()) {
                    let future = self.start_operation(work);
                    under_way.push(InFlightOperation { operation, future });
                }
            }
            let mut index = 0;
            while index < under_way.len() {
                match under_way[index].future.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(performed) => {
                        moved = true;
                        let operation = under_way.swap_remove(index).operation;
                        let result = self.finish_operation(performed);
                        let direct = self.run_watched(|py| {
                            let direct = lodger.waits_for(py, &operation);
                            Operation::complete_and_resume(operation, py, result);
                            guest.wake_if_ready(py);
                            direct
                        });
                        if direct && lodger.queue.get().awaits_foreign() {
                            self.last_request = None;
                        }
                    }
                }
            }
            if moved {
                continue;
            }
            // What the function sent is part of it, awaited or not.
            if !under_way.is_empty() || lodger.queue.get().has_background() {
                return Poll::Pending;
            }
            return match lodger.queue.get().take_call_result() {
                Some(None) => Poll::Ready(not_awaited::check_all_awaited(lodger.queue.get().take_not_awaited())),
                Some(Some(error)) => Poll::Ready(Err(Python::attach(|py| PyErr::from_value(error.into_bound(py))))),
                None => Poll::Pending,
            };
        }
    }

    fn start_operation(&mut self, work: OperationWork) -> Pin<Box<dyn Future<Output = FinishedOperation<'a>> + 'a>> {
        let shared = self.thread;
        // What comes now bears what is raised from here on, also when it is given up.
        self.last_request = None;
        self.timed_out_request &= self.timed_out;
        match work {
            OperationWork::Sleep(time) => Box::pin(async move {
                pause(time).await;
                FinishedOperation { outcome: OperationOutcome::Slept, sessions: UsedSessions::None }
            }),
            OperationWork::Long(job) => {
                let means = shared.operation_context(self.sessions.first.cookies());
                Box::pin(async move {
                    FinishedOperation {
                        outcome: OperationOutcome::Value(job.start(means).await),
                        sessions: UsedSessions::None,
                    }
                })
            }
            OperationWork::Acquire(borrow) => Box::pin(async move {
                FinishedOperation {
                    outcome: OperationOutcome::Value(borrow.perform(&shared.recorder).await),
                    sessions: UsedSessions::None,
                }
            }),
            OperationWork::Request(call) => {
                let (mut session, late) = (self.take_session(), std::mem::take(&mut self.start_delay));
                Box::pin(async move {
                    let told = send_request(shared, &mut session, &call, late, BodyMode::Keep).await;
                    FinishedOperation {
                        outcome: OperationOutcome::Request(told, call),
                        sessions: UsedSessions::One(session),
                    }
                })
            }
            OperationWork::Batch(calls) => {
                let mut sessions: Vec<Session> = calls.iter().map(|_| self.take_session()).collect();
                let late = if calls.is_empty() { Duration::ZERO } else { std::mem::take(&mut self.start_delay) };
                Box::pin(async move {
                    let told = send_all(shared, sessions.iter_mut(), &calls, late).await;
                    FinishedOperation {
                        outcome: OperationOutcome::Batch(told, calls),
                        sessions: UsedSessions::Several(sessions),
                    }
                })
            }
        }
    }

    fn take_session(&mut self) -> Session {
        let UserSessions { first, extra: more } = &mut *self.sessions;
        more.pop().unwrap_or_else(|| Session::with_cookies(&self.thread.script.connector, first.cookies().clone()))
    }

    /// Takes sessions back and makes the result.
    fn finish_operation(&mut self, performed: FinishedOperation<'a>) -> PyResult<Py<PyAny>> {
        let FinishedOperation { outcome: work, sessions } = performed;
        match sessions {
            UsedSessions::None => {}
            UsedSessions::One(session) => self.sessions.extra.push(session),
            UsedSessions::Several(sessions) => self.sessions.extra.extend(sessions),
        }
        match work {
            OperationOutcome::Slept => Ok(Python::attach(|py| py.None())),
            OperationOutcome::Value(done) => done,
            OperationOutcome::Request(told, call) => self.finish_request(call, told),
            OperationOutcome::Batch(told, calls) => finish_batch(self, told, calls),
        }
    }
}

/// A port of a user, and the client that uses it; its resources come through the same port.
pub(super) fn queue_and_client(
    user: &Bound<'_, PyAny>,
    shared: &PythonThreadContext,
) -> PyResult<(Py<OperationQueue>, Py<PyAny>)> {
    let py = user.py();
    let port = Py::new(py, OperationQueue::new())?;
    user.getattr("resources")?.setattr("queue", &port)?;
    let client = shared.clients.awaited.get().with_queue(port.clone_ref(py));
    Ok((port, Py::new(py, client)?.into_any()))
}
