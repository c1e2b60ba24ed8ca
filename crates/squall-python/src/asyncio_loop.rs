//! Runs an asyncio loop on an engine thread: tokio watches the loop's selector and its next timer,
//! and runs one loop iteration per wake-up. The loop itself never blocks. This file does not
//! inspect the loop's tasks. The driver starts one loop per thread for scenarios that need asyncio.

#[cfg(feature = "browser")]
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use std::{
    cell::RefCell,
    io,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
    task::JoinHandle,
};

use crate::{
    context_variables::ContextVariables,
    operation_queue::OperationQueue,
    watchdog::{self, BlockingStep},
};

thread_local! {
    static THREAD_LOOP: RefCell<Option<ThreadLoop>> = const { RefCell::new(None) };
}

/// What other code on this thread needs from the loop.
struct ThreadLoop {
    event_loop: Py<PyAny>,
    wake: Rc<Notify>,
}

/// The loop of one engine thread, and the tokio task that runs it.
pub(crate) struct AsyncioLoop {
    event_loop: Py<PyAny>,
    /// The loop's own queue of callbacks that are ready to run.
    ready: Py<PyAny>,
    wake: Rc<Notify>,
    runner: JoinHandle<()>,
}

impl AsyncioLoop {
    /// Creates the loop, makes it the running loop of this thread, and starts running it. The
    /// watchdog interrupts an iteration that lasts longer than `step_timeout`. `on_blocking_step`
    /// receives every iteration that blocked the thread for too long.
    pub(crate) fn start(
        py: Python<'_>,
        step_timeout: Option<Duration>,
        on_blocking_step: impl Fn(&BlockingStep) + 'static,
    ) -> PyResult<AsyncioLoop> {
        let event_loop = py.import("squall._asyncio_loop")?.call_method0("start_loop")?;
        let ready = event_loop.getattr("_ready")?.unbind();
        let descriptor: RawFd = event_loop.getattr("descriptor")?.extract()?;
        // SAFETY: the loop was created just above and keeps its selector open; the borrow ends when
        // the descriptor has been duplicated.
        let selector = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let selector = selector
            .try_clone_to_owned()
            // SAFETY: an owned descriptor keeps its number until it is closed, and `AsyncFd` owns
            // it, so the registration ends first.
            .and_then(|copy| {
                unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) }.map_err(io::Error::from)
            })
            .map_err(|error| PyRuntimeError::new_err(format!("cannot watch asyncio's selector: {error}")))?;
        let wake = Rc::new(Notify::new());
        let run_once = event_loop.getattr("run_once")?.unbind();
        let runner =
            tokio::task::spawn_local(run_loop(run_once, selector, wake.clone(), step_timeout, on_blocking_step));
        let event_loop = event_loop.unbind();
        THREAD_LOOP.set(Some(ThreadLoop { event_loop: event_loop.clone_ref(py), wake: wake.clone() }));
        wake.notify_one();
        watchdog::mark_asyncio_loop();
        Ok(AsyncioLoop { event_loop, ready, wake, runner })
    }

    /// Starts the asyncio task of one user. The task runs the calls that arrive in the user's
    /// queue.
    pub(crate) fn start_user_task(
        &self,
        py: Python<'_>,
        queue: &Py<OperationQueue>,
        context: &ContextVariables,
    ) -> PyResult<Py<PyAny>> {
        let task = self.event_loop.bind(py).call_method1("start_user_task", (queue, context.bind(py)))?.unbind();
        self.wake.notify_one();
        Ok(task)
    }

    /// Connects Playwright to the browser of this thread.
    #[cfg(feature = "browser")]
    pub(crate) async fn connect_browser(&self) -> Result<(), String> {
        let (sender, connected) = tokio::sync::oneshot::channel::<Option<String>>();
        let sender = std::sync::Mutex::new(Some(sender));
        let on_connected = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            let problem: Option<String> = arguments.get_item(0)?.extract()?;
            let sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            // The engine may have given up meanwhile.
            if let Some(sender) = sender {
                let _ = sender.send(problem);
            }
            Ok(())
        };
        Python::attach(|py| {
            let on_connected = PyCFunction::new_closure(py, None, None, on_connected)?;
            self.event_loop.bind(py).call_method1("connect_browser", (on_connected,)).map(drop)
        })
        .map_err(|error: PyErr| error.to_string())?;
        self.wake.notify_one();
        match connected.await {
            Ok(None) => Ok(()),
            Ok(Some(problem)) => Err(problem),
            Err(_) => Err("the asyncio loop ended".to_owned()),
        }
    }

    /// Wakes the loop if it has callbacks to run. Call it after Python code ran outside the loop:
    /// that code may have scheduled callbacks.
    pub(crate) fn wake_if_ready(&self, py: Python<'_>) {
        if self.ready.bind(py).len().is_ok_and(|waiting| waiting > 0) {
            self.wake.notify_one();
        }
    }
}

impl Drop for AsyncioLoop {
    fn drop(&mut self) {
        self.runner.abort();
        Python::attach(|py| {
            if let Err(error) = self.event_loop.bind(py).call_method0("finish") {
                error.write_unraisable(py, None);
            }
        });
        // After `finish`, because the tasks that it cancels still ask for their loop.
        THREAD_LOOP.set(None);
    }
}

async fn run_loop(
    run_once: Py<PyAny>,
    selector: AsyncFd<OwnedFd>,
    wake: Rc<Notify>,
    step_timeout: Option<Duration>,
    on_blocking_step: impl Fn(&BlockingStep),
) {
    let mut next_timer: Option<Duration> = None;
    loop {
        let timer = async {
            match next_timer {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            readable = selector.readable() => if let Ok(mut guard) = readable { guard.clear_ready() },
            () = wake.notified() => {}
            () = timer => {}
        }
        let deadline = step_timeout.map(|step_timeout| Instant::now() + step_timeout);
        let (wait_until_timer, report) = watchdog::step(deadline, || {
            Python::attach(|py| match run_once.bind(py).call0().and_then(|wait| wait.extract::<Option<f64>>()) {
                Ok(wait) => wait.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)),
                Err(error) => {
                    error.write_unraisable(py, None);
                    None
                }
            })
        });
        report.iter().filter_map(|report| report.blocking_step.as_ref()).for_each(&on_blocking_step);
        next_timer = wait_until_timer;
        if next_timer.is_some_and(|wait| wait.is_zero()) {
            wake.notify_one();
            tokio::task::yield_now().await;
        }
    }
}

/// The asyncio loop of this thread.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Py<PyAny>> {
    THREAD_LOOP
        .with_borrow(|thread_loop| thread_loop.as_ref().map(|thread_loop| thread_loop.event_loop.clone_ref(py)))
        .ok_or_else(|| PyRuntimeError::new_err("this thread has no asyncio loop; await this inside a running scenario"))
}

/// Schedules an iteration of this thread's loop.
pub(crate) fn wake_loop() {
    THREAD_LOOP.with_borrow(|thread_loop| thread_loop.iter().for_each(|thread_loop| thread_loop.wake.notify_one()));
}
