//! Runs a scenario's function up to its next operation: a coroutine directly, a plain function as a fiber. Performs nothing.

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

/// Whether a coroutine that the engine resumes itself is running on this thread.
pub(crate) fn in_coroutine() -> bool {
    IN_COROUTINE.get()
}

/// A function under way.
pub(crate) enum FunctionStepper {
    Coroutine(RunningCoroutine),
    /// A fiber, and what it is started with.
    Fiber(RunningFiber),
    /// It never waited, or has ended.
    Finished,
}

/// How often a function is told to end before it is left where it stands.
const EXIT_ATTEMPTS: usize = 100;

/// Where a function stopped.
pub(crate) enum StepperOutcome {
    /// It waits for one of our operations.
    AwaitsOperation(Py<Operation>),
    /// It waits for something that is not ours.
    AwaitsForeign,
    Returned,
    Raised(PyErr),
}

impl FunctionStepper {
    /// Calls `hook`; a coroutine does not run yet.
    pub(crate) fn start(
        py: Python<'_>,
        script: &PythonScenario,
        fibers: &IdleFibers,
        hook: &ScenarioFunction,
        arguments: &Py<PyTuple>,
        context: &ContextVariables,
    ) -> PyResult<FunctionStepper> {
        if hook.kind == FunctionKind::Plain
            && let Some(make) = &script.new_fiber
        {
            let idle = fibers.borrow_mut().pop();
            let switch = match idle {
                Some(switch) => switch,
                None => make.bind(py).call0()?.getattr("switch")?.unbind(),
            };
            // Greenlets bring their context along wherever they are resumed.
            switch.bind(py).getattr(intern!(py, "__self__"))?.setattr(intern!(py, "gr_context"), context.bind(py))?;
            let start = Some((hook.call.clone_ref(py), arguments.clone_ref(py)));
            return Ok(FunctionStepper::Fiber(RunningFiber { switch: Some(switch), start }));
        }
        let called = context.run(py, || hook.call.bind(py).call1(arguments.bind(py)))?;
        Ok(match called.is_none() {
            true => FunctionStepper::Finished,
            false => FunctionStepper::Coroutine(RunningCoroutine {
                object: Some(called.unbind()),
                context: context.clone_ref(py),
            }),
        })
    }

    /// Goes on until the next stop.
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

    /// Keeps the fiber of a function that returned for the next one.
    pub(crate) fn recycle(self, fibers: &IdleFibers) {
        if let FunctionStepper::Fiber(mut fiber) = self {
            fibers.borrow_mut().extend(fiber.switch.take());
        }
    }

    /// Raises `error` where the function waits.
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

/// Fibers that wait for a function, by their `switch`.
pub(crate) type IdleFibers = RefCell<Vec<Py<PyAny>>>;

/// A coroutine under way. Dropped before it has ended, it is ended where it stands: its `finally` blocks run, whatever they want to wait
/// for is refused.
pub(crate) struct RunningCoroutine {
    /// Until it has ended.
    object: Option<Py<PyAny>>,
    context: ContextVariables,
}

impl RunningCoroutine {
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

/// Tells a function to end, which is answered with what it waits for instead; says whether it did. What does not listen is better forgotten than dropped: Python would tell it once more, and
/// the person of each that it did not listen.
#[cold]
fn force_exit(tell: impl for<'py> Fn(Python<'py>) -> Option<Bound<'py, PyAny>>) -> bool {
    let ends = |py: Python<'_>| {
        let Some(waits) = tell(py) else { return true };
        if let Ok(operation) = waits.cast::<Operation>() {
            operation.borrow_mut().discard();
        }
        false
    };
    watchdog::step(None, || Python::attach(|py| (0..EXIT_ATTEMPTS).any(|_| ends(py)))).0
}

/// A plain function under way. Dropped before it has ended, it is ended as a coroutine is.
pub(crate) struct RunningFiber {
    /// The bound method, looked up once; until it has ended.
    switch: Option<Py<PyAny>>,
    /// The function and its arguments, until it has begun.
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
    fn request_exit<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let exit = py.import("greenlet").and_then(|greenlet| greenlet.getattr("GreenletExit")).ok()?;
        self.throw(py, exit.unbind()).ok().filter(|waits| waits.is_instance_of::<Operation>())
    }
}

impl Drop for RunningFiber {
    fn drop(&mut self) {
        // One that never began has nothing to end.
        if self.start.is_none() && self.switch.is_some() && !force_exit(|py| self.request_exit(py)) {
            std::mem::forget(self.switch.take());
        }
    }
}
