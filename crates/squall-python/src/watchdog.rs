//! Watches that a scenario's code gives its thread back. Code that runs past its task's timeout, or on after the end of the run's grace or
//! the second Ctrl-C, has an exception raised inside it. That works between two lines of Python only: a call into C that never returns cannot be cut, it is told
//! to the person and in the report. Costs the watched thread two stores and two looks at a coarse clock per step.

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

/// Between two looks. A step shorter than this is never seen.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A step that lasts longer keeps answers waiting: what users wait for meanwhile is looked at when it is over. More than a tick of the coarse
/// clock, so that none is taken for long because it met one.
const LONG_STEP: Duration = Duration::from_millis(11);
/// A step that lasts longer is told.
const BLOCKING_STEP_MIN: Duration = Duration::from_secs(1);
/// How long a function whose time is over may take to clean up after itself, requests included.
pub(crate) const CLEANUP_TIME: Duration = Duration::from_secs(5);
/// How long code may go on after an abort before the person is told that it cannot be stopped.
const UNINTERRUPTIBLE_AFTER: Duration = Duration::from_secs(2);

thread_local! {
    static WATCHED_THREAD: RefCell<Option<Arc<WatchedThread>>> = const { RefCell::new(None) };
    static LONG_STEP_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For how long in all steps have kept this thread that were long enough to matter.
pub(crate) fn long_step_time() -> Duration {
    LONG_STEP_TIME.get()
}

/// What the watchdog sees of a thread.
struct WatchedThread {
    thread_ident: c_ulong,
    base: Instant,
    /// Odd while Python runs.
    step_number: AtomicU64,
    /// In nanoseconds after `base`; the largest number if there is no limit.
    deadline: AtomicU64,
    /// The step that is under way has been seen too long, or cut.
    flagged: AtomicBool,
    /// It was told that its time is over.
    timeout_raised: AtomicBool,
    /// There is an asyncio loop on it.
    has_asyncio_loop: AtomicBool,
    blocking_step: Mutex<Option<BlockingStep>>,
}

/// A step that lasted too long.
#[derive(Clone)]
pub(crate) struct BlockingStep {
    pub(crate) since: Instant,
    pub(crate) location: String,
}

/// What was noticed of a step.
pub(crate) struct StepReport {
    pub(crate) blocking_step: Option<BlockingStep>,
    /// It was told that its time is over, by a `TaskTimeout` where it was.
    pub(crate) timeout_raised: bool,
}

/// A watchdog of one thread. Dropping it ends it.
pub(crate) struct Watchdog {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Begins to watch this thread, which is attached. After `curfew` nothing may run on.
pub(crate) fn watch(py: Python<'_>, curfew: Option<ThreadDeadline>) -> PyResult<Watchdog> {
    let ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
    let watched = Arc::new(WatchedThread {
        thread_ident: ident,
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
    let thread = thread.spawn(move || watch_thread(&watched, curfew.as_ref(), stopped, ready))?;
    // A Ctrl-C that came before it listens would be one that it never counts. An error means that it has ended already.
    let _ = listening.recv();
    Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCHED_THREAD.set(None);
        drop(self.stop.take());
        let thread = self.thread.take();
        // It may be about to attach.
        Python::attach(|py| py.detach(|| thread.map(|thread| thread.join())));
    }
}

/// Says that the asyncio loop of this thread is run in steps.
pub(crate) fn mark_asyncio_loop() {
    WATCHED_THREAD
        .with_borrow(|watched| watched.iter().for_each(|watched| watched.has_asyncio_loop.store(true, Relaxed)));
}

/// Runs one step of Python code under watch. `deadline` is when it must be over.
pub(crate) fn step<R>(deadline: Option<Instant>, run: impl FnOnce() -> R) -> (R, Option<StepReport>) {
    WATCHED_THREAD.with_borrow(|watched| {
        let Some(watched) = watched else { return (run(), None) };
        if let Some(deadline) = deadline {
            watched.deadline.store(watched.since_base(deadline), Relaxed);
        }
        watched.step_number.store(watched.step_number.load(Relaxed) + 1, Relaxed);
        let begun = coarse_now();
        let done = run();
        let took = coarse_now().saturating_sub(begun);
        if took > LONG_STEP {
            LONG_STEP_TIME.set(LONG_STEP_TIME.get() + took);
        }
        watched.step_number.store(watched.step_number.load(Relaxed) + 1, Relaxed);
        if deadline.is_some() {
            watched.deadline.store(u64::MAX, Relaxed);
        }
        let noticed = if watched.flagged.load(Relaxed) { Some(watched.take_report()) } else { None };
        (done, noticed)
    })
}

/// A clock that is read without asking the hardware, so that an await costs no more for it.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl WatchedThread {
    fn since_base(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Takes back an exception that came too late, and says what there was to notice.
    #[cold]
    fn take_report(&self) -> StepReport {
        self.flagged.store(false, Relaxed);
        // SAFETY: attached, as every step is; a null pointer removes what is pending for the thread.
        Python::attach(|_| unsafe { ffi::PyThreadState_SetAsyncExc(self.thread_ident as _, std::ptr::null_mut()) });
        let held = self.blocking_step.lock().unwrap_or_else(PoisonError::into_inner).take();
        StepReport { blocking_step: held, timeout_raised: self.timeout_raised.swap(false, Relaxed) }
    }

    /// Raises `class` in the step `turn`, if that is still under way; `cut` if that says that its time is over.
    fn raise(&self, py: Python<'_>, turn: u64, class: &Bound<'_, PyAny>, cut: bool) {
        if self.step_number.load(Relaxed) == turn {
            self.flagged.store(true, Relaxed);
            self.timeout_raised.store(cut, Relaxed);
            // SAFETY: attached, and the watched thread is not: it cannot leave the step before it sees the exception or takes it back.
            unsafe { ffi::PyThreadState_SetAsyncExc(self.thread_ident as _, class.as_ptr()) };
            let _ = py;
        }
    }

    /// In a turn of an asyncio loop, which is many users', whether the one that runs should be over.
    fn asyncio_task_is_overdue(&self) -> bool {
        self.has_asyncio_loop.load(Relaxed)
            && Python::attach(|py| {
                let overdue = py
                    .import("squall._asyncio_loop")
                    .and_then(|guest| guest.call_method1("overdue", (self.thread_ident,)));
                overdue.and_then(|overdue| overdue.extract()).unwrap_or(false)
            })
    }

    fn code_location(&self, py: Python<'_>) -> String {
        let place =
            py.import("squall._errors").and_then(|errors| errors.call_method1("location_of", (self.thread_ident,)));
        place.and_then(|place| place.extract()).unwrap_or_else(|_| "somewhere".to_owned())
    }
}

/// A step that was already there at the last look.
struct ObservedStep {
    step_number: u64,
    since: Instant,
    reported: bool,
    uninterruptible: bool,
    /// When it was last told that its time is over.
    timeout_raised_at: Option<Instant>,
}

fn watch_thread(
    watched: &WatchedThread,
    curfew: Option<&ThreadDeadline>,
    stopped: oneshot::Receiver<()>,
    ready: std::sync::mpsc::Sender<()>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let (Ok(mut interrupts), Ok(mut terms)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // Fails only if nobody waits any more.
        let _ = ready.send(());
        let mut presses = 0;
        let mut over: Option<Instant> = None;
        let mut seen: Option<ObservedStep> = None;
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                _ = interrupts.recv() => presses += 1,
                _ = terms.recv() => presses += 1,
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    if presses > 1 || curfew.is_some_and(ThreadDeadline::has_passed) {
                        over.get_or_insert_with(Instant::now);
                    }
                    check_step(watched, &mut seen, over);
                }
            }
            if presses > 2 && seen.as_ref().is_some_and(|seen| seen.uninterruptible) {
                std::process::exit(130);
            }
        }
    });
}

/// `over` is since when everything must have ended.
fn check_step(watched: &WatchedThread, seen: &mut Option<ObservedStep>, over: Option<Instant>) {
    let turn = watched.step_number.load(Relaxed);
    if turn.is_multiple_of(2) {
        *seen = None;
        return;
    }
    let now = Instant::now();
    let same = match seen {
        Some(step) if step.step_number == turn => step,
        _ => {
            *seen = Some(ObservedStep {
                step_number: turn,
                since: now,
                reported: false,
                uninterruptible: false,
                timeout_raised_at: None,
            });
            return;
        }
    };
    let deadline = watched.deadline.load(Relaxed);
    // What it does to clean up after itself is not cut at once.
    let spared = same.timeout_raised_at.is_some_and(|at| now.saturating_duration_since(at) < CLEANUP_TIME);
    let overdue = !spared && (deadline < watched.since_base(now) || watched.asyncio_task_is_overdue());
    let held = now.saturating_duration_since(same.since) >= BLOCKING_STEP_MIN && !same.reported;
    if over.is_none() && !overdue && !held {
        return;
    }
    Python::attach(|py| {
        if held {
            same.reported = true;
            let place = watched.code_location(py);
            *watched.blocking_step.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(BlockingStep { since: same.since, location: place });
            watched.flagged.store(watched.step_number.load(Relaxed) == turn, Relaxed);
        }
        if over.is_some() {
            watched.raise(py, turn, py.get_type::<pyo3::exceptions::PyKeyboardInterrupt>().as_any(), false);
        } else if overdue {
            match py.import("squall._errors").and_then(|errors| errors.getattr("TaskTimeout")) {
                Ok(class) => {
                    watched.raise(py, turn, &class, true);
                    same.timeout_raised_at = Some(now);
                }
                Err(error) => error.write_unraisable(py, None),
            }
        }
        if !same.uninterruptible && over.is_some_and(|at| now.saturating_duration_since(at) > UNINTERRUPTIBLE_AFTER) {
            same.uninterruptible = true;
            let place = watched.code_location(py);
            eprintln!("{place} does not return and cannot be interrupted; press Ctrl-C again to end without a report");
        }
    });
}
