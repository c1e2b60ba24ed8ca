//! The context variables of a virtual user: all code of a user runs in one `contextvars.Context`,
//! as all code of an asyncio task does. The function stepper and the driver enter it around each
//! step.

use pyo3::{ffi, prelude::*};
use std::ffi::c_int;

// These functions are not in the headers of the stable ABI, but are the same in every CPython since
// 3.7. Calling `Context.run` instead would cost one Python call per step, and one exception per
// last step.
unsafe extern "C" {
    fn PyContext_CopyCurrent() -> *mut ffi::PyObject;
    fn PyContext_Enter(context: *mut ffi::PyObject) -> c_int;
    fn PyContext_Exit(context: *mut ffi::PyObject) -> c_int;
}

/// The context of one user.
pub(crate) struct ContextVariables(Py<PyAny>);

impl ContextVariables {
    /// Copies the current context.
    pub(crate) fn new(py: Python<'_>) -> PyResult<ContextVariables> {
        // SAFETY: the thread is attached; the call returns a new reference, or null with an
        // exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, PyContext_CopyCurrent()) }
            .map(|context| ContextVariables(context.unbind()))
    }

    /// Copies this context. A task that does not end may keep the original entered, so a new task
    /// needs its own.
    pub(crate) fn copy(&self, py: Python<'_>) -> PyResult<ContextVariables> {
        self.0.call_method0(py, "copy").map(ContextVariables)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> ContextVariables {
        ContextVariables(self.0.clone_ref(py))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }

    /// Runs `run` in this context. If the context is already entered, `run` runs as it is.
    pub(crate) fn run<R>(&self, py: Python<'_>, run: impl FnOnce() -> R) -> R {
        // SAFETY: the thread is attached and `self` keeps the context alive; a failure sets an
        // exception, which is cleared below.
        let entered = unsafe { PyContext_Enter(self.0.as_ptr()) } == 0;
        if !entered {
            drop(PyErr::take(py));
        }
        let result = run();
        // SAFETY: as above, and the context was entered here.
        if entered && unsafe { PyContext_Exit(self.0.as_ptr()) } != 0 {
            PyErr::fetch(py).write_unraisable(py, None);
        }
        result
    }
}
