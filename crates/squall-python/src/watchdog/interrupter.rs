//! Interrupts and reports the current step of a watched thread: raises an exception in code that runs
//! past its task's timeout or past the end of the run, names code that blocks the thread, and makes
//! plain functions run on threads once one of them has blocked. It attaches to the interpreter, so it
//! may wait for code that holds it; it works only between two Python instructions. The watchdog calls
//! it for every check.

use pyo3::{exceptions::PyKeyboardInterrupt, ffi, prelude::*};
use std::{
    sync::{atomic::Ordering::Relaxed, mpsc},
    time::{Duration, Instant},
};

use super::{BlockingStep, CLEANUP_TIME, StepCheck, WatchedThread, lock};

/// A step that lasts at least this long is reported.
const BLOCKING_STEP_MIN: Duration = Duration::from_millis(500);
/// In how many checks in a row a thread must have been asleep inside a step, until its code counts as
/// blocking. One can be chance: a page that is read from disk, a wait for the interpreter.
const ASLEEP_CHECKS: u32 = 2;

/// Checks the thread until the watchdog ends.
pub(super) fn run(watched: &WatchedThread, checks: &mpsc::Receiver<StepCheck>) {
    let mut interrupter = Interrupter { watched, observed: None, asleep_checks: 0, announced: false };
    while let Ok(check) = checks.recv() {
        interrupter.check_step(check.aborted_at);
    }
}

struct Interrupter<'w> {
    watched: &'w WatchedThread,
    observed: Option<ObservedStep>,
    asleep_checks: u32,
    /// Whether standard error has a line about code that blocks the thread.
    announced: bool,
}

/// A step that was running at the last check.
struct ObservedStep {
    step_number: u64,
    since: Instant,
    reported: bool,
    /// When `TaskTimeout` was last raised in it.
    timeout_raised_at: Option<Instant>,
}

impl Interrupter<'_> {
    /// Reports or interrupts the current step if necessary. `aborted_at` is when all code had to end.
    fn check_step(&mut self, aborted_at: Option<Instant>) {
        let (watched, now) = (self.watched, Instant::now());
        let step_number = watched.step_number.load(Relaxed);
        if step_number.is_multiple_of(2) {
            (self.observed, self.asleep_checks) = (None, 0);
            return;
        }
        self.check_whether_asleep();
        let observed = match &mut self.observed {
            Some(step) if step.step_number == step_number => step,
            _ => {
                self.observed =
                    Some(ObservedStep { step_number, since: now, reported: false, timeout_raised_at: None });
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
        observed.reported |= blocking;
        let since = observed.since;
        if overdue && aborted_at.is_none() {
            observed.timeout_raised_at = Some(now);
        }
        Python::attach(|py| {
            let location = watched.code_location(py);
            *lock(&watched.last_location) = Some(location.clone());
            if blocking {
                self.announce_held_thread(&location, watched.fiber_location(py).is_some());
                *lock(&watched.blocking_step) = Some(BlockingStep { since, location });
                watched.flagged.store(watched.step_number.load(Relaxed) == step_number, Relaxed);
            }
            if aborted_at.is_some() {
                watched.raise(py, step_number, py.get_type::<PyKeyboardInterrupt>().as_any(), false);
            } else if overdue {
                match py.import("squall._errors").and_then(|errors| errors.getattr("TaskTimeout")) {
                    Ok(class) => watched.raise(py, step_number, &class, true),
                    Err(error) => error.write_unraisable(py, None),
                }
            }
        });
    }

    /// Makes plain functions run on threads if one of them has put the thread to sleep.
    fn check_whether_asleep(&mut self) {
        let watched = self.watched;
        self.asleep_checks = if watched.is_asleep() { self.asleep_checks + 1 } else { 0 };
        if self.asleep_checks < ASLEEP_CHECKS {
            return;
        }
        self.asleep_checks = 0;
        let Some(limit) = lock(&watched.plain_on_threads).as_ref().map(|switch| switch.limit) else { return };
        let Some(location) = Python::attach(|py| watched.fiber_location(py)) else { return };
        if let Some(switch) = lock(&watched.plain_on_threads).take() {
            switch.on.store(true, Relaxed);
            self.announced = true;
            squall_cli::print_notice(&format!(
                "{location} blocks the thread of all users: plain functions now run on up to {limit} threads of their \
                 own (--threads-for-blocking N does so from the start)"
            ));
        }
    }

    /// Says at once what the report says at the end.
    fn announce_held_thread(&mut self, location: &str, is_plain: bool) {
        if !std::mem::replace(&mut self.announced, true) {
            squall_cli::print_notice(&format!(
                "{location} holds the generator's thread, and no other user can run meanwhile: {}",
                held_thread_remedy(is_plain)
            ));
        }
    }
}

/// What to do about code that holds the generator's thread.
fn held_thread_remedy(is_plain: bool) -> &'static str {
    match is_plain {
        true => {
            "--threads-for-blocking N lets plain functions wait on threads of their own; for code that computes, \
             --processes N uses more cores"
        }
        false => "use squall.sleep and the client, or a plain def, which can run on a thread of its own",
    }
}

impl WatchedThread {
    /// Whether the thread sleeps: in a step, that is code waiting in a call into C.
    fn is_asleep(&self) -> bool {
        let status = self.status_file.as_deref().and_then(|file| std::fs::read_to_string(file).ok());
        // The state follows the thread's name, which stands in parentheses and may contain any character.
        status.as_deref().and_then(|status| status.rsplit_once(") ")).is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// The line that a plain function runs as a fiber; `None` if other code runs.
    fn fiber_location(&self, py: Python<'_>) -> Option<String> {
        let blocking = py.import("squall._blocking").ok()?;
        blocking.call_method1("fiber_location", (self.thread_ident,)).ok()?.extract().ok()?
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
