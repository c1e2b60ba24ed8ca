//! What nobody awaited, so that it never happened: told to the function that made it, which fails for it. A load test that sends nothing
//! must not pass.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};
use std::cell::RefCell;

use crate::operation_queue::OperationQueue;

thread_local! {
    /// The first one since somebody looked; of code that the engine resumes itself.
    static NOT_AWAITED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Writes down that `what` was not awaited, for the user behind `port` or else for the function that is running on this thread.
#[pyfunction]
#[pyo3(signature = (what, port = None))]
#[pyo3(name = "forgot")]
pub(crate) fn report_not_awaited(what: &str, port: Option<&Bound<'_, OperationQueue>>) {
    match port {
        Some(port) => port.get().set_not_awaited(what.into()),
        None => NOT_AWAITED.with_borrow_mut(|forgotten| {
            forgotten.get_or_insert_with(|| what.into());
        }),
    }
}

/// What was forgotten on this thread since the last look.
pub(crate) fn take_report() -> Option<Box<str>> {
    NOT_AWAITED.with_borrow_mut(Option::take)
}

/// How a function ended that returned: well, if it forgot nothing.
pub(crate) fn check_all_awaited(forgotten: Option<Box<str>>) -> PyResult<()> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Some(what) = forgotten else { return Ok(()) };
    Err(Python::attach(|py| {
        let made = CLASS.import(py, "squall._errors", "NotAwaited").and_then(|class| class.call1((&*what,)));
        made.map_or_else(|error| error, PyErr::from_value)
    }))
}

/// The same for something of ours, at the place where it is given up.
#[cold]
pub(crate) fn warn_not_awaited(py: Python<'_>, what: &str, sent: &str, port: Option<&Py<OperationQueue>>) {
    // It is dropped wherever Python drops it, perhaps while an exception is on its way.
    let on_its_way = PyErr::take(py);
    let told = py
        .import("squall._errors")
        .and_then(|errors| errors.call_method1("warn_unawaited", (what, sent, port.map(|port| port.clone_ref(py)))));
    if let Err(error) = told {
        error.write_unraisable(py, None);
    }
    if let Some(error) = on_its_way {
        error.restore(py);
    }
}
