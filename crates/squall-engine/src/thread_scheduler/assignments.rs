//! Applies share assignments to a thread: when they take effect, what a thread does while the
//! worker's membership is not valid, and which starts of gained shares it makes late.

use squall_model::ShareSet;
use std::{
    collections::BTreeMap,
    sync::PoisonError,
    time::{Duration, Instant},
};

use super::{
    LoadModelState, ThreadScheduler,
    starts::{FullQueue, schedule_for},
};
use crate::{
    driver::DriverThread,
    share_assignment::ShareAssignment,
    user_mailbox::{DueStart, UserSignal},
};

/// The engine replays starts that fell due while no worker held a share only if that gap is not
/// longer. Times without load do not count.
const MAX_REPLAY_GAP: Duration = Duration::from_secs(5);

impl<T: DriverThread> ThreadScheduler<T> {
    /// Receives all assignments sent so far; returns the present, which is later than all of them.
    pub(super) fn receive_assignments_and_read_clock(&mut self) -> Instant {
        let start_time = self.inputs.start_time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Ok(assignment) = self.inputs.assignments.try_recv() {
            self.pending_assignments.push_back(assignment);
        }
        drop(start_time);
        now
    }

    /// Stops making load, because the membership may have expired: other workers may already have
    /// this process's shares.
    fn fence(&mut self, now: Instant) {
        self.fenced = true;
        if self.active_shares.is_empty() {
            return;
        }
        self.state.drop_queued();
        self.set_active_shares(ShareSet::NONE, self.state.elapsed(now));
    }

    /// Makes load again from `now` on, because the membership is valid again. Starts due in between
    /// are not made: this process does not know whether another worker has made them.
    fn unfence(&mut self, now: Instant) {
        self.fenced = false;
        while let Some(assignment) = self.next_assignment(now) {
            self.assigned_shares = assignment.shares;
            self.profile = assignment.profile.clone();
        }
        self.set_active_shares(self.assigned_shares, self.state.elapsed(now));
    }

    /// Makes the load of `shares` from the run time `from` on.
    fn set_active_shares(&mut self, shares: ShareSet, from: Duration) {
        self.active_shares = shares;
        if !shares.is_empty() {
            // A thread that has lost all shares keeps its limit, because starts due before still
            // need users.
            self.growth.set_shares(shares, &self.profile, &self.state.config.limits);
            if let LoadModelState::Open { .. } = self.load_state {
                self.state.users.limit(self.state.counters.users.get(), self.growth.limit());
            }
        }
        match &mut self.load_state {
            LoadModelState::Open { schedule, .. } => schedule.change(shares, self.profile.clone(), from),
            LoadModelState::Closed { mailboxes, desired } => {
                let lost = mailboxes.extract_if(.., |user, _| !shares.contains(*user));
                lost.for_each(|(_, mailbox)| mailbox.send(UserSignal::Leave));
                // The next adjustment then creates the users of gained shares up to the present
                // level.
                *desired = 0;
            }
        }
    }

    /// Makes all due starts; returns when to wake next.
    pub(super) fn make_due_starts(&mut self, now: Instant, full_queue: FullQueue) -> Option<Instant> {
        if self.state.config.send_permit.as_ref().is_some_and(|permit| !permit.is_valid_at(now)) {
            self.fence(now);
            return None;
        }
        if self.fenced {
            self.unfence(now);
        }
        while let Some(assignment) = self.next_assignment(now) {
            // A start due exactly at the change belongs to the new assignment.
            self.make_starts_before(self.state.run_start + assignment.effective_at, FullQueue::DropsStarts);
            self.apply_assignment(&assignment);
        }
        let next_due = self.make_starts_before(now + Duration::from_nanos(1), full_queue);
        let change = self.pending_assignments.front().map(|next| self.state.run_start + next.effective_at);
        match (next_due, change) {
            (Some(due), Some(change)) => Some(due.min(change)),
            (due, change) => due.or(change),
        }
    }

    /// The next assignment that has taken effect by `now`.
    fn next_assignment(&mut self, now: Instant) -> Option<ShareAssignment> {
        let next = self.pending_assignments.front()?;
        if self.state.run_start + next.effective_at > now {
            return None;
        }
        self.pending_assignments.pop_front()
    }

    fn apply_assignment(&mut self, assignment: &ShareAssignment) {
        self.assigned_shares = assignment.shares;
        let gained = self.assigned_shares.without(self.active_shares);
        self.profile = assignment.profile.clone();
        self.set_active_shares(self.assigned_shares, assignment.effective_at);
        if let LoadModelState::Open { .. } = self.load_state {
            self.replay_starts_of_gap(gained, assignment);
        }
    }

    /// Makes the starts of gained shares late that fell due between their last holder and this
    /// thread. It replays none of a share without a holder for longer than [`MAX_REPLAY_GAP`],
    /// because all these starts at once would be a load that the plan does not have, and none of a
    /// share whose last holder noted no time.
    fn replay_starts_of_gap(&self, gained: ShareSet, assignment: &ShareAssignment) {
        let effective_at = assignment.effective_at;
        let mut shares_by_time: BTreeMap<Duration, ShareSet> = BTreeMap::new();
        for share in gained.iter() {
            let recent = |left: &&Duration| {
                **left < effective_at && self.profile.time_under_load(**left, effective_at) <= MAX_REPLAY_GAP
            };
            if let Some(left) = assignment.resume_from.get(&share).filter(recent) {
                shares_by_time.entry(*left).or_default().insert(share);
            }
        }
        let now = Instant::now();
        for (left, shares) in shares_by_time {
            let mut gap = schedule_for(&self.state, &self.profile, shares);
            gap.change(shares, self.profile.clone(), left);
            while let Some(start) = gap.next().filter(|start| start.at < effective_at) {
                let intended = self.state.run_start + start.at;
                // The gap between two holders is the fleet's, and the report shows it there. Only
                // where no worker held the share since the run's start is the delay the engine's
                // lag.
                let scheduler_lag =
                    if left.is_zero() { now.saturating_duration_since(intended) } else { Duration::ZERO };
                let number = start.number;
                self.state.dispatch_start(DueStart { number, intended, scheduler_lag, free_since: now });
            }
        }
    }
}
