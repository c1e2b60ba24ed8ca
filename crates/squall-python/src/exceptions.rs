//! Turns all failures of the Rust side into Python exceptions. It does not define the exception
//! classes: those are in `squall._errors` and asyncio. All files of this crate call it.

use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyType};
use squall_http::{HttpError, RequestError};

fn exception_class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, "squall._errors", name)
}

/// The exception of a request that got no response.
#[cold]
pub(crate) fn request_failed(py: Python<'_>, error: &HttpError, name: &str) -> PyErr {
    static REQUEST_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static TIMEOUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let exception = match error.error_category() {
        squall_http::HttpErrorCategory::Timeout => exception_class(py, &TIMEOUT, "RequestTimeout"),
        _ => exception_class(py, &REQUEST_ERROR, "RequestError"),
    };
    let message = format!("{name}: {error}");
    exception
        .and_then(|class| class.call1((message, error.code(), error.category_name())))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a request that the recorder refused, because the worker may send no more
/// requests. The recorder has already counted it.
#[cold]
pub(crate) fn worker_fenced(py: Python<'_>, name: &str) -> PyErr {
    static REQUEST_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let message =
        format!("{name}: the worker did not send it, because it has lost its membership or used up its send budget");
    exception_class(py, &REQUEST_ERROR, "RequestError")
        .and_then(|class| class.call1((message, "FENCED", "transport_error")))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a response that breaks the protocol, such as a redirect without a usable
/// location or a refused WebSocket handshake.
#[cold]
pub(crate) fn protocol_error(py: Python<'_>, code: &'static str, reason: &str, name: &str) -> PyErr {
    static REQUEST_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception_class(py, &REQUEST_ERROR, "RequestError")
        .and_then(|class| class.call1((format!("{name}: {reason}"), code, "protocol_error")))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a CQL statement that failed. It has been recorded.
#[cfg(feature = "cql")]
#[cold]
pub(crate) fn statement_failed(py: Python<'_>, message: &str, outcome: squall_metrics::Outcome) -> PyErr {
    static CQL_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let arguments = (message, outcome.code.to_string(), outcome.category.name());
    exception_class(py, &CQL_ERROR, "CqlError")
        .and_then(|class| class.call1(arguments))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a call whose arguments make no valid request.
#[cold]
pub(crate) fn bad_request(error: &RequestError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

/// The exception that `raise_for_status` raises.
#[cold]
pub(crate) fn bad_status(py: Python<'_>, response: Py<crate::response::PyResponse>, status: u16) -> PyErr {
    static STATUS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    exception_class(py, &STATUS, "StatusError")
        .and_then(|class| class.call1((format!("the server responded with status {status}"), response)))
        .map_or_else(|error| error, PyErr::from_value)
}

static TIMEOUT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Whether `error` is a `TaskTimeout`.
pub(crate) fn is_task_timeout(py: Python<'_>, error: &PyErr) -> bool {
    exception_class(py, &TIMEOUT, "TaskTimeout").is_ok_and(|class| error.is_instance(py, class))
}

/// The exception of a task that took longer than its timeout.
#[cold]
pub(crate) fn task_timeout(py: Python<'_>, task: &str, limit: std::time::Duration) -> PyErr {
    exception_class(py, &TIMEOUT, "TaskTimeout")
        .and_then(|class| class.call1((format!("{task} took longer than its timeout of {limit:?}"),)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a failed `resources.acquire`.
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

/// Marks the failure of a connection that had been opened as not yet recorded: its opening request
/// was recorded as a success, so the task must record this failure.
#[cold]
pub(crate) fn mark_unrecorded(py: Python<'_>, error: PyErr) -> PyErr {
    match error.value(py).setattr(intern!(py, "recorded"), false) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// Whether `error` is a failed request, or the failure of a step in a browser, that has been recorded.
pub(crate) fn is_request_failure(py: Python<'_>, error: &PyErr) -> bool {
    if error.value(py).hasattr(intern!(py, "__squall_step_failed__")).unwrap_or(false) {
        return true;
    }
    static REQUEST_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let recorded =
        || error.value(py).getattr(intern!(py, "recorded")).is_ok_and(|recorded| recorded.is_truthy().unwrap_or(true));
    exception_class(py, &REQUEST_ERROR, "RequestError").is_ok_and(|class| error.is_instance(py, class)) && recorded()
}

/// The exception that an asyncio future raises when its result is read too early.
#[cold]
pub(crate) fn not_ready(py: Python<'_>) -> PyErr {
    static INVALID_STATE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    INVALID_STATE
        .import(py, "asyncio", "InvalidStateError")
        .and_then(|class| class.call1(("the operation is not done; await it before you read its result",)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// The exception that code gets when it awaits a cancelled operation.
#[cold]
pub(crate) fn cancelled(py: Python<'_>, message: Option<Py<PyAny>>) -> PyErr {
    static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let exception = CANCELLED.import(py, "asyncio", "CancelledError").and_then(|class| match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    });
    exception.map_or_else(|error| error, PyErr::from_value)
}
