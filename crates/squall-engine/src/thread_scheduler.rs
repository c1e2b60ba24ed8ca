//! The scheduler of one engine thread: makes starts when they are due, creates and dismisses users, and
//! sends a delta every second. It wakes at most once per `slack`, because a wake-up costs more than a
//! request. It does not run iterations; [`user_task`](crate::user_task) does.

mod assignments;
mod starts;

use squall_metrics::Delta;
use squall_model::{LoadModel, Profile, ShareSet};
use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    driver::DriverThread,
    engine::{EngineCommand, EngineError, LoadOutcome, StartTimeLock, ThreadMessage},
    precise_timer::PreciseTimer,
    schedule::Schedule,
    share_assignment::ShareAssignment,
    thread_state::ThreadState,
    user_growth::UserGrowth,
    user_mailbox::UserMailbox,
};
use starts::FullQueue;

/// Samples that arrive this soon after the last second belong to it, so that a run of 4 s has 4 seconds
/// in its timeline and not a fifth with the last responses.
const LAST_SECOND_TOLERANCE: Duration = Duration::from_millis(10);

/// How often the scheduler of a closed model wakes. Its users start iterations by themselves.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A scheduler that wakes this late was not running, and neither were its users.
const STALL_THRESHOLD: Duration = Duration::from_millis(100);

pub(crate) struct ThreadScheduler<T> {
    state: Rc<ThreadState>,
    driver: Rc<T>,
    timer: PreciseTimer,
    inputs: SchedulerInputs,
    /// This thread's shares by its latest assignment.
    assigned_shares: ShareSet,
    /// The shares whose load this thread makes; none while it is fenced.
    active_shares: ShareSet,
    /// Whether the membership may have expired, so that other workers may have the shares.
    fenced: bool,
    profile: Profile,
    /// Assignments that have not taken effect yet.
    pending_assignments: VecDeque<ShareAssignment>,
    /// Unbounded: it gets one delta a second, so its length is at most the run's age in seconds.
    messages: mpsc::UnboundedSender<ThreadMessage>,
    user_tasks: JoinSet<()>,
    load_state: LoadModelState,
    /// How many users an open model starts.
    growth: UserGrowth,
    next_user: u64,
    seq: u64,
    second: u32,
}

enum LoadModelState {
    Open {
        schedule: Schedule,
        /// Whether the run has an iteration limit.
        limited: bool,
        /// The full queue has kept back starts due before.
        kept_until: Option<Instant>,
    },
    Closed {
        /// The users of this thread by their number in the run.
        mailboxes: BTreeMap<u64, Rc<UserMailbox>>,
        /// The number of users in the whole run that the profile asks for.
        desired: u64,
    },
}

/// What a scheduler receives from other threads.
pub(crate) struct SchedulerInputs {
    pub(crate) commands: watch::Receiver<EngineCommand>,
    pub(crate) assignments: mpsc::UnboundedReceiver<ShareAssignment>,
    pub(crate) start_time: StartTimeLock,
    /// Changes when the iteration quota, if there is one, is refilled or exhausted.
    pub(crate) quota_changes: Option<watch::Receiver<u64>>,
}

/// Why a thread makes no more starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadStopCause {
    Done,
    Drained,
    Aborted,
}

impl<T: DriverThread> ThreadScheduler<T> {
    pub(crate) fn new(
        state: Rc<ThreadState>,
        driver: T,
        timer: PreciseTimer,
        inputs: SchedulerInputs,
        messages: mpsc::UnboundedSender<ThreadMessage>,
    ) -> ThreadScheduler<T> {
        let load = &state.config.load;
        // The first assignment brings the shares.
        let (shares, profile) = (ShareSet::NONE, load.model.profile().clone());
        let load_state = match &load.model {
            LoadModel::Open { .. } => LoadModelState::Open {
                schedule: starts::schedule_for(&state, &profile, shares),
                limited: load.iterations.is_some(),
                kept_until: None,
            },
            LoadModel::Closed { .. } => LoadModelState::Closed { mailboxes: BTreeMap::new(), desired: 0 },
        };
        let growth = UserGrowth::new(state.cross_thread.user_start);
        ThreadScheduler {
            state,
            driver: Rc::new(driver),
            timer,
            inputs,
            assigned_shares: shares,
            active_shares: shares,
            fenced: false,
            profile,
            pending_assignments: VecDeque::new(),
            messages,
            user_tasks: JoinSet::new(),
            load_state,
            growth,
            next_user: 0,
            seq: 0,
            second: 0,
        }
    }

    /// Makes this thread's load to its end. It sends the last delta even if it fails.
    pub(crate) async fn run(mut self) -> Result<LoadOutcome, EngineError> {
        let outcome = self.run_and_drain().await;
        if outcome.is_err() {
            self.state.drain_users();
            self.state.set_final_request_limit();
            self.abort_user_tasks().await;
            self.state.drop_queued();
        }
        self.send_delta(true);
        outcome
    }

    async fn run_and_drain(&mut self) -> Result<LoadOutcome, EngineError> {
        let cause = self.generate_load().await?;
        let stopped_at = self.state.elapsed(Instant::now());
        match cause {
            ThreadStopCause::Done => {
                self.spawn_users_for_queue();
                self.drop_late_starts();
            }
            // Other workers have this process's shares; starts due before the change are still its own.
            ThreadStopCause::Drained if self.active_shares.is_empty() => self.spawn_users_for_queue(),
            ThreadStopCause::Drained | ThreadStopCause::Aborted => self.state.drop_queued(),
        }
        self.state.drain_users();
        self.state.set_final_request_limit();
        let cut_off = cause == ThreadStopCause::Aborted || !self.drain(cause).await?;
        if cut_off {
            self.abort_user_tasks().await;
        }
        // Starts can be left even when all users have left: users that never started took none.
        self.state.drop_queued();
        let elapsed = self.state.elapsed(Instant::now());
        let active = self.active_duration(cause, stopped_at);
        let counters = &self.state.counters;
        counters.activity.set_load_end(match self.state.iteration_quota {
            Some(_) => self.state.elapsed(counters.last_iteration_end.get()),
            // A drained worker without shares made its remaining starts after the drain.
            None if cause == ThreadStopCause::Drained => {
                active.max(self.state.elapsed(counters.last_iteration_start.get()))
            }
            None => active,
        });
        Ok(LoadOutcome { active, elapsed, cut_off, lost_at_most: 0 })
    }

    async fn abort_user_tasks(&mut self) {
        self.user_tasks.abort_all();
        while self.user_tasks.join_next().await.is_some() {}
    }

    async fn generate_load(&mut self) -> Result<ThreadStopCause, EngineError> {
        loop {
            let now = self.receive_assignments_and_read_clock();
            self.detect_stall(now);
            let mut next = self.next_second();
            if let LoadModelState::Closed { .. } = self.load_state {
                next = next.min(now + CLOSED_POLL_INTERVAL);
            }
            let mut wake_by = |due: Option<Instant>| next = due.map_or(next, |due| next.min(due));
            wake_by(self.state.sleeps.wake_due(now));
            self.state.assign_queued_to_idle();
            wake_by(self.make_due_starts(now, FullQueue::KeepsStarts));
            if self.is_done(now) {
                return Ok(ThreadStopCause::Done);
            }
            self.send_delta_if_due(now, Duration::ZERO);
            if self.growth.users_for_queue(self.thread_users()) > 0 {
                next = now;
            }
            let until = next.max(now + self.state.config.limits.slack);
            if let Some(cause) = self.wait_for_event(until).await? {
                self.make_starts_due_before_drain();
                return Ok(cause);
            }
        }
    }

    /// Records a stall of a closed model. It has no starts that could be late, so the scheduler's own
    /// delay is the only sign of one.
    fn detect_stall(&self, now: Instant) {
        let due = self.state.scheduler.next_wake.get();
        let late = now.saturating_duration_since(due);
        if late >= STALL_THRESHOLD && matches!(self.load_state, LoadModelState::Closed { .. }) {
            self.state.recorder.record_stall(due, late);
        }
    }

    /// Makes the starts that were due before the drain, so that each is made or counted as dropped even
    /// if this thread sees the command late.
    fn make_starts_due_before_drain(&mut self) {
        let command = *self.inputs.commands.borrow();
        if let (EngineCommand::Drain(at), LoadModelState::Open { .. }) = (command, &self.load_state) {
            let now = self.receive_assignments_and_read_clock().min(at);
            self.make_due_starts(now, FullQueue::DropsStarts);
        }
    }

    /// Waits until `until`, or for a command, an assignment, a quota change, the end of a user task or
    /// a wake-up by a user.
    async fn wait_for_event(&mut self, until: Instant) -> Result<Option<ThreadStopCause>, EngineError> {
        self.state.scheduler.next_wake.set(until);
        let delay = until.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            changed = self.inputs.commands.changed() => {
                let commands = &mut self.inputs.commands;
                let command = if changed.is_err() { EngineCommand::Abort } else { *commands.borrow_and_update() };
                return Ok(match command {
                    EngineCommand::Prepare | EngineCommand::Start(_) => None,
                    EngineCommand::Drain(_) => Some(ThreadStopCause::Drained),
                    EngineCommand::Abort => Some(ThreadStopCause::Aborted),
                });
            }
            Some(assignment) = self.inputs.assignments.recv() => self.pending_assignments.push_back(assignment),
            () = quota_changed(&mut self.inputs.quota_changes) => self.state.users.wake_quota_waiters(),
            ended = self.user_tasks.join_next(), if !self.user_tasks.is_empty() => check_user_task(ended)?,
            () = self.state.scheduler.wait() => {}
            fired = self.timer.sleep(delay) => fired.map_err(EngineError::Timer)?,
        }
        Ok(None)
    }

    /// Waits for users to leave; `false` if the grace period ends or an abort arrives first. A run with
    /// an iteration limit makes all iterations: its grace period begins when the last of them has
    /// ended, the profile is over, or a stop is requested.
    async fn drain(&mut self, cause: ThreadStopCause) -> Result<bool, EngineError> {
        let grace = self.state.config.limits.grace;
        let mut finish_all = cause == ThreadStopCause::Done && self.state.config.load.iterations.is_some();
        let profile_end = self.state.run_start + self.profile.duration();
        let mut deadline = self.drain_began(cause) + grace;
        // A drained thread drops starts that have not begun by then, so that begun ones can finish.
        let last_begin = self.drain_began(cause) + grace / 2;
        while !self.user_tasks.is_empty() {
            let now = Instant::now();
            if cause == ThreadStopCause::Drained && now >= last_begin {
                self.state.drop_queued();
            }
            if finish_all && self.state.counters.activity.busy_users() > 0 && now < profile_end {
                deadline = now + grace;
            }
            self.drop_late_starts();
            self.send_delta_if_due(now, LAST_SECOND_TOLERANCE);
            // Repeated, because a user that fails to start may have begun to sleep for its retry.
            self.state.drain_users();
            let next_step = if now < last_begin { last_begin } else { deadline };
            let until = (self.next_second() + LAST_SECOND_TOLERANCE).min(deadline).min(next_step);
            let stop = if now < deadline { self.wait_for_event(until).await? } else { Some(ThreadStopCause::Aborted) };
            match stop {
                Some(ThreadStopCause::Aborted) => return Ok(self.user_tasks.is_empty()),
                Some(_) => finish_all = false,
                None => {}
            }
        }
        Ok(true)
    }

    /// When the drain should have begun. A thread that was blocked begins it later, and does not prolong
    /// the grace period.
    fn drain_began(&self, cause: ThreadStopCause) -> Instant {
        let now = Instant::now();
        match (cause, *self.inputs.commands.borrow()) {
            (_, EngineCommand::Drain(at)) => at.min(now),
            (ThreadStopCause::Done, _) => (self.state.run_start + self.profile.duration()).min(now),
            _ => now,
        }
    }

    fn is_done(&self, now: Instant) -> bool {
        let state = &self.state;
        let elapsed = state.elapsed(now);
        match &self.load_state {
            LoadModelState::Open { schedule, limited, .. } => {
                // A worker of a fleet may still receive shares with starts left.
                let alone = state.config.send_permit.is_none();
                if schedule.peek().is_some() {
                    return false;
                }
                let waits = !state.starts.is_empty() && self.makes_all_starts(now);
                state.starts.wake_when_empty.set(waits);
                !waits && (*limited && alone || elapsed >= schedule.end())
            }
            LoadModelState::Closed { .. } => {
                let stuck = state.iteration_quota.is_some() && state.users_cannot_start(now);
                elapsed >= self.profile.duration() || state.quota_is_exhausted() || stuck
            }
        }
    }

    /// How long this thread made load; `stopped_at` is the run time at which it stopped making starts.
    fn active_duration(&self, cause: ThreadStopCause, stopped_at: Duration) -> Duration {
        let counters = &self.state.counters;
        match (&self.load_state, cause) {
            (_, ThreadStopCause::Drained | ThreadStopCause::Aborted) => stopped_at,
            // Starts that waited for a user may have begun after the schedule's end. Leaving out that
            // time would report a higher rate than the target has seen.
            (LoadModelState::Open { schedule, .. }, ThreadStopCause::Done) => {
                let last = self.state.elapsed(counters.last_iteration_start.get());
                if last > schedule.end() + self.state.config.limits.late_after { last } else { schedule.end() }
            }
            (LoadModelState::Closed { .. }, ThreadStopCause::Done) if self.state.quota_is_exhausted() => {
                self.state.elapsed(counters.last_iteration_end.get())
            }
            // Shorter than the profile if no user could start.
            (LoadModelState::Closed { .. }, ThreadStopCause::Done) => self.profile.duration().min(stopped_at),
        }
    }

    fn next_second(&self) -> Instant {
        self.state.run_start + Duration::from_secs(u64::from(self.second) + 1)
    }

    fn send_delta_if_due(&mut self, now: Instant, tolerance: Duration) {
        if now >= self.next_second() + tolerance {
            self.send_delta(false);
            self.second = self.state.elapsed(now).as_secs() as u32;
        }
    }

    fn send_delta(&mut self, last: bool) {
        let ThreadState { recorder, counters, source, .. } = &*self.state;
        let (metrics, errors, engine) = recorder.harvest(counters.users.get(), counters.activity.busy_users());
        let (source, seq, second) = (*source, self.seq, self.second);
        self.seq += 1;
        let delta = Delta { source, seq, second, metrics, errors, engine, last };
        // Fails only if the engine was dropped; then no caller needs the delta.
        let _ = self.messages.send(ThreadMessage::Delta(Box::new(delta)));
    }
}

/// Waits for a change of the quota; for ever without a quota or after its last change.
async fn quota_changed(changes: &mut Option<watch::Receiver<u64>>) {
    let changed = match changes {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending().await
    }
}

/// A panic in a user task is a bug of the engine or the driver. It ends the run, because fewer users
/// would make a different load.
fn check_user_task(ended: Option<Result<(), tokio::task::JoinError>>) -> Result<(), EngineError> {
    match ended {
        Some(Err(error)) if error.is_panic() => Err(EngineError::UserPanicked),
        _ => Ok(()),
    }
}
