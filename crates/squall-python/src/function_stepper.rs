//! Runs a scenario's function up to its next operation: a coroutine directly, a plain function as a
//! fiber. It does not perform operations; the driver does, and calls `step` again with the result
//! in place.

use pyo3::{
    exceptions::{PyGeneratorExit, PyStopIteration},
    intern,
    prelude::*,
    types::{PyIterator, PyTuple, iterator::PySendResult},
};
use std::cell::{Cell, RefCell};

use crate::{
    context_variables::ContextVariables,
    operation::Operation,
    python_scenario::{FunctionKind, PythonScenario, ScenarioFunction},
    watchdog,
};

thread_local! {
    static IN_COROUTINE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a coroutine that the engine resumes itself, without asyncio.
pub(crate) fn in_coroutine() -> bool {
    IN_COROUTINE.get()
}

/// A function that is running.
pub(crate) enum FunctionStepper {
    Coroutine(RunningCoroutine),
    /// A plain function on a fiber.
    Fiber(RunningFiber),
    /// The function has ended, or returned without being a coroutine.
    Finished,
}

/// How often the stepper asks a function to exit before it abandons the function.
const EXIT_ATTEMPTS: usize = 100;

/// Why a function stopped.
pub(crate) enum StepperOutcome {
    /// The function awaits an operation of the engine.
    AwaitsOperation(Py<Operation>),
    /// The function awaits something else.
    AwaitsForeign,
    Returned,
    Raised(PyErr),
}

impl FunctionStepper {
    /// Calls `function`. A coroutine does not run before the first `step`.
    pub(crate) fn start(
        py: Python<'_>,
        scenario: &PythonScenario,
        fibers: &IdleFibers,
        function: &ScenarioFunction,
        arguments: &Py<PyTuple>,
        context: &ContextVariables,
    ) -> PyResult<FunctionStepper> {
        if function.kind == FunctionKind::Plain
            && let Some(new_fiber) = &scenario.new_fiber
        {
            let idle = fibers.borrow_mut().pop();
            let switch = match idle {
                Some(switch) => switch,
                None => new_fiber.bind(py).call0()?.getattr("switch")?.unbind(),
            };
            // A greenlet enters its own context whenever it is resumed.
            switch.bind(py).getattr(intern!(py, "__self__"))?.setattr(intern!(py, "gr_context"), context.bind(py))?;
            let start = Some((function.call.clone_ref(py), arguments.clone_ref(py)));
            return Ok(FunctionStepper::Fiber(RunningFiber { switch: Some(switch), start }));
        }
        let called = context.run(py, || function.call.bind(py).call1(arguments.bind(py)))?;
        Ok(match called.is_none() {
            true => FunctionStepper::Finished,
            false => FunctionStepper::Coroutine(RunningCoroutine {
                object: Some(called.unbind()),
                context: context.clone_ref(py),
            }),
        })
    }

    /// Runs the function until it awaits something or ends.
    pub(crate) fn step(&mut self, py: Python<'_>) -> StepperOutcome {
        let stopped = match self {
            FunctionStepper::Coroutine(coroutine) => coroutine.resume(py),
            FunctionStepper::Fiber(fiber) => fiber.resume(py),
            FunctionStepper::Finished => return StepperOutcome::Returned,
        };
        match stopped {
            Ok(PySendResult::Return(_)) => StepperOutcome::Returned,
            Ok(PySendResult::Next(yielded)) => match yielded.cast_into::<Operation>() {
                Ok(operation) => StepperOutcome::AwaitsOperation(operation.unbind()),
                Err(_) => StepperOutcome::AwaitsForeign,
            },
            Err(error) => StepperOutcome::Raised(error),
        }
    }

    /// Keeps the fiber of a function that has returned for the next function.
    pub(crate) fn recycle(self, fibers: &IdleFibers) {
        if let FunctionStepper::Fiber(mut fiber) = self {
            fibers.borrow_mut().extend(fiber.switch.take());
        }
    }

    /// Raises `error` at the point where the function waits.
    pub(crate) fn throw(&mut self, py: Python<'_>, error: PyErr) -> StepperOutcome {
        let thrown = match self {
            FunctionStepper::Coroutine(coroutine) => coroutine.throw(py, error.into_value(py).into_any()),
            FunctionStepper::Fiber(fiber) => fiber.throw(py, error.into_value(py).into_any()),
            FunctionStepper::Finished => return StepperOutcome::Returned,
        };
        match thrown {
            Ok(_) => StepperOutcome::AwaitsForeign,
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => StepperOutcome::Returned,
            Err(error) => StepperOutcome::Raised(error),
        }
    }
}

/// The bound `switch` methods of fibers that have no function to run.
pub(crate) type IdleFibers = RefCell<Vec<Py<PyAny>>>;

/// A coroutine that is running. Dropping it before it has ended makes it exit at the point where it
/// waits: its `finally` blocks run, and operations that they await are not performed.
pub(crate) struct RunningCoroutine {
    /// `None` once the coroutine has ended.
    object: Option<Py<PyAny>>,
    context: ContextVariables,
}

impl RunningCoroutine {
    fn resume<'py>(&mut self, py: Python<'py>) -> PyResult<PySendResult<'py>> {
        let Some(object) = &self.object else { return Ok(PySendResult::Return(py.None().into_bound(py))) };
        // SAFETY: `send` passes the pointer to `PyIter_Send`, which takes any object and looks for
        // the slot or the method itself. A checked cast to an iterator would add nothing, and a
        // coroutine fails it.
        let iterator = unsafe { object.bind(py).cast_unchecked::<PyIterator>() };
        IN_COROUTINE.set(true);
        let sent = self.context.run(py, || iterator.send(py.None().bind(py)));
        IN_COROUTINE.set(false);
        if !matches!(sent, Ok(PySendResult::Next(_))) {
            // This drops the coroutine's variables now, so that operations among them that were not
            // awaited are reported against this function.
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

    /// Asks the function to exit. Returns what it awaits instead, or `None` if it exited.
    fn request_exit<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.throw(py, py.get_type::<PyGeneratorExit>().into_any().unbind()).ok()
    }
}

impl Drop for RunningCoroutine {
    fn drop(&mut self) {
        if self.object.is_some() && !force_exit(|py| self.request_exit(py)) {
            std::mem::forget(self.object.take());
        }
    }
}

/// Asks a function to exit until it does, at most [`EXIT_ATTEMPTS`] times, and returns whether it
/// did. `request_exit` returns what the function awaits instead of exiting. The caller must leak a
/// function that does not exit: on drop, Python would ask it once more and print a warning for each
/// such function.
#[cold]
fn force_exit(request_exit: impl for<'py> Fn(Python<'py>) -> Option<Bound<'py, PyAny>>) -> bool {
    let exits = |py: Python<'_>| {
        let Some(awaited) = request_exit(py) else { return true };
        if let Ok(operation) = awaited.cast::<Operation>() {
            operation.borrow_mut().discard();
        }
        false
    };
    watchdog::step(None, || Python::attach(|py| (0..EXIT_ATTEMPTS).any(|_| exits(py)))).0
}

/// A plain function that is running on a fiber. Dropping it before it has ended makes it exit, as
/// [`RunningCoroutine`] does.
pub(crate) struct RunningFiber {
    /// The fiber's bound `switch` method, looked up once; `None` once the fiber has ended.
    switch: Option<Py<PyAny>>,
    /// The function and its arguments; `None` once the function has started.
    start: Option<(Py<PyAny>, Py<PyTuple>)>,
}

impl RunningFiber {
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
        let awaits = value.is_instance_of::<Operation>();
        Ok(if awaits { PySendResult::Next(value) } else { PySendResult::Return(value) })
    }

    fn throw<'py>(&self, py: Python<'py>, error: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.switch {
            Some(switch) => switch.bind(py).getattr(intern!(py, "__self__"))?.call_method1("throw", (error,)),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Asks the function to exit. Returns what it awaits instead, or `None` if it exited.
    fn request_exit<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let exit = py.import("greenlet").and_then(|greenlet| greenlet.getattr("GreenletExit")).ok()?;
        self.throw(py, exit.unbind()).ok().filter(|awaited| awaited.is_instance_of::<Operation>())
    }
}

impl Drop for RunningFiber {
    fn drop(&mut self) {
        // A function that never started has nothing to exit from.
        if self.start.is_none() && self.switch.is_some() && !force_exit(|py| self.request_exit(py)) {
            std::mem::forget(self.switch.take());
        }
    }
}
