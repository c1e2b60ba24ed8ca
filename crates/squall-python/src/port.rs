//! Between a user's asyncio task and its driver: operations go out, results come in, on one thread. Performs nothing itself.

use pyo3::{prelude::*, types::PyTuple};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Instant,
};

use crate::{operation::Operation, watchdog::LAST_WORDS};

/// One user's side door out of its asyncio task.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct Port {
    state: Mutex<State>,
}

/// The function, by its number, that a promise was made to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise(u64);

#[derive(Default)]
struct State {
    /// Awaited by somebody, not yet taken by the driver.
    asked: Vec<Py<Operation>>,
    /// Taken by the driver, no longer wanted.
    cancelled: Vec<Py<Operation>>,
    /// What the task waits in between two functions.
    idle: Option<Py<Operation>>,
    /// What it shall run as soon as it asks.
    next: Option<Py<PyAny>>,
    /// How the last function ended: `None`, or the exception.
    ended: Option<Option<Py<PyAny>>>,
    /// How many of those that were asked for then are the function's. Further ones are others', and wait for the next function: somebody who
    /// asks for one thing after the other would keep this one from ending.
    own: usize,
    driver: Option<Waker>,
    /// What the function that runs made and did not await.
    forgotten: Option<Box<str>>,
    /// When the function that runs must be over.
    deadline: Option<Instant>,
    /// How many functions have begun.
    begun: u64,
    /// Requests of the function that runs which tasks of their own will await.
    promised: usize,
}

/// What the driver finds when it looks.
pub(crate) struct News {
    pub(crate) asked: Vec<Py<Operation>>,
    pub(crate) cancelled: Vec<Py<Operation>>,
}

impl Port {
    pub(crate) fn new() -> Port {
        Port { state: Mutex::default() }
    }

    /// Lets the task run `function(*arguments)`, at once if it is waiting for something to run.
    /// `deadline`: when it must be over.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        function: &Py<PyAny>,
        arguments: &Py<PyTuple>,
        deadline: Option<Instant>,
    ) -> PyResult<()> {
        let work = PyTuple::new(py, [function.bind(py), arguments.bind(py).as_any()])?;
        {
            let mut state = self.state();
            state.forgotten = None;
            state.begun += 1;
            state.promised = 0;
            state.deadline = deadline;
        }
        self.hand(py, work.into_any().unbind());
        Ok(())
    }

    /// Lets the task end.
    pub(crate) fn dismiss(&self, py: Python<'_>) {
        self.hand(py, py.None());
    }

    fn hand(&self, py: Python<'_>, work: Py<PyAny>) {
        let idle = self.state().idle.take();
        match idle {
            Some(operation) => Operation::complete(operation, py, Ok(work)),
            None => self.state().next = Some(work),
        }
    }

    /// What happened since the last look; `waker` is woken at the next thing that does.
    pub(crate) fn look(&self, waker: &Waker) -> News {
        let mut state = self.state();
        if !state.driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
        let mut asked = std::mem::take(&mut state.asked);
        if state.ended.is_some() && asked.len() > state.own {
            let late = asked.split_off(state.own);
            let promised = |operation: &Py<Operation>| Python::attach(|py| operation.borrow(py).is_promised());
            let (promised, late): (Vec<_>, Vec<_>) = late.into_iter().partition(promised);
            asked.extend(promised);
            state.asked = late;
        }
        state.own = 0;
        News { asked, cancelled: std::mem::take(&mut state.cancelled) }
    }

    /// How the function ended, once it has.
    pub(crate) fn ended(&self) -> Option<Option<Py<PyAny>>> {
        self.state().ended.take()
    }

    /// Whether the function goes on and has nothing to ask for: it awaits something that is not ours.
    pub(crate) fn awaits_else(&self) -> bool {
        let state = self.state();
        state.ended.is_none() && state.asked.is_empty()
    }

    pub(crate) fn forget(&self, what: Box<str>) {
        self.state().forgotten.get_or_insert(what);
    }

    pub(crate) fn forgotten(&self) -> Option<Box<str>> {
        self.state().forgotten.take()
    }

    pub(crate) fn promise(&self) -> Promise {
        let mut state = self.state();
        state.promised += 1;
        Promise(state.begun)
    }

    /// A promise to a function that is over is nobody's any more.
    pub(crate) fn keep(&self, Promise(function): Promise) {
        let mut state = self.state();
        if state.begun == function {
            state.promised = state.promised.saturating_sub(1);
            state.wake();
        }
    }

    /// Whether the function that runs has started what it does not await, and that is not over.
    pub(crate) fn is_promised(&self) -> bool {
        self.state().promised > 0
    }

    pub(crate) fn ask(&self, operation: Py<Operation>) {
        let mut state = self.state();
        state.asked.push(operation);
        state.wake();
    }

    pub(crate) fn cancel(&self, operation: Py<Operation>) {
        let mut state = self.state();
        state.cancelled.push(operation);
        state.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }
}

#[pymethods]
impl Port {
    /// What to run next: `(function, arguments)`, or None if the user is over.
    fn next(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Operation>> {
        let ready = slf.get().state().next.take();
        match ready {
            Some(work) => Py::new(py, Operation::done(work)),
            None => {
                let waiting = Py::new(py, Operation::waiting(slf.clone_ref(py)))?;
                slf.get().state().idle = Some(waiting.clone_ref(py));
                Ok(waiting)
            }
        }
    }

    /// Whether the time of the function that runs is over. Once that was said it has some more, to clean up after itself.
    fn overdue(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let overdue = state.ended.is_none() && state.deadline.is_some_and(|deadline| deadline < now);
        if overdue {
            state.deadline = Some(now + LAST_WORDS);
        }
        overdue
    }

    /// Says that the function has ended: with None, or the exception that it raised.
    #[pyo3(signature = (error = None))]
    fn done(&self, error: Option<Py<PyAny>>) {
        let mut state = self.state();
        state.ended = Some(error);
        state.own = state.asked.len();
        state.wake();
    }
}
