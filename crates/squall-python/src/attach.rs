//! Attaches engine threads to the interpreter. An engine thread is attached while it runs and
//! detached while it sleeps: one attach serves every user that is ready in a wake-up, and other
//! Python threads can run whenever the engine thread waits. The driver calls it once per engine
//! thread.

use pyo3::{Python, ffi};
use squall_engine::ThreadDeadline;
use std::{cell::Cell, ptr};
use tokio::runtime::Builder;

use crate::{running_code::RunningCode, watchdog};

thread_local! {
    /// The Python thread state while this thread is detached; null while it is attached.
    static DETACHED_STATE: Cell<*mut ffi::PyThreadState> = const { Cell::new(ptr::null_mut()) };
}

/// Runs `run` attached to the interpreter. `run` builds its runtime from `builder`, which
/// detaches the thread whenever the runtime has nothing to do.
pub(crate) fn run_attached<R>(
    deadline: &ThreadDeadline,
    builder: &mut Builder,
    run: impl FnOnce(&mut Builder) -> R,
) -> R {
    let _running = RunningCode::begin();
    Python::attach(|py| {
        // The run continues if the watchdog cannot start: only code that never returns needs it.
        let _watchdog = watchdog::watch(py, Some(deadline.clone()));
        builder.on_thread_park(park).on_thread_unpark(unpark);
        run(builder)
    })
}

fn park() {
    // SAFETY: the runtime calls this on the thread that `run_attached` attached, between two polls,
    // when no running code uses a reference obtained under the attachment. `unpark` follows before
    // anything else runs on this thread. pyo3's own `detach` cannot do this: it needs a closure
    // around the whole sleep, and the sleep is inside tokio.
    DETACHED_STATE.set(unsafe { ffi::PyEval_SaveThread() });
}

fn unpark() {
    let state = DETACHED_STATE.replace(ptr::null_mut());
    if !state.is_null() {
        // SAFETY: `PyEval_SaveThread` returned `state` on this thread, and nothing has restored it
        // since.
        unsafe { ffi::PyEval_RestoreThread(state) };
    }
}
