//! Threads for plain functions that block: `time.sleep`, `requests`, `socket`. Each call of such a
//! function has a thread of its own while it runs, so that it blocks no other user. A function that
//! uses the client submits the operation to its driver and waits. It performs no operations and
//! decides nothing about the load; `driver::thread_call` does the former. The driver of an engine
//! thread owns one pool.

use pyo3::{exceptions::PyKeyboardInterrupt, ffi, prelude::*, types::PyTuple};
use std::{
    cell::{Cell, RefCell},
    ffi::c_ulong,
    future::poll_fn,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    task::{Poll, Waker},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    context_variables::ContextVariables,
    custom_metrics::CustomSample,
    not_awaited,
    operation::Operation,
    python_scenario::ScenarioFunction,
    running_code::{self, RunningCode},
};

/// As much as Python gives its own threads on Linux. The memory is used only when it is touched.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    /// The call that this thread runs; `None` on every other thread.
    static CURRENT_CALL: RefCell<Option<Arc<CallLink>>> = const { RefCell::new(None) };
}

/// The threads of one engine thread. It starts them when they are needed, and ends idle ones when it
/// is dropped.
pub(crate) struct BlockingThreads {
    limit: usize,
    free: Arc<Semaphore>,
    idle: Arc<IdleThreads>,
    /// Whether standard error has a line about calls that wait for a thread.
    wait_announced: Cell<bool>,
}

/// The right to use one of the threads.
pub(crate) struct ThreadPermit {
    _held: OwnedSemaphorePermit,
}

/// A thread for blocking code cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a thread for blocking code")]
pub(crate) struct StartCallError(#[from] io::Error);

/// The threads without a call, most recently used last; `None` once the pool has ended.
struct IdleThreads(Mutex<Option<Vec<mpsc::Sender<Job>>>>);

struct Job {
    function: Py<PyAny>,
    arguments: Py<PyTuple>,
    context: ContextVariables,
    link: Arc<CallLink>,
    /// Held until the function has returned, even if its driver has given it up.
    permit: ThreadPermit,
    /// The thread's own sender. The thread becomes idle by giving it back.
    thread: mpsc::Sender<Job>,
}

/// A call on a thread. Dropping it before it has ended interrupts the function and does not wait.
pub(crate) struct ThreadCall {
    link: Arc<CallLink>,
    ended: bool,
}

/// What happened to a call.
pub(crate) enum ThreadCallEvent {
    /// The function waits for this operation.
    AwaitsOperation(Py<Operation>),
    Ended(PyResult<()>),
}

/// What a call's thread and its driver share. Neither attaches to the interpreter while it holds the
/// lock.
struct CallLink {
    state: Mutex<CallState>,
    resumed: Condvar,
}

#[derive(Default)]
struct CallState {
    /// The thread, as Python identifies it, while it runs the function.
    running_on: Option<c_ulong>,
    /// The operation that the function waits for, until the driver takes it.
    submitted: Option<Py<Operation>>,
    /// Whether the driver has performed it.
    performed: bool,
    /// Whether the driver has given the call up.
    cancelled: bool,
    result: Option<PyResult<()>>,
    samples: Vec<CustomSample>,
    driver: Option<Waker>,
}

impl BlockingThreads {
    /// A pool of at most `limit` threads.
    pub(crate) fn new(limit: usize) -> BlockingThreads {
        BlockingThreads {
            limit,
            wait_announced: Cell::new(false),
            free: Arc::new(Semaphore::new(limit)),
            idle: Arc::new(IdleThreads(Mutex::new(Some(Vec::new())))),
        }
    }

    /// Waits for a free thread.
    pub(crate) async fn acquire(&self) -> ThreadPermit {
        let held = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_thread().await,
        };
        ThreadPermit { _held: held }
    }

    /// Runs `function` on the thread of `permit`.
    pub(crate) fn start(
        &self,
        permit: ThreadPermit,
        function: &ScenarioFunction,
        arguments: &Py<PyTuple>,
        context: &ContextVariables,
    ) -> Result<ThreadCall, StartCallError> {
        let link = Arc::new(CallLink { state: Mutex::default(), resumed: Condvar::new() });
        let idle = lock(&self.idle.0).as_mut().and_then(Vec::pop);
        let thread = match idle {
            Some(thread) => thread,
            None => spawn_thread(self.idle.clone())?,
        };
        let job = Python::attach(|py| Job {
            function: function.call.clone_ref(py),
            arguments: arguments.clone_ref(py),
            context: context.clone_ref(py),
            link: link.clone(),
            permit,
            thread: thread.clone(),
        });
        // Cannot fail: a thread ends only when all its senders have been dropped.
        let _ = thread.send(job);
        Ok(ThreadCall { link, ended: false })
    }

    #[cold]
    async fn wait_for_thread(&self) -> OwnedSemaphorePermit {
        if !self.wait_announced.replace(true) {
            squall_cli::print_notice(&format!(
                "all {} threads for blocking code are in use, and iterations wait for them: raise --threads-for-blocking",
                self.limit
            ));
        }
        self.free.clone().acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        drop(lock(&self.idle.0).take());
    }
}

fn spawn_thread(idle: Arc<IdleThreads>) -> io::Result<mpsc::Sender<Job>> {
    let (thread, jobs) = mpsc::channel::<Job>();
    let running = RunningCode::begin();
    std::thread::Builder::new().name("squall-blocking".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        // Attached once for all calls: code may keep its connections in variables of the thread.
        Python::attach(|py| {
            // The receiver moves in and out, because a borrow of it cannot pass `detach`.
            let mut jobs = jobs;
            while let (Ok(job), back) = py.detach(move || (jobs.recv(), jobs)) {
                jobs = back;
                run_job(py, job, &idle);
            }
        });
        drop(running);
    })?;
    Ok(thread)
}

fn run_job(py: Python<'_>, job: Job, idle: &IdleThreads) {
    let Job { function, arguments, context, link, permit, thread } = job;
    drop(not_awaited::take_report());
    let ident = thread_ident(py);
    CURRENT_CALL.set(Some(link.clone()));
    lock(&link.state).running_on = ident.as_ref().ok().copied();
    let called = ident.and_then(|_| context.run(py, || function.call1(py, arguments.bind(py)).map(drop)));
    running_code::end_forked_child();
    CURRENT_CALL.set(None);
    let result = called.and_then(|()| not_awaited::check_all_awaited(not_awaited::take_report()));
    // Dropped while this thread is attached, and before the driver can start another call of the user.
    drop((function, arguments, context));
    link.end(py, result);
    if let Some(threads) = &mut *lock(&idle.0) {
        threads.push(thread);
    }
    drop(permit);
}

fn thread_ident(py: Python<'_>) -> PyResult<c_ulong> {
    py.import("threading")?.call_method0("get_ident")?.extract()
}

impl CallLink {
    /// Submits `operation` and waits until the driver has performed it. Called by the function.
    fn wait(&self, py: Python<'_>, operation: Py<Operation>) -> PyResult<()> {
        let submitted = operation.clone_ref(py);
        let cancelled = py.detach(move || {
            let mut state = lock(&self.state);
            state.performed = false;
            if !state.cancelled {
                state.submitted = Some(submitted);
                state.wake_driver();
            }
            let waits = |state: &mut CallState| !state.performed && !state.cancelled;
            let state = self.resumed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
            state.cancelled
        });
        if cancelled {
            operation.borrow_mut(py).discard();
            return Err(PyKeyboardInterrupt::new_err("the run has ended"));
        }
        Ok(())
    }

    /// Notes that the function has ended. An exception that was raised for it and came too late is
    /// cleared, so that it cannot reach the next function on this thread.
    fn end(&self, _py: Python<'_>, result: PyResult<()>) {
        let mut state = lock(&self.state);
        if let Some(ident) = state.running_on.take() {
            // SAFETY: this thread is attached; a null pointer clears its pending exception.
            unsafe { ffi::PyThreadState_SetAsyncExc(ident as _, std::ptr::null_mut()) };
        }
        state.result = Some(result);
        state.wake_driver();
    }

    /// Raises `class` in the function, if that still runs. It is raised at the next Python
    /// instruction, so after a call into C has returned.
    fn raise(&self, class: &Bound<'_, PyAny>) {
        let state = lock(&self.state);
        if let Some(ident) = state.running_on {
            // SAFETY: this thread is attached. The lock keeps the function from ending meanwhile, so
            // the exception cannot reach the next function on its thread.
            unsafe { ffi::PyThreadState_SetAsyncExc(ident as _, class.as_ptr()) };
        }
    }
}

impl CallState {
    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

impl ThreadCall {
    /// Waits until the function ends or waits for an operation.
    pub(crate) async fn next_event(&mut self) -> ThreadCallEvent {
        let event = poll_fn(|cx| {
            let mut state = lock(&self.link.state);
            if let Some(operation) = state.submitted.take() {
                return Poll::Ready(ThreadCallEvent::AwaitsOperation(operation));
            }
            if let Some(result) = state.result.take() {
                return Poll::Ready(ThreadCallEvent::Ended(result));
            }
            state.driver = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.ended = matches!(event, ThreadCallEvent::Ended(_));
        event
    }

    /// Resumes the function after its operation was performed.
    pub(crate) fn resume(&self) {
        lock(&self.link.state).performed = true;
        self.link.resumed.notify_one();
    }

    /// Raises `class` in the function.
    pub(crate) fn raise(&self, class: &Bound<'_, PyAny>) {
        self.link.raise(class);
    }

    /// The line that the function runs; `None` if it has ended.
    pub(crate) fn location(&self, py: Python<'_>) -> Option<String> {
        let ident = lock(&self.link.state).running_on?;
        py.import("squall._errors").ok()?.call_method1("location_of", (ident,)).ok()?.extract().ok()
    }

    /// The samples that the function has measured since the last call.
    pub(crate) fn take_samples(&self) -> Vec<CustomSample> {
        std::mem::take(&mut lock(&self.link.state).samples)
    }
}

impl Drop for ThreadCall {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let submitted = {
            let mut state = lock(&self.link.state);
            state.cancelled = true;
            state.submitted.take()
        };
        self.link.resumed.notify_one();
        Python::attach(|py| {
            self.link.raise(py.get_type::<PyKeyboardInterrupt>().as_any());
            if let Some(operation) = submitted {
                operation.borrow_mut(py).discard();
            }
        });
    }
}

/// Waits for `operation` on the thread of a blocking call. `False` on every other thread.
#[pyfunction]
pub(crate) fn wait_on_thread(py: Python<'_>, operation: Py<Operation>) -> PyResult<bool> {
    running_code::refuse_in_forked_child()?;
    let link = CURRENT_CALL.with_borrow(Clone::clone);
    link.map_or(Ok(false), |link| link.wait(py, operation).map(|()| true))
}

/// Whether this thread runs a blocking call.
#[pyfunction]
pub(crate) fn on_blocking_thread() -> bool {
    CURRENT_CALL.with_borrow(Option::is_some)
}

/// Keeps `sample` for the driver of the call on this thread. Returns it on every other thread.
pub(crate) fn keep_sample(sample: CustomSample) -> Option<CustomSample> {
    CURRENT_CALL.with_borrow(|link| match link {
        Some(link) => {
            lock(&link.state).samples.push(sample);
            None
        }
        None => Some(sample),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
