//! What a scenario awaits: an operation that the driver carries out. It yields itself once, which is how the driver gets it, and
//! ends with its result. Performs nothing and knows no loop.

use pyo3::{
    exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration},
    prelude::*,
};
use std::time::Duration;

use crate::routes::Call;

/// Something to be awaited: a request, a batch of requests, a pause.
#[pyclass(module = "squall._squall")]
pub(crate) struct Operation {
    state: State,
}

enum State {
    Fresh(Work),
    /// The driver has it.
    Taken,
    Done(PyResult<Py<PyAny>>),
    Spent,
}

/// What is to be done.
pub(crate) enum Work {
    Request(Box<Call>),
    Batch(Vec<Call>),
    Sleep(Duration),
}

impl Operation {
    pub(crate) fn new(work: Work) -> Operation {
        Operation { state: State::Fresh(work) }
    }

    /// Takes the work for the driver; `None` if somebody already has.
    pub(crate) fn take(&mut self) -> Option<Work> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Fresh(work) => Some(work),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Leaves the result for the code that awaits it.
    pub(crate) fn finish(&mut self, result: PyResult<Py<PyAny>>) {
        self.state = State::Done(result);
    }
}

#[pymethods]
impl Operation {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(mut slf: PyRefMut<'_, Self>) -> PyResult<Py<Self>> {
        match std::mem::replace(&mut slf.state, State::Spent) {
            State::Fresh(work) => {
                slf.state = State::Fresh(work);
                Ok(slf.into())
            }
            State::Done(Ok(value)) => Err(PyStopIteration::new_err(value)),
            State::Done(Err(error)) => Err(error),
            State::Taken | State::Spent => Err(spent()),
        }
    }

    /// What came of it, for code that does not await: a fiber that was woken up because it is done.
    fn result(&mut self) -> PyResult<Py<PyAny>> {
        match std::mem::replace(&mut self.state, State::Spent) {
            State::Done(result) => result,
            _ => Err(spent()),
        }
    }
}

#[cold]
fn spent() -> PyErr {
    PyRuntimeError::new_err("this request was already awaited; call the client again for another one")
}

impl Drop for Operation {
    fn drop(&mut self) {
        if matches!(self.state, State::Fresh(_)) {
            // As Python warns of coroutines; a filter that turns warnings into errors has nobody to raise to here.
            Python::attach(|py| {
                let category = py.get_type::<PyRuntimeWarning>();
                let _ = PyErr::warn(py, &category, c"a client call was never awaited, so nothing was sent", 1);
            });
        }
    }
}
