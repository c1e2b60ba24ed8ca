//! Reports operations that the scenario created but did not await, and so never performed. The
//! function that created such an operation fails, because a load test that sends nothing must not
//! pass. `squall._errors` and [`crate::operation`] report; the driver reads the reports when a
//! function returns.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};
use std::cell::RefCell;

use crate::operation_queue::OperationQueue;

thread_local! {
    /// The first report since the last [`take_report`], for code that the engine resumes itself.
    static NOT_AWAITED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Reports that `what` was not awaited: for the user of `queue`, or else for the function
/// that is running on this thread.
#[pyfunction]
#[pyo3(signature = (what, queue = None))]
pub(crate) fn report_not_awaited(what: &str, queue: Option<&Bound<'_, OperationQueue>>) {
    match queue {
        Some(queue) => queue.get().set_not_awaited(what.into()),
        None => NOT_AWAITED.with_borrow_mut(|report| {
            report.get_or_insert_with(|| what.into());
        }),
    }
}

/// Takes the report of this thread.
pub(crate) fn take_report() -> Option<Box<str>> {
    NOT_AWAITED.with_borrow_mut(Option::take)
}

/// The result of a function that returned: `NotAwaited` if there is a report.
pub(crate) fn check_all_awaited(report: Option<Box<str>>) -> PyResult<()> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Some(what) = report else { return Ok(()) };
    Err(Python::attach(|py| {
        let exception = CLASS.import(py, "squall._errors", "NotAwaited").and_then(|class| class.call1((&*what,)));
        exception.map_or_else(|error| error, PyErr::from_value)
    }))
}

/// Reports an operation that is dropped without being awaited, with a Python warning at that place.
#[cold]
pub(crate) fn warn_not_awaited(py: Python<'_>, what: &str, sent: &str, queue: Option<&Py<OperationQueue>>) {
    // Python may drop the operation while an exception propagates, which the warning must not
    // replace.
    let propagating = PyErr::take(py);
    let warned = py
        .import("squall._errors")
        .and_then(|errors| errors.call_method1("warn_unawaited", (what, sent, queue.map(|queue| queue.clone_ref(py)))));
    if let Err(error) = warned {
        error.write_unraisable(py, None);
    }
    if let Some(error) = propagating {
        error.restore(py);
    }
}
