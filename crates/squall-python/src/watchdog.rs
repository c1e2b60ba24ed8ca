//! Watches that a scenario's code gives its thread back. Code that runs past its task's timeout, or on after the end of the run's grace or
//! the second Ctrl-C, has an exception raised inside it. That works between two lines of Python only: a call into C that never returns cannot be cut, it is told
//! to the person and in the report. Costs the watched thread two stores and two looks at a coarse clock per step.

use pyo3::{ffi, prelude::*};
use rustix::time::{ClockId, clock_gettime};
use squall_engine::Curfew;
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
const LOOK: Duration = Duration::from_millis(50);
/// A step that lasts longer keeps answers waiting: what users wait for meanwhile is looked at when it is over. More than a tick of the coarse
/// clock, so that none is taken for long because it met one.
const LONG: Duration = Duration::from_millis(11);
/// A step that lasts longer is told.
const HELD: Duration = Duration::from_secs(1);
/// How long a function whose time is over may take to clean up after itself, requests included.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long code may go on after an abort before the person is told that it cannot be stopped.
const DEAF: Duration = Duration::from_secs(2);

thread_local! {
    static WATCHED: RefCell<Option<Arc<Watched>>> = const { RefCell::new(None) };
    static LONG_STEPS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For how long in all steps have kept this thread that were long enough to matter.
pub(crate) fn long_steps() -> Duration {
    LONG_STEPS.get()
}

/// What the watchdog sees of a thread.
struct Watched {
    ident: c_ulong,
    base: Instant,
    /// Odd while Python runs.
    turn: AtomicU64,
    /// In nanoseconds after `base`; the largest number if there is no limit.
    deadline: AtomicU64,
    /// The step that is under way has been seen too long, or cut.
    noticed: AtomicBool,
    /// It was told that its time is over.
    cut: AtomicBool,
    /// There is an asyncio loop on it.
    lodgers: AtomicBool,
    held: Mutex<Option<Held>>,
}

/// A step that lasted too long.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) since: Instant,
    pub(crate) place: String,
}

/// What was noticed of a step.
pub(crate) struct Noticed {
    pub(crate) held: Option<Held>,
    /// It was told that its time is over, by a `TaskTimeout` where it was.
    pub(crate) cut: bool,
}

/// A watchdog of one thread. Dropping it ends it.
pub(crate) struct Watchdog {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Begins to watch this thread, which is attached. After `curfew` nothing may run on.
pub(crate) fn watch(py: Python<'_>, curfew: Option<Curfew>) -> PyResult<Watchdog> {
    let ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
    let watched = Arc::new(Watched {
        ident,
        base: Instant::now(),
        turn: AtomicU64::new(0),
        deadline: AtomicU64::new(u64::MAX),
        noticed: AtomicBool::new(false),
        cut: AtomicBool::new(false),
        lodgers: AtomicBool::new(false),
        held: Mutex::default(),
    });
    WATCHED.set(Some(watched.clone()));
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("squall-watchdog".to_owned());
    let (ready, listening) = std::sync::mpsc::channel();
    let thread = thread.spawn(move || patrol(&watched, curfew.as_ref(), stopped, ready))?;
    // A Ctrl-C that came before it listens would be one that it never counts. An error means that it has ended already.
    let _ = listening.recv();
    Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCHED.set(None);
        drop(self.stop.take());
        let thread = self.thread.take();
        // It may be about to attach.
        Python::attach(|py| py.detach(|| thread.map(|thread| thread.join())));
    }
}

/// Says that the asyncio loop of this thread is run in steps.
pub(crate) fn mind_lodgers() {
    WATCHED.with_borrow(|watched| watched.iter().for_each(|watched| watched.lodgers.store(true, Relaxed)));
}

/// Runs one step of Python code under watch. `deadline` is when it must be over.
pub(crate) fn step<R>(deadline: Option<Instant>, run: impl FnOnce() -> R) -> (R, Option<Noticed>) {
    WATCHED.with_borrow(|watched| {
        let Some(watched) = watched else { return (run(), None) };
        if let Some(deadline) = deadline {
            watched.deadline.store(watched.since_base(deadline), Relaxed);
        }
        watched.turn.store(watched.turn.load(Relaxed) + 1, Relaxed);
        let begun = coarsely_now();
        let done = run();
        let took = coarsely_now().saturating_sub(begun);
        if took > LONG {
            LONG_STEPS.set(LONG_STEPS.get() + took);
        }
        watched.turn.store(watched.turn.load(Relaxed) + 1, Relaxed);
        if deadline.is_some() {
            watched.deadline.store(u64::MAX, Relaxed);
        }
        let noticed = if watched.noticed.load(Relaxed) { Some(watched.let_go()) } else { None };
        (done, noticed)
    })
}

/// A clock that is read without asking the hardware, so that an await costs no more for it.
fn coarsely_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Watched {
    fn since_base(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Takes back an exception that came too late, and says what there was to notice.
    #[cold]
    fn let_go(&self) -> Noticed {
        self.noticed.store(false, Relaxed);
        // SAFETY: attached, as every step is; a null pointer removes what is pending for the thread.
        Python::attach(|_| unsafe { ffi::PyThreadState_SetAsyncExc(self.ident as _, std::ptr::null_mut()) });
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        Noticed { held, cut: self.cut.swap(false, Relaxed) }
    }

    /// Raises `class` in the step `turn`, if that is still under way; `cut` if that says that its time is over.
    fn raise(&self, py: Python<'_>, turn: u64, class: &Bound<'_, PyAny>, cut: bool) {
        if self.turn.load(Relaxed) == turn {
            self.noticed.store(true, Relaxed);
            self.cut.store(cut, Relaxed);
            // SAFETY: attached, and the watched thread is not: it cannot leave the step before it sees the exception or takes it back.
            unsafe { ffi::PyThreadState_SetAsyncExc(self.ident as _, class.as_ptr()) };
            let _ = py;
        }
    }

    /// In a turn of an asyncio loop, which is many users', whether the one that runs should be over.
    fn lodger_is_overdue(&self) -> bool {
        self.lodgers.load(Relaxed)
            && Python::attach(|py| {
                let overdue =
                    py.import("squall._asyncio_loop").and_then(|guest| guest.call_method1("overdue", (self.ident,)));
                overdue.and_then(|overdue| overdue.extract()).unwrap_or(false)
            })
    }

    fn place(&self, py: Python<'_>) -> String {
        let place = py.import("squall._errors").and_then(|errors| errors.call_method1("location_of", (self.ident,)));
        place.and_then(|place| place.extract()).unwrap_or_else(|_| "somewhere".to_owned())
    }
}

/// A step that was already there at the last look.
struct Seen {
    turn: u64,
    since: Instant,
    told: bool,
    deaf: bool,
    /// When it was last told that its time is over.
    cut: Option<Instant>,
}

fn patrol(
    watched: &Watched,
    curfew: Option<&Curfew>,
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
        let mut seen: Option<Seen> = None;
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                _ = interrupts.recv() => presses += 1,
                _ = terms.recv() => presses += 1,
                () = tokio::time::sleep(LOOK) => {
                    if presses > 1 || curfew.is_some_and(Curfew::has_passed) {
                        over.get_or_insert_with(Instant::now);
                    }
                    look(watched, &mut seen, over);
                }
            }
            if presses > 2 && seen.as_ref().is_some_and(|seen| seen.deaf) {
                std::process::exit(130);
            }
        }
    });
}

/// `over` is since when everything must have ended.
fn look(watched: &Watched, seen: &mut Option<Seen>, over: Option<Instant>) {
    let turn = watched.turn.load(Relaxed);
    if turn.is_multiple_of(2) {
        *seen = None;
        return;
    }
    let now = Instant::now();
    let same = match seen {
        Some(step) if step.turn == turn => step,
        _ => {
            *seen = Some(Seen { turn, since: now, told: false, deaf: false, cut: None });
            return;
        }
    };
    let deadline = watched.deadline.load(Relaxed);
    // What it does to clean up after itself is not cut at once.
    let spared = same.cut.is_some_and(|at| now.saturating_duration_since(at) < LAST_WORDS);
    let overdue = !spared && (deadline < watched.since_base(now) || watched.lodger_is_overdue());
    let held = now.saturating_duration_since(same.since) >= HELD && !same.told;
    if over.is_none() && !overdue && !held {
        return;
    }
    Python::attach(|py| {
        if held {
            same.told = true;
            let place = watched.place(py);
            *watched.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held { since: same.since, place });
            watched.noticed.store(watched.turn.load(Relaxed) == turn, Relaxed);
        }
        if over.is_some() {
            watched.raise(py, turn, py.get_type::<pyo3::exceptions::PyKeyboardInterrupt>().as_any(), false);
        } else if overdue {
            match py.import("squall._errors").and_then(|errors| errors.getattr("TaskTimeout")) {
                Ok(class) => {
                    watched.raise(py, turn, &class, true);
                    same.cut = Some(now);
                }
                Err(error) => error.write_unraisable(py, None),
            }
        }
        if !same.deaf && over.is_some_and(|at| now.saturating_duration_since(at) > DEAF) {
            same.deaf = true;
            let place = watched.place(py);
            eprintln!("{place} does not return and cannot be interrupted; press Ctrl-C again to end without a report");
        }
    });
}
