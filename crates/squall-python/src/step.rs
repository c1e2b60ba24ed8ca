//! Runs a scenario's function up to its next operation: a coroutine directly, a plain function as a fiber. Performs nothing.

use pyo3::{
    exceptions::{PyGeneratorExit, PyStopIteration},
    intern,
    prelude::*,
    types::{PyIterator, PyTuple, iterator::PySendResult},
};
use std::cell::{Cell, RefCell};

use crate::{
    context::Variables,
    operation::Operation,
    script::{Hook, Kind, Script},
    watchdog,
};

thread_local! {
    static IN_COROUTINE: Cell<bool> = const { Cell::new(false) };
}

/// Whether a coroutine that the engine resumes itself is running on this thread.
pub(crate) fn in_coroutine() -> bool {
    IN_COROUTINE.get()
}

/// A function under way.
pub(crate) enum Stepper {
    Coroutine(Coroutine),
    /// A fiber, and what it is started with.
    Fiber(Fiber),
    /// It never waited, or has ended.
    Over,
}

/// How often a function is told to end before it is left where it stands.
const TOLD: usize = 100;

/// Where a function stopped.
pub(crate) enum Step {
    /// It waits for one of our operations.
    Asks(Py<Operation>),
    /// It waits for something that is not ours.
    Foreign,
    Returned,
    Raised(PyErr),
}

impl Stepper {
    /// Calls `hook`; a coroutine does not run yet.
    pub(crate) fn begin(
        py: Python<'_>,
        script: &Script,
        fibers: &Fibers,
        hook: &Hook,
        arguments: &Py<PyTuple>,
        context: &Variables,
    ) -> PyResult<Stepper> {
        if hook.kind == Kind::Plain
            && let Some(make) = &script.fiber
        {
            let idle = fibers.borrow_mut().pop();
            let switch = match idle {
                Some(switch) => switch,
                None => make.bind(py).call0()?.getattr("switch")?.unbind(),
            };
            // Greenlets bring their context along wherever they are resumed.
            switch.bind(py).getattr(intern!(py, "__self__"))?.setattr(intern!(py, "gr_context"), context.bind(py))?;
            let start = Some((hook.call.clone_ref(py), arguments.clone_ref(py)));
            return Ok(Stepper::Fiber(Fiber { switch: Some(switch), start }));
        }
        let called = context.run(py, || hook.call.bind(py).call1(arguments.bind(py)))?;
        Ok(match called.is_none() {
            true => Stepper::Over,
            false => Stepper::Coroutine(Coroutine { object: Some(called.unbind()), context: context.clone_ref(py) }),
        })
    }

    /// Goes on until the next stop.
    pub(crate) fn step(&mut self, py: Python<'_>) -> Step {
        let stopped = match self {
            Stepper::Coroutine(coroutine) => coroutine.resume(py),
            Stepper::Fiber(fiber) => fiber.resume(py),
            Stepper::Over => return Step::Returned,
        };
        match stopped {
            Ok(PySendResult::Return(_)) => Step::Returned,
            Ok(PySendResult::Next(yielded)) => match yielded.cast_into::<Operation>() {
                Ok(operation) => Step::Asks(operation.unbind()),
                Err(_) => Step::Foreign,
            },
            Err(error) => Step::Raised(error),
        }
    }

    /// Keeps the fiber of a function that returned for the next one.
    pub(crate) fn recycle(self, fibers: &Fibers) {
        if let Stepper::Fiber(mut fiber) = self {
            fibers.borrow_mut().extend(fiber.switch.take());
        }
    }

    /// Raises `error` where the function waits.
    pub(crate) fn throw(&mut self, py: Python<'_>, error: PyErr) -> Step {
        let thrown = match self {
            Stepper::Coroutine(coroutine) => coroutine.throw(py, error.into_value(py).into_any()),
            Stepper::Fiber(fiber) => fiber.throw(py, error.into_value(py).into_any()),
            Stepper::Over => return Step::Returned,
        };
        match thrown {
            Ok(_) => Step::Foreign,
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => Step::Returned,
            Err(error) => Step::Raised(error),
        }
    }
}

/// Fibers that wait for a function, by their `switch`.
pub(crate) type Fibers = RefCell<Vec<Py<PyAny>>>;

/// A coroutine under way. Dropped before it has ended, it is ended where it stands: its `finally` blocks run, whatever they want to wait
/// for is refused.
pub(crate) struct Coroutine {
    /// Until it has ended.
    object: Option<Py<PyAny>>,
    context: Variables,
}

impl Coroutine {
    fn resume<'py>(&mut self, py: Python<'py>) -> PyResult<PySendResult<'py>> {
        let Some(object) = &self.object else { return Ok(PySendResult::Return(py.None().into_bound(py))) };
        // SAFETY: `send` hands the pointer to `PyIter_Send`, which takes any object and itself looks for the slot or the
        // method; it relies on nothing that a checked cast to an iterator would add, and a coroutine fails that check.
        let iterator = unsafe { object.bind(py).cast_unchecked::<PyIterator>() };
        IN_COROUTINE.set(true);
        let sent = self.context.run(py, || iterator.send(py.None().bind(py)));
        IN_COROUTINE.set(false);
        if !matches!(sent, Ok(PySendResult::Next(_))) {
            // Its variables go with it, and what they held that was not awaited is told while somebody listens.
            self.object = None;
        }
        sent
    }

    fn throw<'py>(&self, py: Python<'py>, error: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.object {
            Some(object) => self.context.run(py, || object.bind(py).call_method1("throw", (error,))),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Tells it to end; what it waits for instead.
    fn exit<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.throw(py, py.get_type::<PyGeneratorExit>().into_any().unbind()).ok()
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        if self.object.is_some() && !silence(|py| self.exit(py)) {
            std::mem::forget(self.object.take());
        }
    }
}

/// Tells a function to end, which is answered with what it waits for instead; says whether it did. What does not listen is better forgotten than dropped: Python would tell it once more, and
/// the person of each that it did not listen.
#[cold]
fn silence(tell: impl for<'py> Fn(Python<'py>) -> Option<Bound<'py, PyAny>>) -> bool {
    let ends = |py: Python<'_>| {
        let Some(waits) = tell(py) else { return true };
        if let Ok(operation) = waits.cast::<Operation>() {
            operation.borrow_mut().forgo();
        }
        false
    };
    watchdog::step(None, || Python::attach(|py| (0..TOLD).any(|_| ends(py)))).0
}

/// A plain function under way. Dropped before it has ended, it is ended as a coroutine is.
pub(crate) struct Fiber {
    /// The bound method, looked up once; until it has ended.
    switch: Option<Py<PyAny>>,
    /// The function and its arguments, until it has begun.
    start: Option<(Py<PyAny>, Py<PyTuple>)>,
}

impl Fiber {
    fn resume<'py>(&mut self, py: Python<'py>) -> PyResult<PySendResult<'py>> {
        let Some(switch) = &self.switch else { return Ok(PySendResult::Return(py.None().into_bound(py))) };
        let switch = switch.bind(py);
        let switched = match self.start.take() {
            Some((function, arguments)) => {
                let arguments = arguments.bind(py);
                switch.call1((function, arguments.get_item(0)?, arguments.get_item(1)?))
            }
            None => switch.call0(),
        };
        let value = match switched {
            Ok(value) => value,
            Err(error) => {
                self.switch = None;
                return Err(error);
            }
        };
        let asks = value.is_instance_of::<Operation>();
        Ok(if asks { PySendResult::Next(value) } else { PySendResult::Return(value) })
    }

    fn throw<'py>(&self, py: Python<'py>, error: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.switch {
            Some(switch) => switch.bind(py).getattr(intern!(py, "__self__"))?.call_method1("throw", (error,)),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Tells it to end; what it waits for instead.
    fn exit<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let exit = py.import("greenlet").and_then(|greenlet| greenlet.getattr("GreenletExit")).ok()?;
        self.throw(py, exit.unbind()).ok().filter(|waits| waits.is_instance_of::<Operation>())
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // One that never began has nothing to end.
        if self.start.is_none() && self.switch.is_some() && !silence(|py| self.exit(py)) {
            std::mem::forget(self.switch.take());
        }
    }
}
