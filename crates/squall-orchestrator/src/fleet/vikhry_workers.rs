//! vikhry's workers in a Squall fleet. They take commands, but hold no shares, report no progress and
//! ship no deltas, so the leader does this for them: it holds shares in their name, sends the start
//! command, and ships what they write as deltas. It makes no load and sends no users:
//! `RedisUserView` does, from the shares. The orchestrator calls it while it leads.

mod event_deltas;

use squall_coord::{
    CompatView, FleetStores, Lease, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipHandle, ReportFields,
    RunRecord, StoreError, UnitId,
};
use squall_model::{Bundle, CommandType, RunPhase, RunSpec, SHARE_COUNT, ShareSet};
use std::{collections::BTreeMap, time::Duration};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    FleetClient, WorkerInfo, WorkerKind,
    command_payload::{command_envelope, start_payload},
    fleet_client::vikhry_can_run,
};
use event_deltas::EventDeltas;

/// A worker that has users and starts none of them within this time refuses its commands.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The same for a worker whose users no other worker can take: a slow `on_start` then costs nothing.
const SOLE_REFUSAL_TIMEOUT: Duration = Duration::from_secs(15);

/// How long after the stop command the leader waits for users that are still active. vikhry's workers
/// end them after 5 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(7);

/// The vikhry workers of the run that this orchestrator leads.
pub(super) struct VikhryWorkers<C: FleetStores> {
    fleet: FleetClient<C>,
    /// The run that the members below take part in, by its epoch.
    epoch: u64,
    members: BTreeMap<String, VikhryMember>,
    deltas: EventDeltas,
    memberships: JoinSet<()>,
}

/// A step of the run, as the leader sees it.
#[derive(Clone, Copy)]
pub(super) struct RunStep<'a> {
    pub(super) record: &'a RunRecord,
    pub(super) phase: RunPhase,
    pub(super) spec: &'a RunSpec,
    pub(super) bundle: &'a Bundle,
    pub(super) elapsed: Duration,
}

/// One vikhry worker with the membership that the leader keeps for it.
struct VikhryMember {
    handle: MembershipHandle,
    /// Cancelling it ends the membership.
    end: CancellationToken,
    leases: BTreeMap<u32, Lease>,
    /// What the leader last added to the worker's report.
    extended: ReportFields,
    progress: MemberProgress,
}

#[derive(Debug, Clone, PartialEq)]
enum MemberProgress {
    /// The worker has the start command and has started no user.
    Waiting { users_since: Option<Instant> },
    /// It has started users.
    Working,
    /// It has the stop command.
    Stopping { since: Instant },
    /// Its last delta is shipped.
    Done,
    /// It refuses its commands, for this reason.
    Refused { reason: String },
}

/// The users of a worker.
#[derive(Clone, Copy)]
struct SeenUsers {
    /// How many users the worker shows as active.
    active: u64,
    /// Whether it should have any.
    expected: bool,
}

impl<C: FleetStores> VikhryWorkers<C> {
    pub(super) fn new(fleet: FleetClient<C>) -> VikhryWorkers<C> {
        let (members, deltas, memberships) = (BTreeMap::new(), EventDeltas::default(), JoinSet::new());
        VikhryWorkers { fleet, epoch: 0, members, deltas, memberships }
    }

    /// Gives every share back: no run is on, or another orchestrator leads.
    pub(super) fn end_all(&mut self) {
        for (_, member) in std::mem::take(&mut self.members) {
            end_membership(member);
        }
        while self.memberships.try_join_next().is_some() {}
        self.epoch = 0;
    }

    /// Takes the next step for every vikhry worker, and completes what `workers` say about them. Removes
    /// the dead ones, so that the leader loses them as it loses a Squall worker, whose report expires.
    pub(super) async fn update(&mut self, step: RunStep<'_>, workers: &mut Vec<WorkerInfo>) -> Result<(), StoreError> {
        if self.epoch != step.record.epoch {
            self.end_all();
            self.epoch = step.record.epoch;
            self.deltas = EventDeltas::new(step.record, step.elapsed);
        }
        let is_vikhry = |worker: &WorkerInfo| worker.kind == WorkerKind::Vikhry;
        workers.retain(WorkerInfo::is_present);
        let squall_can_run = workers.iter().any(|worker| !is_vikhry(worker) && worker.can_carry_out(step.record.epoch));
        let mut present: Vec<&mut WorkerInfo> = workers.iter_mut().filter(|worker| is_vikhry(worker)).collect();
        if present.is_empty() && self.members.is_empty() || !vikhry_can_run(step.bundle) {
            return Ok(());
        }
        self.remove_absent(&present);
        self.deltas.read(&self.fleet.stores().run()).await?;
        for worker in &mut present {
            let refusal_timeout = self.refusal_timeout(squall_can_run);
            self.update_member(step, worker, refusal_timeout).await?;
        }
        Ok(())
    }

    fn remove_absent(&mut self, present: &[&mut WorkerInfo]) {
        let is_present = |id: &String| present.iter().any(|worker| worker.id == *id);
        let absent: Vec<String> = self.members.keys().filter(|id| !is_present(id)).cloned().collect();
        for member in absent.iter().filter_map(|id| self.members.remove(id)) {
            end_membership(member);
        }
    }

    /// How long a worker may start none of its users: shorter if another worker runs users and can
    /// take them.
    fn refusal_timeout(&self, squall_can_run: bool) -> Duration {
        let is_working = |member: &VikhryMember| member.progress == MemberProgress::Working;
        match squall_can_run || self.members.values().any(is_working) {
            true => REFUSAL_TIMEOUT,
            false => SOLE_REFUSAL_TIMEOUT,
        }
    }

    async fn update_member(
        &mut self,
        step: RunStep<'_>,
        worker: &mut WorkerInfo,
        refusal_timeout: Duration,
    ) -> Result<(), StoreError> {
        if !self.members.contains_key(&worker.id) {
            // Its users are ended by now, or will be by their own worker.
            if step.phase == RunPhase::Stopping {
                return Ok(());
            }
            let member = self.join(step, &worker.id).await?;
            self.members.insert(worker.id.clone(), member);
        }
        let Some(member) = self.members.get_mut(&worker.id) else { return Ok(()) };
        member.take_lease_events();
        let run_store = self.fleet.stores().run();
        let active = run_store.active_user_count(&worker.id).await?;
        let users = SeenUsers { active, expected: member.shares().count_below(step.users()) > 0 };
        member.progress = member.progress.clone().step(step.phase, users, Instant::now(), refusal_timeout);
        if let MemberProgress::Refused { .. } = member.progress {
            member.release_all();
        }
        let is_over = member.progress == MemberProgress::Done;
        if step.spec.start_at_ms.is_some() {
            self.deltas.ship_due(&run_store, worker, active, (step.elapsed, is_over)).await?;
        }
        member.complete(step.record.epoch, Instant::now(), worker);
        let fields = member.report_fields(worker);
        if member.extended != fields {
            run_store.extend_report(&worker.id, &fields).await?;
            member.extended = fields;
        }
        Ok(())
    }

    /// Becomes a member in the name of the worker `id`, and sends it the start command. A worker takes
    /// the command of the same run twice.
    async fn join(&mut self, step: RunStep<'_>, id: &str) -> Result<VikhryMember, StoreError> {
        let units = (0..SHARE_COUNT).map(UnitId::from).collect();
        let config = MembershipConfig::new(MemberId::new(format!("{id}.vikhry")), units);
        let (membership, handle) =
            Membership::new(self.fleet.stores().workers(), config).expect("the default timings are valid");
        let end = CancellationToken::new();
        self.memberships.spawn(membership.run(end.clone()));
        let start = command_envelope(CommandType::StartTest, step.record.epoch, start_payload(step.spec, step.bundle));
        let is_subscribed = self.fleet.publish_commands(id, &[start.encode()]).await?;
        debug!(worker = id, is_subscribed, "the leader takes part in the run for a vikhry worker");
        let progress = match is_subscribed {
            true => MemberProgress::Waiting { users_since: None },
            false => MemberProgress::Refused { reason: "it is not subscribed to its commands".to_owned() },
        };
        Ok(VikhryMember { handle, end, leases: BTreeMap::new(), extended: ReportFields::new(), progress })
    }
}

/// Releases the shares; the membership ends when the store has them back.
fn end_membership(mut member: VikhryMember) {
    member.take_lease_events();
    member.release_all();
    member.end.cancel();
}

impl RunStep<'_> {
    /// The number of users that the run should have now; 0 before its start.
    fn users(&self) -> u64 {
        match self.phase == RunPhase::Running && !self.elapsed.is_zero() {
            true => (self.spec.profile.level(self.elapsed) + 1e-9).floor() as u64,
            false => 0,
        }
    }
}

impl MemberProgress {
    fn step(self, phase: RunPhase, users: SeenUsers, now: Instant, refusal_timeout: Duration) -> MemberProgress {
        use MemberProgress::{Done, Refused, Stopping, Waiting, Working};
        let SeenUsers { active, expected } = users;
        match self {
            Refused { .. } | Done => self,
            Stopping { since } if active > 0 && now - since < STOP_TIMEOUT => Stopping { since },
            Stopping { .. } => Done,
            Waiting { .. } | Working if phase == RunPhase::Stopping => Stopping { since: now },
            Waiting { .. } if active > 0 => Working,
            Waiting { .. } if !expected => Waiting { users_since: None },
            Waiting { users_since: None } => Waiting { users_since: Some(now) },
            Waiting { users_since: Some(since) } if now - since > refusal_timeout => {
                Refused { reason: no_user_started(refusal_timeout) }
            }
            waiting @ Waiting { .. } => waiting,
            Working => Working,
        }
    }

    /// What people have to know about the worker. A worker whose users no other worker can take is
    /// named long before it counts as refusing.
    fn notice(&self, now: Instant) -> Option<String> {
        match self {
            MemberProgress::Refused { reason } => Some(reason.clone()),
            MemberProgress::Waiting { users_since: Some(since) } if now - *since > REFUSAL_TIMEOUT => {
                Some(no_user_started(REFUSAL_TIMEOUT))
            }
            MemberProgress::Waiting { .. }
            | MemberProgress::Working
            | MemberProgress::Stopping { .. }
            | MemberProgress::Done => None,
        }
    }
}

fn no_user_started(within: Duration) -> String {
    let seconds = within.as_secs();
    format!(
        "it has started none of its users for {seconds} s: it refuses its commands, or on_start takes longer; see its log"
    )
}

impl VikhryMember {
    fn take_lease_events(&mut self) {
        let share = |lease: &Lease| lease.unit.as_str().parse::<u32>().ok();
        while let Ok(event) = self.handle.events.try_recv() {
            match event {
                LeaseEvent::Granted(lease) => {
                    if let Some(share) = share(&lease) {
                        self.leases.insert(share, lease);
                    }
                }
                // The user view removes the share's users in the same poll.
                LeaseEvent::ReturnRequested(lease) => {
                    share(&lease).map(|share| self.leases.remove(&share));
                    self.handle.release(lease);
                }
                LeaseEvent::Lost(lease) => {
                    share(&lease).map(|share| self.leases.remove(&share));
                }
            }
        }
    }

    /// Gives every share back and takes no others: the membership ends.
    fn release_all(&mut self) {
        self.end.cancel();
        std::mem::take(&mut self.leases).into_values().for_each(|lease| self.handle.release(lease));
    }

    fn shares(&self) -> ShareSet {
        self.leases.keys().copied().collect()
    }

    /// Fills in what a Squall worker reports itself.
    fn complete(&self, epoch: u64, now: Instant, worker: &mut WorkerInfo) {
        worker.held = self.shares();
        worker.shares = worker.held.len();
        (worker.ready, worker.done) = (epoch, if self.progress == MemberProgress::Done { epoch } else { 0 });
        worker.message = self.progress.notice(now).unwrap_or_default();
        if let MemberProgress::Refused { .. } = &self.progress {
            (worker.ready, worker.given_up_run) = (0, epoch);
        }
    }

    /// The fields of `worker` that the leader adds to its report, for the API and other readers.
    fn report_fields(&self, worker: &WorkerInfo) -> ReportFields {
        let fields = [
            ("ready", worker.ready.to_string()),
            ("done", worker.done.to_string()),
            ("shares", worker.shares.to_string()),
            ("held", worker.held.to_hex()),
            ("failed", worker.given_up_run.to_string()),
            ("message", worker.message.clone()),
        ];
        fields.map(|(field, value)| (field.to_owned(), value)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(active: u64, expected: bool) -> SeenUsers {
        SeenUsers { active, expected }
    }

    #[tokio::test(start_paused = true)]
    async fn worker_that_starts_no_user_is_refusing_and_one_that_does_is_not() {
        let (start, running) = (Instant::now(), RunPhase::Running);
        let waiting =
            MemberProgress::Waiting { users_since: None }.step(running, seen(0, false), start, REFUSAL_TIMEOUT);
        assert_eq!(waiting, MemberProgress::Waiting { users_since: None }, "it has no users to start");
        let waiting = waiting.step(running, seen(0, true), start, REFUSAL_TIMEOUT);
        let at_limit = waiting.clone().step(running, seen(0, true), start + REFUSAL_TIMEOUT, REFUSAL_TIMEOUT);
        assert_eq!(at_limit, waiting);
        let later = start + REFUSAL_TIMEOUT + Duration::from_millis(1);
        assert!(matches!(
            waiting.clone().step(running, seen(0, true), later, REFUSAL_TIMEOUT),
            MemberProgress::Refused { .. }
        ));
        let working = waiting.step(running, seen(1, true), later, REFUSAL_TIMEOUT);
        assert_eq!(working, MemberProgress::Working);
        assert_eq!(working.clone().step(running, seen(0, true), later, REFUSAL_TIMEOUT), working, "users may end");
        let stopping = working.step(RunPhase::Stopping, seen(3, false), start, REFUSAL_TIMEOUT);
        assert_eq!(
            stopping.clone().step(RunPhase::Stopping, seen(1, false), start, REFUSAL_TIMEOUT),
            stopping,
            "users are active"
        );
        assert_eq!(
            stopping.clone().step(RunPhase::Stopping, seen(0, false), start, REFUSAL_TIMEOUT),
            MemberProgress::Done
        );
        assert_eq!(
            stopping.step(RunPhase::Stopping, seen(1, false), start + STOP_TIMEOUT, REFUSAL_TIMEOUT),
            MemberProgress::Done
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_on_start_is_no_refusal_while_no_other_worker_can_take_the_users() {
        let (start, running) = (Instant::now(), RunPhase::Running);
        let waiting = MemberProgress::Waiting { users_since: Some(start) };
        let at = |seconds| start + Duration::from_secs(seconds);
        let slow = waiting.clone().step(running, seen(0, true), at(7), SOLE_REFUSAL_TIMEOUT);
        assert_eq!(slow.notice(at(5)), None);
        assert!(slow.notice(at(7)).is_some_and(|notice| notice.contains("for 5 s")), "it is named meanwhile");
        assert_eq!(slow.step(running, seen(1, true), at(8), SOLE_REFUSAL_TIMEOUT), MemberProgress::Working);
        let refused = waiting.step(running, seen(0, true), at(16), SOLE_REFUSAL_TIMEOUT);
        assert!(matches!(&refused, MemberProgress::Refused { reason } if reason.contains("for 15 s")), "{refused:?}");
    }
}
