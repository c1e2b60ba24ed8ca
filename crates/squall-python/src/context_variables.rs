//! A user's own context variables: whatever of its code runs, runs in one `contextvars.Context`, as on asyncio a task's does.

use pyo3::{ffi, prelude::*};
use std::ffi::c_int;

// Not in the stable ABI's headers, and the same in every CPython since 3.7. Calling `Context.run` instead would cost a call of Python's
// for each step, and an exception for each that is the last.
unsafe extern "C" {
    fn PyContext_CopyCurrent() -> *mut ffi::PyObject;
    fn PyContext_Enter(context: *mut ffi::PyObject) -> c_int;
    fn PyContext_Exit(context: *mut ffi::PyObject) -> c_int;
}

/// The context of one user.
pub(crate) struct ContextVariables(Py<PyAny>);

impl ContextVariables {
    /// A copy of the one that is in force now.
    pub(crate) fn new(py: Python<'_>) -> PyResult<ContextVariables> {
        // SAFETY: attached; it gives a new reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, PyContext_CopyCurrent()) }
            .map(|context| ContextVariables(context.unbind()))
    }

    /// One of its own with what is in this one: it may still be in force with a task that does not end.
    pub(crate) fn copy(&self, py: Python<'_>) -> PyResult<ContextVariables> {
        self.0.call_method0(py, "copy").map(ContextVariables)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> ContextVariables {
        ContextVariables(self.0.clone_ref(py))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }

    /// Runs something in it; as it is where it is in force already.
    pub(crate) fn run<R>(&self, py: Python<'_>, run: impl FnOnce() -> R) -> R {
        // SAFETY: attached, and it is a context, which `self` keeps alive; a refusal leaves an exception, which is taken.
        let entered = unsafe { PyContext_Enter(self.0.as_ptr()) } == 0;
        if !entered {
            drop(PyErr::take(py));
        }
        let done = run();
        // SAFETY: as above, and it was entered here.
        if entered && unsafe { PyContext_Exit(self.0.as_ptr()) } != 0 {
            PyErr::fetch(py).write_unraisable(py, None);
        }
        done
    }
}
