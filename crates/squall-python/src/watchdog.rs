//! Interrupts scenario code that does not give its thread back. The watchdog raises an exception
//! inside code that runs past its task's timeout, past the end of the run's grace period, or past
//! the second Ctrl-C. That works only between two Python instructions: the watchdog cannot
//! interrupt a call into C that never returns, and reports it on standard error and in the report
//! instead. A step costs the watched thread a few stores and two reads of a coarse clock. `attach`
//! and `run_hooks` start a watchdog; code that calls into a scenario does so inside [`step`].

use pyo3::{ffi, prelude::*};
use rustix::time::{ClockId, clock_gettime};
use squall_engine::ThreadDeadline;
use std::{
    cell::{Cell, RefCell},
    ffi::c_ulong,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// The time between two checks. The watchdog may not see a shorter step.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A longer step delays responses that arrive meanwhile, because the thread reads them only after
/// the step. The limit is above one tick of the coarse clock, so that a short step across a tick
/// does not count.
const LONG_STEP: Duration = Duration::from_millis(11);
/// The watchdog reports a step that lasts at least this long.
const BLOCKING_STEP_MIN: Duration = Duration::from_secs(1);
/// How long a function may clean up after its timeout, including requests.
pub(crate) const CLEANUP_TIME: Duration = Duration::from_secs(5);
/// How long code may run after the abort before the watchdog prints that it cannot be interrupted.
const UNINTERRUPTIBLE_AFTER: Duration = Duration::from_secs(2);

thread_local! {
    static WATCHED_THREAD: RefCell<Option<Arc<WatchedThread>>> = const { RefCell::new(None) };
    static LONG_STEP_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The total time of steps longer than [`LONG_STEP`] on this thread.
pub(crate) fn long_step_time() -> Duration {
    LONG_STEP_TIME.get()
}

/// What the watched thread shares with its watchdog.
struct WatchedThread {
    thread_ident: c_ulong,
    base: Instant,
    /// Odd while a step runs.
    step_number: AtomicU64,
    /// In nanoseconds after `base`; `u64::MAX` if the step has no deadline.
    deadline: AtomicU64,
    /// Whether the watchdog has reported or interrupted the current step.
    flagged: AtomicBool,
    /// Whether the watchdog raised `TaskTimeout` in the current step.
    timeout_raised: AtomicBool,
    /// Whether the thread runs an asyncio loop.
    has_asyncio_loop: AtomicBool,
    blocking_step: Mutex<Option<BlockingStep>>,
}

/// A step that blocked its thread for too long.
#[derive(Clone)]
pub(crate) struct BlockingStep {
    pub(crate) since: Instant,
    pub(crate) location: String,
}

/// What the watchdog noticed about a step.
pub(crate) struct StepReport {
    pub(crate) blocking_step: Option<BlockingStep>,
    /// Whether the watchdog raised `TaskTimeout` in the step.
    pub(crate) timeout_raised: bool,
}

/// The watchdog of one thread. Dropping it ends its thread.
pub(crate) struct Watchdog {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Starts a watchdog for this thread, which must be attached. After `run_deadline` it interrupts
/// every step.
pub(crate) fn watch(py: Python<'_>, run_deadline: Option<ThreadDeadline>) -> PyResult<Watchdog> {
    let thread_ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
    let watched = Arc::new(WatchedThread {
        thread_ident,
        base: Instant::now(),
        step_number: AtomicU64::new(0),
        deadline: AtomicU64::new(u64::MAX),
        flagged: AtomicBool::new(false),
        timeout_raised: AtomicBool::new(false),
        has_asyncio_loop: AtomicBool::new(false),
        blocking_step: Mutex::default(),
    });
    WATCHED_THREAD.set(Some(watched.clone()));
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("squall-watchdog".to_owned());
    let (ready, listening) = std::sync::mpsc::channel();
    let thread = thread.spawn(move || watch_thread(&watched, run_deadline.as_ref(), stopped, ready))?;
    // Waits until the watchdog listens for signals: it would not count a Ctrl-C that came earlier.
    // An error means that its thread has already ended.
    let _ = listening.recv();
    Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCHED_THREAD.set(None);
        drop(self.stop.take());
        let thread = self.thread.take();
        // Detaches while it joins, because the watchdog may be waiting to attach.
        Python::attach(|py| py.detach(|| thread.map(|thread| thread.join())));
    }
}

/// Notes that this thread runs an asyncio loop.
pub(crate) fn mark_asyncio_loop() {
    WATCHED_THREAD
        .with_borrow(|watched| watched.iter().for_each(|watched| watched.has_asyncio_loop.store(true, Relaxed)));
}

/// Runs one step of Python code under the watchdog, which interrupts it after `deadline`.
pub(crate) fn step<R>(deadline: Option<Instant>, run: impl FnOnce() -> R) -> (R, Option<StepReport>) {
    WATCHED_THREAD.with_borrow(|watched| {
        let Some(watched) = watched else { return (run(), None) };
        if let Some(deadline) = deadline {
            watched.deadline.store(watched.since_base(deadline), Relaxed);
        }
        watched.step_number.store(watched.step_number.load(Relaxed) + 1, Relaxed);
        let started = coarse_now();
        let result = run();
        let elapsed = coarse_now().saturating_sub(started);
        if elapsed > LONG_STEP {
            LONG_STEP_TIME.set(LONG_STEP_TIME.get() + elapsed);
        }
        watched.step_number.store(watched.step_number.load(Relaxed) + 1, Relaxed);
        if deadline.is_some() {
            watched.deadline.store(u64::MAX, Relaxed);
        }
        let report = if watched.flagged.load(Relaxed) { Some(watched.take_report()) } else { None };
        (result, report)
    })
}

/// Reads a coarse clock, which is cheap enough to read twice per await.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl WatchedThread {
    fn since_base(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Clears an exception that came after the end of the step, and returns what the watchdog
    /// noticed.
    #[cold]
    fn take_report(&self) -> StepReport {
        self.flagged.store(false, Relaxed);
        // SAFETY: the thread is attached, as in every step; a null pointer clears its pending
        // exception.
        Python::attach(|_| unsafe { ffi::PyThreadState_SetAsyncExc(self.thread_ident as _, std::ptr::null_mut()) });
        let blocking = self.blocking_step.lock().unwrap_or_else(PoisonError::into_inner).take();
        StepReport { blocking_step: blocking, timeout_raised: self.timeout_raised.swap(false, Relaxed) }
    }

    /// Raises `class` in the step `step_number`, if that is still running. `is_timeout` says
    /// whether `class` is `TaskTimeout`.
    fn raise(&self, py: Python<'_>, step_number: u64, class: &Bound<'_, PyAny>, is_timeout: bool) {
        if self.step_number.load(Relaxed) == step_number {
            self.flagged.store(true, Relaxed);
            self.timeout_raised.store(is_timeout, Relaxed);
            // SAFETY: this thread is attached and the watched thread is not, so that cannot end the
            // step before it sees the exception or clears it.
            unsafe { ffi::PyThreadState_SetAsyncExc(self.thread_ident as _, class.as_ptr()) };
            let _ = py;
        }
    }

    /// Whether the running asyncio task has passed its deadline. An iteration of the loop runs
    /// tasks of many users, so the deadline of the step does not apply.
    fn asyncio_task_is_overdue(&self) -> bool {
        self.has_asyncio_loop.load(Relaxed)
            && Python::attach(|py| {
                let overdue = py
                    .import("squall._asyncio_loop")
                    .and_then(|asyncio_loop| asyncio_loop.call_method1("overdue", (self.thread_ident,)));
                overdue.and_then(|overdue| overdue.extract()).unwrap_or(false)
            })
    }

    fn code_location(&self, py: Python<'_>) -> String {
        let location =
            py.import("squall._errors").and_then(|errors| errors.call_method1("location_of", (self.thread_ident,)));
        location.and_then(|location| location.extract()).unwrap_or_else(|_| "the scenario's code".to_owned())
    }
}

/// A step that was running at the last check.
struct ObservedStep {
    step_number: u64,
    since: Instant,
    reported: bool,
    uninterruptible: bool,
    /// When the watchdog last raised `TaskTimeout` in it.
    timeout_raised_at: Option<Instant>,
}

fn watch_thread(
    watched: &WatchedThread,
    run_deadline: Option<&ThreadDeadline>,
    stopped: oneshot::Receiver<()>,
    ready: std::sync::mpsc::Sender<()>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let (Ok(mut sigint), Ok(mut sigterm)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // Fails only if `watch` has stopped waiting.
        let _ = ready.send(());
        let mut signals = 0;
        let mut aborted_at: Option<Instant> = None;
        let mut seen: Option<ObservedStep> = None;
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                _ = sigint.recv() => signals += 1,
                _ = sigterm.recv() => signals += 1,
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    if signals > 1 || run_deadline.is_some_and(ThreadDeadline::has_passed) {
                        aborted_at.get_or_insert_with(Instant::now);
                    }
                    check_step(watched, &mut seen, aborted_at);
                }
            }
            if signals > 2 && seen.as_ref().is_some_and(|seen| seen.uninterruptible) {
                std::process::exit(130);
            }
        }
    });
}

/// Reports or interrupts the current step if necessary. `aborted_at` is when all code had to end.
fn check_step(watched: &WatchedThread, seen: &mut Option<ObservedStep>, aborted_at: Option<Instant>) {
    let step_number = watched.step_number.load(Relaxed);
    if step_number.is_multiple_of(2) {
        *seen = None;
        return;
    }
    let now = Instant::now();
    let observed = match seen {
        Some(step) if step.step_number == step_number => step,
        _ => {
            *seen = Some(ObservedStep {
                step_number,
                since: now,
                reported: false,
                uninterruptible: false,
                timeout_raised_at: None,
            });
            return;
        }
    };
    let deadline = watched.deadline.load(Relaxed);
    // After a timeout, code has time to clean up before the next one.
    let cleaning_up = observed.timeout_raised_at.is_some_and(|at| now.saturating_duration_since(at) < CLEANUP_TIME);
    let overdue = !cleaning_up && (deadline < watched.since_base(now) || watched.asyncio_task_is_overdue());
    let blocking = now.saturating_duration_since(observed.since) >= BLOCKING_STEP_MIN && !observed.reported;
    if aborted_at.is_none() && !overdue && !blocking {
        return;
    }
    Python::attach(|py| {
        if blocking {
            observed.reported = true;
            let location = watched.code_location(py);
            *watched.blocking_step.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(BlockingStep { since: observed.since, location });
            watched.flagged.store(watched.step_number.load(Relaxed) == step_number, Relaxed);
        }
        if aborted_at.is_some() {
            watched.raise(py, step_number, py.get_type::<pyo3::exceptions::PyKeyboardInterrupt>().as_any(), false);
        } else if overdue {
            match py.import("squall._errors").and_then(|errors| errors.getattr("TaskTimeout")) {
                Ok(class) => {
                    watched.raise(py, step_number, &class, true);
                    observed.timeout_raised_at = Some(now);
                }
                Err(error) => error.write_unraisable(py, None),
            }
        }
        if !observed.uninterruptible
            && aborted_at.is_some_and(|at| now.saturating_duration_since(at) > UNINTERRUPTIBLE_AFTER)
        {
            observed.uninterruptible = true;
            let location = watched.code_location(py);
            eprintln!(
                "{location} does not return and cannot be interrupted; press Ctrl-C again to exit without a report"
            );
        }
    });
}
