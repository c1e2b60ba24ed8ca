//! The queue between a user's asyncio task and its driver, which run on the same thread: the task
//! submits operations, the driver delivers the functions to call. It performs no operations. The
//! asyncio call of the driver polls it; `squall._asyncio_loop` runs the task.

use pyo3::{prelude::*, types::PyTuple};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Instant,
};

use crate::{operation::Operation, watchdog::CLEANUP_TIME};

/// The operation queue of one user on asyncio.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct OperationQueue {
    state: Mutex<OperationQueueState>,
}

/// The number of the function call that waits for a background operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackgroundCall(u64);

#[derive(Default)]
struct OperationQueueState {
    /// Awaited, but not yet taken by the driver.
    submitted: Vec<Py<Operation>>,
    /// Taken by the driver, then cancelled.
    cancelled: Vec<Py<Operation>>,
    /// The operation that the task awaits between two calls.
    idle_wait: Option<Py<Operation>>,
    /// The call that the task runs as soon as it asks for one.
    next_call: Option<Py<PyAny>>,
    /// How the last call ended: `Some(None)`, or the exception.
    call_result: Option<Option<Py<PyAny>>>,
    /// How many operations in `submitted` were there when the call ended. They belong to the call.
    /// Later ones come from other tasks and wait for the next call: a task that submits one
    /// operation after the other would otherwise keep this call from ending.
    own_submitted: usize,
    driver_waker: Option<Waker>,
    /// The first operation that the current call created and did not await.
    not_awaited: Option<Box<str>>,
    /// When the current call must end.
    deadline: Option<Instant>,
    /// How many calls have started.
    calls_started: u64,
    /// Operations of the current call that separate tasks await.
    background_operations: usize,
}

/// What changed since the driver's last poll.
pub(crate) struct QueueChanges {
    pub(crate) submitted: Vec<Py<Operation>>,
    pub(crate) cancelled: Vec<Py<Operation>>,
}

impl OperationQueue {
    pub(crate) fn new() -> OperationQueue {
        OperationQueue { state: Mutex::default() }
    }

    /// Makes the task run `function(*arguments)`, at once if it is waiting for a call. The call
    /// must end by `deadline`.
    pub(crate) fn start_call(
        &self,
        py: Python<'_>,
        function: &Py<PyAny>,
        arguments: &Py<PyTuple>,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let work = PyTuple::new(py, [function.bind(py), arguments.bind(py).as_any()])?;
        {
            let mut state = self.state();
            state.not_awaited = None;
            state.calls_started += 1;
            state.background_operations = 0;
            state.deadline = deadline;
        }
        self.deliver_call(py, work.into_any().unbind());
        Ok(())
    }

    /// Makes the task end.
    pub(crate) fn end_task(&self, py: Python<'_>) {
        self.deliver_call(py, py.None());
    }

    fn deliver_call(&self, py: Python<'_>, work: Py<PyAny>) {
        let idle = self.state().idle_wait.take();
        match idle {
            Some(operation) => Operation::complete_and_resume(operation, py, Ok(work)),
            None => self.state().next_call = Some(work),
        }
    }

    /// Takes the changes since the last poll. The queue wakes `waker` at the next change.
    pub(crate) fn poll(&self, waker: &Waker) -> QueueChanges {
        let mut state = self.state();
        if !state.driver_waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.driver_waker = Some(waker.clone());
        }
        let mut submitted = std::mem::take(&mut state.submitted);
        if state.call_result.is_some() && submitted.len() > state.own_submitted {
            let later_submitted = submitted.split_off(state.own_submitted);
            let is_background = |operation: &Py<Operation>| Python::attach(|py| operation.borrow(py).is_background());
            let (background, foreign): (Vec<_>, Vec<_>) = later_submitted.into_iter().partition(is_background);
            submitted.extend(background);
            state.submitted = foreign;
        }
        state.own_submitted = 0;
        QueueChanges { submitted, cancelled: std::mem::take(&mut state.cancelled) }
    }

    /// How the call ended; `None` while it runs.
    pub(crate) fn take_call_result(&self) -> Option<Option<Py<PyAny>>> {
        self.state().call_result.take()
    }

    /// Whether the call is running and has submitted nothing: then it awaits something that is not
    /// an operation.
    pub(crate) fn awaits_foreign(&self) -> bool {
        let state = self.state();
        state.call_result.is_none() && state.submitted.is_empty()
    }

    pub(crate) fn set_not_awaited(&self, what: Box<str>) {
        self.state().not_awaited.get_or_insert(what);
    }

    pub(crate) fn take_not_awaited(&self) -> Option<Box<str>> {
        self.state().not_awaited.take()
    }

    pub(crate) fn add_background(&self) -> BackgroundCall {
        let mut state = self.state();
        state.background_operations += 1;
        BackgroundCall(state.calls_started)
    }

    /// Ignores background operations of a call that has ended.
    pub(crate) fn finish_background(&self, BackgroundCall(function): BackgroundCall) {
        let mut state = self.state();
        if state.calls_started == function {
            state.background_operations = state.background_operations.saturating_sub(1);
            state.wake();
        }
    }

    /// Whether background operations of the current call are still running.
    pub(crate) fn has_background(&self) -> bool {
        self.state().background_operations > 0
    }

    pub(crate) fn submit(&self, operation: Py<Operation>) {
        let mut state = self.state();
        state.submitted.push(operation);
        state.wake();
    }

    pub(crate) fn cancel(&self, operation: Py<Operation>) {
        let mut state = self.state();
        state.cancelled.push(operation);
        state.wake();
    }

    fn state(&self) -> MutexGuard<'_, OperationQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationQueueState {
    fn wake(&self) {
        if let Some(driver) = &self.driver_waker {
            driver.wake_by_ref();
        }
    }
}

#[pymethods]
impl OperationQueue {
    /// Returns the next call: `(function, arguments)`, or None if the user has ended.
    fn next(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Operation>> {
        let ready = slf.get().state().next_call.take();
        match ready {
            Some(work) => Py::new(py, Operation::completed(work)),
            None => {
                let waiting = Py::new(py, Operation::in_progress(slf.clone_ref(py)))?;
                slf.get().state().idle_wait = Some(waiting.clone_ref(py));
                Ok(waiting)
            }
        }
    }

    /// Whether the current call has passed its deadline. After returning `true` it extends the
    /// deadline, so that the call can clean up.
    fn overdue(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let overdue = state.call_result.is_none() && state.deadline.is_some_and(|deadline| deadline < now);
        if overdue {
            state.deadline = Some(now + CLEANUP_TIME);
        }
        overdue
    }

    /// Notes that the call has ended: with None, or with the exception that it raised.
    #[pyo3(signature = (error = None))]
    fn done(&self, error: Option<Py<PyAny>>) {
        let mut state = self.state();
        state.call_result = Some(error);
        state.own_submitted = state.submitted.len();
        state.wake();
    }
}
