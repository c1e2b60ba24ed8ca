//! The one place that attaches threads to the interpreter. An engine thread is attached while it runs and detached while it
//! sleeps, so that one attach serves every user that is ready in a wake-up, and other Python threads run during all waiting.

use pyo3::{Python, ffi};
use squall_engine::ThreadDeadline;
use std::{cell::Cell, ptr};
use tokio::runtime::Builder;

use crate::watchdog;

thread_local! {
    /// The thread's state while it is detached; null while it is attached.
    static DETACHED_STATE: Cell<*mut ffi::PyThreadState> = const { Cell::new(ptr::null_mut()) };
}

/// Runs `life` attached, in a runtime that detaches whenever it has nothing to do.
pub(crate) fn run_attached<R>(
    curfew: &ThreadDeadline,
    builder: &mut Builder,
    life: impl FnOnce(&mut Builder) -> R,
) -> R {
    Python::attach(|py| {
        // Without it only what never returns is worse off.
        let _watchdog = watchdog::watch(py, Some(curfew.clone()));
        builder.on_thread_park(park).on_thread_unpark(unpark);
        life(builder)
    })
}

fn park() {
    // SAFETY: the runtime calls this on the thread that `host` attached, between two polls, when no reference obtained under the
    // attachment is in use by running code. `unpark` follows before anything else runs on this thread. pyo3's own `detach` cannot
    // do this: it needs a closure around the whole sleep, and the sleep is inside tokio.
    DETACHED_STATE.set(unsafe { ffi::PyEval_SaveThread() });
}

fn unpark() {
    let state = DETACHED_STATE.replace(ptr::null_mut());
    if !state.is_null() {
        // SAFETY: `state` was returned by `PyEval_SaveThread` on this very thread and has not been restored since.
        unsafe { ffi::PyEval_RestoreThread(state) };
    }
}
