//! Runs a scenario's function up to its next operation: a coroutine directly, a plain function as a fiber. Performs nothing.

use pyo3::{
    intern,
    prelude::*,
    types::{PyIterator, PyTuple, iterator::PySendResult},
};
use std::cell::{Cell, RefCell};

use crate::{
    context::Variables,
    operation::Operation,
    script::{Hook, Kind, Script},
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
    /// A coroutine, and the context that it runs in.
    Coroutine(Py<PyAny>, Variables),
    /// A fiber, and what it is started with.
    Fiber(Fiber),
    /// It never waited.
    Over,
}

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
            return Ok(Stepper::Fiber(Fiber { switch, start }));
        }
        let called = context.run(py, || hook.call.bind(py).call1(arguments.bind(py)))?;
        Ok(match called.is_none() {
            true => Stepper::Over,
            false => Stepper::Coroutine(called.unbind(), context.clone_ref(py)),
        })
    }

    /// Goes on until the next stop.
    pub(crate) fn step(&mut self, py: Python<'_>) -> Step {
        let stopped = match self {
            Stepper::Coroutine(coroutine, context) => {
                // SAFETY: `send` hands the pointer to `PyIter_Send`, which takes any object and itself looks for the slot or the
                // method; it relies on nothing that a checked cast to an iterator would add, and a coroutine fails that check.
                let iterator = unsafe { coroutine.bind(py).cast_unchecked::<PyIterator>() };
                IN_COROUTINE.set(true);
                let sent = context.run(py, || iterator.send(py.None().bind(py)));
                IN_COROUTINE.set(false);
                if matches!(sent, Ok(PySendResult::Return(_))) {
                    // Its variables go with it, and what they held that was not awaited is told while somebody listens.
                    *self = Stepper::Over;
                }
                sent
            }
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
        if let Stepper::Fiber(fiber) = self {
            fibers.borrow_mut().push(fiber.switch);
        }
    }

    /// Ends it where it stands: its `finally` blocks run, whatever it wants to wait for is refused.
    pub(crate) fn close(self, py: Python<'_>) {
        let closed = match &self {
            Stepper::Coroutine(coroutine, context) => context.run(py, || coroutine.bind(py).call_method0("close")),
            Stepper::Fiber(fiber) => fiber.throw(py, None),
            Stepper::Over => return,
        };
        // A coroutine that refuses to end is reported by Python itself when it is collected.
        drop(closed);
    }

    /// Raises `error` where the function waits.
    pub(crate) fn throw(&mut self, py: Python<'_>, error: PyErr) -> Step {
        let thrown = match self {
            Stepper::Coroutine(coroutine, context) => {
                context.run(py, || coroutine.bind(py).call_method1("throw", (error.into_value(py),)))
            }
            Stepper::Fiber(fiber) => fiber.throw(py, Some(error)),
            Stepper::Over => return Step::Returned,
        };
        match thrown {
            Ok(_) => Step::Foreign,
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => Step::Returned,
            Err(error) => Step::Raised(error),
        }
    }
}

/// Fibers that wait for a function, by their `switch`.
pub(crate) type Fibers = RefCell<Vec<Py<PyAny>>>;

/// A plain function under way.
pub(crate) struct Fiber {
    /// The bound method, looked up once.
    switch: Py<PyAny>,
    /// The function and its arguments, until it has begun.
    start: Option<(Py<PyAny>, Py<PyTuple>)>,
}

impl Fiber {
    fn resume<'py>(&mut self, py: Python<'py>) -> PyResult<PySendResult<'py>> {
        let switch = self.switch.bind(py);
        let value = match self.start.take() {
            Some((function, arguments)) => {
                let arguments = arguments.bind(py);
                switch.call1((function, arguments.get_item(0)?, arguments.get_item(1)?))?
            }
            None => switch.call0()?,
        };
        let asks = value.is_instance_of::<Operation>();
        Ok(if asks { PySendResult::Next(value) } else { PySendResult::Return(value) })
    }

    fn throw<'py>(&self, py: Python<'py>, error: Option<PyErr>) -> PyResult<Bound<'py, PyAny>> {
        let throw = self.switch.bind(py).getattr("__self__")?.getattr("throw")?;
        match error {
            Some(error) => throw.call1((error.into_value(py),)),
            None => throw.call0(),
        }
    }
}
