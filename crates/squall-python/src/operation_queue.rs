//! Between a user's asyncio task and its driver: operations go out, results come in, on one thread. Performs nothing itself.

use pyo3::{prelude::*, types::PyTuple};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Instant,
};

use crate::{operation::Operation, watchdog::CLEANUP_TIME};

/// One user's side door out of its asyncio task.
#[pyclass(name = "Port", frozen, module = "squall._squall")]
pub(crate) struct OperationQueue {
    state: Mutex<OperationQueueState>,
}

/// The function, by its number, that a promise was made to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackgroundCall(u64);

#[derive(Default)]
struct OperationQueueState {
    /// Awaited by somebody, not yet taken by the driver.
    submitted: Vec<Py<Operation>>,
    /// Taken by the driver, no longer wanted.
    cancelled: Vec<Py<Operation>>,
    /// What the task waits in between two functions.
    idle_wait: Option<Py<Operation>>,
    /// What it shall run as soon as it asks.
    next_call: Option<Py<PyAny>>,
    /// How the last function ended: `None`, or the exception.
    call_result: Option<Option<Py<PyAny>>>,
    /// How many of those that were asked for then are the function's. Further ones are others', and wait for the next function: somebody who
    /// asks for one thing after the other would keep this one from ending.
    own_submitted: usize,
    driver_waker: Option<Waker>,
    /// What the function that runs made and did not await.
    not_awaited: Option<Box<str>>,
    /// When the function that runs must be over.
    deadline: Option<Instant>,
    /// How many functions have begun.
    calls_started: u64,
    /// Requests of the function that runs which tasks of their own will await.
    background_operations: usize,
}

/// What the driver finds when it looks.
pub(crate) struct QueueChanges {
    pub(crate) submitted: Vec<Py<Operation>>,
    pub(crate) cancelled: Vec<Py<Operation>>,
}

impl OperationQueue {
    pub(crate) fn new() -> OperationQueue {
        OperationQueue { state: Mutex::default() }
    }

    /// Lets the task run `function(*arguments)`, at once if it is waiting for something to run.
    /// `deadline`: when it must be over.
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

    /// Lets the task end.
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

    /// What happened since the last look; `waker` is woken at the next thing that does.
    pub(crate) fn poll(&self, waker: &Waker) -> QueueChanges {
        let mut state = self.state();
        if !state.driver_waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.driver_waker = Some(waker.clone());
        }
        let mut asked = std::mem::take(&mut state.submitted);
        if state.call_result.is_some() && asked.len() > state.own_submitted {
            let late = asked.split_off(state.own_submitted);
            let promised = |operation: &Py<Operation>| Python::attach(|py| operation.borrow(py).is_background());
            let (promised, late): (Vec<_>, Vec<_>) = late.into_iter().partition(promised);
            asked.extend(promised);
            state.submitted = late;
        }
        state.own_submitted = 0;
        QueueChanges { submitted: asked, cancelled: std::mem::take(&mut state.cancelled) }
    }

    /// How the function ended, once it has.
    pub(crate) fn take_call_result(&self) -> Option<Option<Py<PyAny>>> {
        self.state().call_result.take()
    }

    /// Whether the function goes on and has nothing to ask for: it awaits something that is not ours.
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

    /// A promise to a function that is over is nobody's any more.
    pub(crate) fn finish_background(&self, BackgroundCall(function): BackgroundCall) {
        let mut state = self.state();
        if state.calls_started == function {
            state.background_operations = state.background_operations.saturating_sub(1);
            state.wake();
        }
    }

    /// Whether the function that runs has started what it does not await, and that is not over.
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
    /// What to run next: `(function, arguments)`, or None if the user is over.
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

    /// Whether the time of the function that runs is over. Once that was said it has some more, to clean up after itself.
    fn overdue(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let overdue = state.call_result.is_none() && state.deadline.is_some_and(|deadline| deadline < now);
        if overdue {
            state.deadline = Some(now + CLEANUP_TIME);
        }
        overdue
    }

    /// Says that the function has ended: with None, or the exception that it raised.
    #[pyo3(signature = (error = None))]
    fn done(&self, error: Option<Py<PyAny>>) {
        let mut state = self.state();
        state.call_result = Some(error);
        state.own_submitted = state.submitted.len();
        state.wake();
    }
}
