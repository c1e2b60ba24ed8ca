//! Turns failures of the Rust side into Python exceptions, all of them. The classes live in `squall._errors`.

use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyType};
use squall_http::{HttpError, RequestError};

fn exception_class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "squall._errors", name)
}

/// A request that got no answer.
#[cold]
pub(crate) fn request_failed(py: Python<'_>, error: &HttpError, name: &str) -> PyErr {
    static FAILED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static TIMEOUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = match error.error_category() {
        squall_http::HttpErrorCategory::Timeout => exception_class(py, &TIMEOUT, "RequestTimeout"),
        _ => exception_class(py, &FAILED, "RequestError"),
    };
    let message = format!("{name}: {error}");
    made.and_then(|class| class.call1((message, error.code(), error.category_name())))
        .map_or_else(|error| error, PyErr::from_value)
}

/// A request that this process may not send any more; it has been recorded as such.
#[cold]
pub(crate) fn worker_fenced(py: Python<'_>, name: &str) -> PyErr {
    static FAILED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let message = format!("{name}: this worker has lost its place in the fleet");
    exception_class(py, &FAILED, "RequestError")
        .and_then(|class| class.call1((message, "FENCED", "transport_error")))
        .map_or_else(|error| error, PyErr::from_value)
}

/// An answer that breaks the protocol: a redirect that leads nowhere, a WebSocket that is none.
#[cold]
pub(crate) fn protocol_error(py: Python<'_>, code: &'static str, reason: &str, name: &str) -> PyErr {
    static FAILED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception_class(py, &FAILED, "RequestError")
        .and_then(|class| class.call1((format!("{name}: {reason}"), code, "protocol_error")))
        .map_or_else(|error| error, PyErr::from_value)
}

/// A request that cannot be sent as it was written.
#[cold]
pub(crate) fn bad_request(error: &RequestError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

/// An answer that `raise_for_status` refuses.
#[cold]
pub(crate) fn bad_status(py: Python<'_>, response: Py<crate::response::PyResponse>, status: u16) -> PyErr {
    static STATUS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception_class(py, &STATUS, "StatusError")
        .and_then(|class| class.call1((format!("the server answered {status}"), response)))
        .map_or_else(|error| error, PyErr::from_value)
}

static TIMEOUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Whether an exception says that a task took too long.
pub(crate) fn is_task_timeout(py: Python<'_>, error: &PyErr) -> bool {
    exception_class(py, &TIMEOUT, "TaskTimeout").is_ok_and(|class| error.is_instance(py, class))
}

/// A task that took longer than its limit.
#[cold]
pub(crate) fn task_timeout(py: Python<'_>, task: &str, limit: std::time::Duration) -> PyErr {
    exception_class(py, &TIMEOUT, "TaskTimeout")
        .and_then(|class| class.call1((format!("{task} took longer than its timeout of {limit:?}"),)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// A resource that could not be had.
#[cold]
pub(crate) fn resource_error(py: Python<'_>, error: &squall_engine::ResourceError) -> PyErr {
    static EXHAUSTED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match error {
        squall_engine::ResourceError::Exhausted(message) => exception_class(py, &EXHAUSTED, "ResourcesExhausted")
            .and_then(|class| class.call1((message,)))
            .map_or_else(|error| error, PyErr::from_value),
        squall_engine::ResourceError::Refused(message) => pyo3::exceptions::PyRuntimeError::new_err(message.clone()),
    }
}

/// The same failure of something that had been opened: its request is recorded as the success that it was, and the failure is nobody's yet.
#[cold]
pub(crate) fn mark_unrecorded(py: Python<'_>, error: PyErr) -> PyErr {
    match error.value(py).setattr(intern!(py, "recorded"), false) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// Whether an exception is a failed request, which has been recorded as such.
pub(crate) fn is_request_failure(py: Python<'_>, error: &PyErr) -> bool {
    static FAILED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let recorded =
        || error.value(py).getattr(intern!(py, "recorded")).is_ok_and(|recorded| recorded.is_truthy().unwrap_or(true));
    exception_class(py, &FAILED, "RequestError").is_ok_and(|class| error.is_instance(py, class)) && recorded()
}

/// What asyncio's futures raise when they are asked too early.
#[cold]
pub(crate) fn not_ready(py: Python<'_>) -> PyErr {
    static EARLY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    EARLY
        .import(py, "asyncio", "InvalidStateError")
        .and_then(|class| class.call1(("the result is not there yet",)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// What somebody gets who waits for an operation that was given up.
#[cold]
pub(crate) fn cancelled(py: Python<'_>, message: Option<Py<PyAny>>) -> PyErr {
    static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = CANCELLED.import(py, "asyncio", "CancelledError").and_then(|class| match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    });
    made.map_or_else(|error| error, PyErr::from_value)
}
