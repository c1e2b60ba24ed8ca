//! Watches scenario code that does not give its thread back. Its thread never attaches to the
//! interpreter, which the code may hold: it counts Ctrl-C, knows when the run must have ended, and
//! gives a thread up whose code does not return. The [`interrupter`], on a thread of its own, raises
//! exceptions in the code and reports it. A step costs the watched thread a few stores and two reads
//! of a coarse clock. `attach` and `run_hooks` start a watchdog; code that calls into a scenario does
//! so inside [`step`].

mod interrupter;

use pyo3::{ffi, prelude::*};
use rustix::time::{ClockId, clock_gettime};
use squall_engine::ThreadDeadline;
use std::{
    cell::{Cell, RefCell},
    ffi::c_ulong,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
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
/// How long a function may clean up after its timeout, including requests.
pub(crate) const CLEANUP_TIME: Duration = Duration::from_secs(5);
/// How long code may run after the second Ctrl-C before the watchdog gives its thread up.
const GIVE_UP_AFTER_SIGNAL: Duration = Duration::from_millis(300);
/// How long code may run after the end of the grace period before the watchdog gives its thread up.
const GIVE_UP_AFTER_GRACE: Duration = Duration::from_millis(500);

use crate::running_code;

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
    /// `None` for code outside the load, such as a set-up.
    run_deadline: Option<ThreadDeadline>,
    /// Whether the run must have ended, so that no more code may run.
    run_is_over: AtomicBool,
    blocking_step: Mutex<Option<BlockingStep>>,
    /// The line that the interrupter last saw in a step that it reported or interrupted.
    last_location: Mutex<Option<String>>,
    /// Makes plain functions run on threads, if they may.
    plain_on_threads: Mutex<Option<PlainSwitch>>,
    /// The system's status of the thread.
    status_file: Option<PathBuf>,
}

/// What makes plain functions run on threads once one of them has blocked.
pub(crate) struct PlainSwitch {
    pub(crate) on: Arc<AtomicBool>,
    /// The most threads.
    pub(crate) limit: usize,
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

/// The watchdog of one thread. Dropping it ends its threads.
pub(crate) struct Watchdog {
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
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
        run_deadline: run_deadline.clone(),
        run_is_over: AtomicBool::new(false),
        blocking_step: Mutex::default(),
        last_location: Mutex::default(),
        plain_on_threads: Mutex::default(),
        // Its target is this thread only as long as the link is read here.
        status_file: std::fs::read_link("/proc/thread-self")
            .ok()
            .map(|path| PathBuf::from("/proc").join(path).join("stat")),
    });
    WATCHED_THREAD.set(Some(watched.clone()));
    let (stop, stopped) = oneshot::channel();
    let (ready, listening) = mpsc::channel();
    // One check at most: the interrupter may be waiting for the interpreter.
    let (checks, to_check) = mpsc::sync_channel(1);
    let for_interrupter = watched.clone();
    let spawn =
        |name: &str, run: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let threads = vec![
        spawn("squall-interrupt", Box::new(move || interrupter::run(&for_interrupter, &to_check)))?,
        spawn("squall-watchdog", Box::new(move || watch_thread(&watched, run_deadline, checks, stopped, ready)))?,
    ];
    // Waits until the watchdog listens for signals: it would not count a Ctrl-C that came earlier.
    // An error means that its thread has already ended.
    let _ = listening.recv();
    Ok(Watchdog { stop: Some(stop), threads })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCHED_THREAD.set(None);
        drop(self.stop.take());
        let threads = std::mem::take(&mut self.threads);
        // Detaches while it joins, because the interrupter may be waiting to attach.
        Python::attach(|py| py.detach(|| threads.into_iter().for_each(|thread| drop(thread.join()))));
    }
}

/// Notes that this thread runs an asyncio loop.
pub(crate) fn mark_asyncio_loop() {
    WATCHED_THREAD
        .with_borrow(|watched| watched.iter().for_each(|watched| watched.has_asyncio_loop.store(true, Relaxed)));
}

/// Makes plain functions of this thread run on threads once one of them has blocked it.
pub(crate) fn switch_when_plain_code_blocks(switch: PlainSwitch) {
    WATCHED_THREAD.with_borrow(|watched| {
        if let Some(watched) = watched {
            *lock(&watched.plain_on_threads) = Some(switch);
        }
    });
}

/// Whether the run of this thread must have ended, so that no more code may run.
pub(crate) fn run_is_over() -> bool {
    WATCHED_THREAD.with_borrow(|watched| watched.as_ref().is_some_and(|watched| watched.run_is_over.load(Relaxed)))
}

/// Whether the load of this thread is over, so that no more functions may start.
pub(crate) fn load_is_over() -> bool {
    WATCHED_THREAD.with_borrow(|watched| {
        let deadline = watched.as_ref().and_then(|watched| watched.run_deadline.as_ref());
        deadline.is_some_and(ThreadDeadline::load_is_over)
    })
}

/// Runs one step of Python code under the watchdog, which interrupts it after `deadline`.
pub(crate) fn step<R>(deadline: Option<Instant>, run: impl FnOnce() -> R) -> (R, Option<StepReport>) {
    WATCHED_THREAD.with_borrow(|watched| {
        let Some(watched) = watched else { return (run_in_parent(run), None) };
        if let Some(deadline) = deadline {
            watched.deadline.store(watched.since_base(deadline), Relaxed);
        }
        watched.step_number.store(watched.step_number.load(Relaxed) + 1, Relaxed);
        let started = coarse_now();
        let result = run_in_parent(run);
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

/// Runs code of a scenario. A child process that the code forked does not return from it.
fn run_in_parent<R>(run: impl FnOnce() -> R) -> R {
    let result = run();
    running_code::end_forked_child();
    result
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
        let blocking = lock(&self.blocking_step).take();
        StepReport { blocking_step: blocking, timeout_raised: self.timeout_raised.swap(false, Relaxed) }
    }
}

/// What the interrupter checks.
struct StepCheck {
    /// When all code had to end.
    aborted_at: Option<Instant>,
}

fn watch_thread(
    watched: &WatchedThread,
    run_deadline: Option<ThreadDeadline>,
    checks: mpsc::SyncSender<StepCheck>,
    stopped: oneshot::Receiver<()>,
    ready: mpsc::Sender<()>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let (Ok(mut sigint), Ok(mut sigterm)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // Fails only if `watch` has stopped waiting.
        let _ = ready.send(());
        let mut run_end =
            RunEnd { deadline: run_deadline, signals: 0, aborted_at: None, observed: None, given_up: false };
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                _ = sigint.recv() => run_end.signals += 1,
                _ = sigterm.recv() => run_end.signals += 1,
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    run_end.check(watched);
                    // Full while the interrupter is busy; the next check follows soon.
                    let _ = checks.try_send(StepCheck { aborted_at: run_end.aborted_at });
                }
            }
            if run_end.signals > 2 && run_end.given_up {
                std::process::exit(130);
            }
        }
    });
}

/// Decides when all code must end, and gives the thread up if it does not.
struct RunEnd {
    /// `None` for code outside the load, such as a set-up.
    deadline: Option<ThreadDeadline>,
    signals: u32,
    aborted_at: Option<Instant>,
    /// The step that runs since the abort, and since when.
    observed: Option<(u64, Instant)>,
    given_up: bool,
}

impl RunEnd {
    fn check(&mut self, watched: &WatchedThread) {
        let now = Instant::now();
        if self.signals > 1 || self.deadline.as_ref().is_some_and(ThreadDeadline::has_passed) {
            self.aborted_at.get_or_insert(now);
            watched.run_is_over.store(true, Relaxed);
        }
        let step_number = watched.step_number.load(Relaxed);
        if self.aborted_at.is_none() || step_number.is_multiple_of(2) {
            self.observed = None;
            return;
        }
        let since = match self.observed {
            Some((number, since)) if number == step_number => since,
            _ => self.observed.insert((step_number, now)).1,
        };
        let patience = if self.signals > 1 { GIVE_UP_AFTER_SIGNAL } else { GIVE_UP_AFTER_GRACE };
        if now.saturating_duration_since(since) > patience && !self.given_up {
            self.given_up = true;
            self.give_up(watched);
        }
    }

    fn give_up(&self, watched: &WatchedThread) {
        let location = lock(&watched.last_location).clone();
        let location = location.as_deref().unwrap_or("code that does not release the interpreter");
        match &self.deadline {
            Some(deadline) => deadline.give_up(location),
            None => squall_cli::print_notice(&format!(
                "{location} does not return and cannot be interrupted; press Ctrl-C again to exit without a report"
            )),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
