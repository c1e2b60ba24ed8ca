//! Knows which threads still run code of a scenario, so that the process can end without them: Python's
//! own exit would wait for them, or end them inside our code. Also ends child processes that a scenario
//! forked and that return to the run. It interrupts nothing; the watchdog does. The entry point of the
//! command calls [`end_process_if_code_runs`].

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use std::{
    io::Write,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

/// How long threads may take to end once they have no code to run.
const EXIT_TIME: Duration = Duration::from_millis(200);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
/// Whether this process is the child of a fork.
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Counts a thread that runs code of a scenario, until dropped.
pub(crate) struct RunningCode(());

impl RunningCode {
    pub(crate) fn begin() -> RunningCode {
        *running() += 1;
        RunningCode(())
    }
}

impl Drop for RunningCode {
    fn drop(&mut self) {
        *running() -= 1;
        ENDED.notify_all();
    }
}

fn running() -> MutexGuard<'static, usize> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process with `code` if code of a scenario still runs. Call it detached.
pub(crate) fn end_process_if_code_runs(code: u8) {
    let (still_running, _) =
        ENDED.wait_timeout_while(running(), EXIT_TIME, |running| *running > 0).unwrap_or_else(PoisonError::into_inner);
    if *still_running == 0 {
        return;
    }
    drop(still_running);
    // On a thread of its own, because code may hold the interpreter for ever.
    let (done, flushed) = mpsc::channel();
    std::thread::spawn(move || {
        Python::attach(flush_python_output);
        let _ = done.send(());
    });
    let _ = flushed.recv_timeout(EXIT_TIME);
    let _ = std::io::stdout().flush();
    std::process::exit(i32::from(code));
}

fn flush_python_output(py: Python<'_>) {
    for stream in ["stdout", "stderr"] {
        let flushed = py.import("sys").and_then(|sys| sys.getattr(stream)?.call_method0("flush"));
        if let Err(error) = flushed {
            error.write_unraisable(py, None);
        }
    }
}

/// Notes that this process is the child of a fork. Python calls it in every such child.
#[pyfunction]
pub(crate) fn mark_forked_child() {
    FORKED_CHILD.store(true, Relaxed);
}

/// Refuses an operation in the child of a fork: the engine that would perform it is in the parent.
#[inline]
pub(crate) fn refuse_in_forked_child() -> PyResult<()> {
    match FORKED_CHILD.load(Relaxed) {
        true => Err(PyRuntimeError::new_err(
            "this process was forked by a task and cannot use squall: only its parent is part of the run",
        )),
        false => Ok(()),
    }
}

/// Ends this process if it is the child of a fork: code of a scenario has returned in it, and the
/// engine of the run belongs to the parent.
#[inline]
pub(crate) fn end_forked_child() {
    if FORKED_CHILD.load(Relaxed) {
        Python::attach(exit_child);
    }
}

#[cold]
fn exit_child(py: Python<'_>) {
    // `os._exit`: the buffers and exit handlers of the process belong to the parent.
    let exited = py.import("os").and_then(|os| os.call_method1("_exit", (0,)));
    if let Err(error) = exited {
        error.write_unraisable(py, None);
    }
    std::process::exit(1);
}
