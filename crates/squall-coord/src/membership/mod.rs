//! One member's loop: it joins, sends heartbeats, acquires the units assigned to it and releases
//! the others.
//! It does not use what it holds. It sends events to the owner of the [`MembershipHandle`], which
//! uses the leases and releases them. squall-worker, squall-orchestrator and squall-streams run it.

mod config;
mod lease_plan;
mod membership_validity;

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::config::{MembershipConfig, MembershipConfigError};
use self::lease_plan::{HeldLease, LeasePlan, plan_from_snapshot};
pub use self::membership_validity::MembershipValidity;
use crate::{HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseStore, Revision, StoreError, UnitId};

/// How long the watcher waits at the store before it asks again. Heartbeats report changes too, so
/// it may be long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Below this number of members, every member reads every change at once.
const LARGE_GROUP_MEMBERS: usize = 50;
/// How much each further member lengthens the pause between two refreshes. Changes among a thousand
/// members come in bursts; if every member read each of them, the store would serve a million
/// snapshots.
const REFRESH_DELAY_PER_MEMBER: Duration = Duration::from_millis(1);
/// In a large group, a member that neither assigns nor waits for units refreshes when the
/// assignment changes, and otherwise after this number of heartbeats if anything changed. If all
/// members read every join, the server would fall behind with heartbeats, and members would expire
/// and join again.
const PASSIVE_REFRESH_HEARTBEATS: u32 = 10;
/// Delay before a failed operation is retried; doubled each time, up to the heartbeat interval.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often in a row the watcher or a join may repeat at once without any change in the store. A
/// damaged store can report a change for ever, and members must not take all its time.
const REPEATS_WITHOUT_DELAY: u32 = 3;

/// An event of one lease, for the user of the leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This member holds the lease now.
    Granted(Lease),
    /// The unit is assigned to another member, or this member is leaving: give the lease back with
    /// [`MembershipHandle::release`] as soon as another member may use the unit.
    ReturnRequested(Lease),
    /// The lease is lost. Stop at once; there is nothing to release.
    Lost(Lease),
}

/// The owner's side of a [`Membership`].
#[derive(Debug)]
pub struct MembershipHandle {
    /// Events of leases. Unbounded, but never longer than a few events per unit.
    pub events: mpsc::UnboundedReceiver<LeaseEvent>,
    /// Whether leases may be used right now.
    pub validity: MembershipValidity,
    /// An error that only an operator can remedy: a key of the store holds data of another kind.
    /// Holds one; the membership keeps trying, and the owner may end it.
    pub unusable_store: mpsc::Receiver<StoreError>,
    releases: mpsc::UnboundedSender<Lease>,
}

impl MembershipHandle {
    /// Releases a lease, after a request to return it or because it is not usable.
    pub fn release(&self, lease: Lease) {
        // A membership that has ended holds no leases, so a failed send loses nothing.
        let _ = self.releases.send(lease);
    }
}

/// One member's loop.
pub struct Membership<S> {
    store: S,
    config: MembershipConfig,
    leases: BTreeMap<UnitId, HeldLease>,
    validity: MembershipValidity,
    events: mpsc::UnboundedSender<LeaseEvent>,
    unusable_store: mpsc::Sender<StoreError>,
    releases: mpsc::UnboundedReceiver<Lease>,
    /// Released by their users, but not yet in the store.
    pending_releases: Vec<Lease>,
    joined: bool,
    leaving: bool,
    /// Whether the store has recorded that the member is leaving.
    leaving_recorded: bool,
    /// When to refresh next, apart from heartbeats and wake-ups.
    refresh_at: Option<Instant>,
    last_refresh: Instant,
    failures: u32,
    /// Whether the last heartbeat succeeded. A read-only server serves snapshots, but accepts no
    /// heartbeats.
    last_heartbeat_ok: bool,
    /// How often the membership has expired.
    expiry_count: u32,
    /// How often it has expired since the last plan.
    expiries_in_row: u32,
}

impl<S: LeaseStore> Membership<S> {
    /// A membership, and the handle through which its leases are used.
    pub fn new(store: S, config: MembershipConfig) -> Result<(Self, MembershipHandle), MembershipConfigError> {
        config.check()?;
        let (events, event_rx) = mpsc::unbounded_channel();
        let (release_tx, releases) = mpsc::unbounded_channel();
        // If it is full, the owner has not yet read an error that says the same.
        let (unusable_store, unusable_rx) = mpsc::channel(1);
        let validity = MembershipValidity::new();
        let handle = MembershipHandle {
            events: event_rx,
            validity: validity.clone(),
            unusable_store: unusable_rx,
            releases: release_tx,
        };
        let membership = Self {
            store,
            config,
            leases: BTreeMap::new(),
            validity,
            events,
            unusable_store,
            releases,
            pending_releases: Vec::new(),
            joined: false,
            leaving: false,
            leaving_recorded: false,
            refresh_at: None,
            last_refresh: Instant::now(),
            failures: 0,
            last_heartbeat_ok: false,
            expiry_count: 0,
            expiries_in_row: 0,
        };
        Ok((membership, handle))
    }

    /// Runs until `stop`, then requests the return of every lease and leaves when all are
    /// released. It survives errors of the store: while the store is unreachable it acquires
    /// nothing, and when the membership may have expired it drops all leases.
    pub async fn run(self, stop: CancellationToken) {
        self.run_until(stop.clone(), stop).await;
    }

    /// Like [`run`](Self::run), for a member that must stay a member for longer than its leases. It
    /// requests its leases back from `stop` on. It leaves once `leave` is cancelled too, unless its
    /// membership has expired by then.
    pub async fn run_until(mut self, stop: CancellationToken, leave: CancellationToken) {
        let (seen_tx, seen_rx) = watch::channel(WatchState::default());
        let (wakeup_tx, mut wakeup) = mpsc::channel(1);
        let mut watcher = JoinSet::new();
        watcher.spawn(watch_changes(self.store.clone(), seen_rx, wakeup_tx));
        let mut heartbeats = tokio::time::interval(self.config.heartbeat_interval);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Polled in order, so that a simulation with the same seed takes the same path. No
                // arm stays ready, so none starves the others.
                biased;
                () = stop.cancelled(), if !self.leaving => self.start_leaving().await,
                () = leave.cancelled(), if self.leaving && self.holds_no_leases() => break,
                () = tokio::time::sleep_until(self.validity.expires_at()), if !self.leases.is_empty() => self.drop_unconfirmed_leases(),
                _ = heartbeats.tick() => self.heartbeat(&seen_tx).await,
                Some(lease) = self.releases.recv() => self.release_returned(lease).await,
                Some(()) = wakeup.recv() => self.refresh(&seen_tx).await,
                () = sleep_until_some(self.refresh_at), if self.refresh_at.is_some() => self.refresh(&seen_tx).await,
            }
            // A leaving member that has lost its membership has nothing to keep, and must not join
            // again.
            if self.leaving && self.holds_no_leases() && (!self.joined || leave.is_cancelled()) {
                break;
            }
        }
        if let Err(error) = self.store.leave(&self.config.member).await {
            warn!(member = %self.config.member, %error, "cannot tell the store about leaving; the membership will expire");
        }
    }

    fn holds_no_leases(&self) -> bool {
        self.leases.is_empty() && self.pending_releases.is_empty()
    }

    /// Sends a heartbeat; joins if it is not a member.
    async fn heartbeat(&mut self, seen: &watch::Sender<WatchState>) {
        if self.leaving && !self.leaving_recorded {
            self.record_leaving().await;
        }
        let sent = Instant::now();
        let (member, ttl) = (&self.config.member, self.config.ttl);
        let last_seen = *seen.borrow();
        let outcome = if self.joined {
            self.store.heartbeat(member, ttl).await
        } else {
            let joined = self.store.join(member, ttl).await;
            joined.map(|revision| HeartbeatOutcome::Alive { revision, assignment_revision: revision })
        };
        match outcome {
            Ok(HeartbeatOutcome::Alive { revision, assignment_revision: assigned }) => {
                self.validity.extend(sent, ttl);
                self.last_heartbeat_ok = true;
                if !self.joined {
                    info!(member = %self.config.member, "joined");
                }
                let was_joined = std::mem::replace(&mut self.joined, true);
                let min_interval =
                    self.config.heartbeat_interval * if last_seen.watching { 0 } else { PASSIVE_REFRESH_HEARTBEATS };
                let changed = revision != last_seen.revision && self.last_refresh.elapsed() >= min_interval;
                if !was_joined || changed || assigned > last_seen.revision || self.failures > 0 {
                    self.refresh(seen).await;
                }
            }
            Ok(HeartbeatOutcome::Expired) => self.handle_expiry(),
            Err(error) => {
                self.last_heartbeat_ok = false;
                self.schedule_retry("heartbeat", error);
            }
        }
    }

    /// The membership has expired: drops all leases and joins again at once.
    fn handle_expiry(&mut self) {
        self.expiry_count += 1;
        let (member, held, ttl) = (&self.config.member, self.leases.len(), self.config.ttl);
        match self.expiry_count {
            1 => warn!(%member, held, "membership expired; joining again"),
            times => warn!(
                %member, held, times, ?ttl,
                "membership expired again; joining again. Its heartbeats arrive late: if the connection to the store is slow, \
                 set a longer time to live (squall worker --expires-after)"
            ),
        }
        self.drop_all_leases();
        self.validity.expire();
        self.joined = false;
        self.pending_releases.clear();
        let wait = repeat_delay(self.expiries_in_row).min(self.config.heartbeat_interval);
        self.expiries_in_row += 1;
        self.refresh_at = Some(Instant::now() + wait);
    }

    /// The store has not confirmed the membership in time, so no lease may be used. The store may
    /// still list them as this member's, so it refreshes at once.
    fn drop_unconfirmed_leases(&mut self) {
        self.drop_all_leases();
        self.refresh_at = Some(Instant::now());
    }

    fn drop_all_leases(&mut self) {
        for (unit, held) in std::mem::take(&mut self.leases) {
            self.send_event(LeaseEvent::Lost(Lease { unit, epoch: held.epoch }));
        }
    }

    /// Reads the store and applies the plan for it.
    async fn refresh(&mut self, seen: &watch::Sender<WatchState>) {
        self.refresh_at = None;
        self.last_refresh = Instant::now();
        if !self.joined {
            // Boxed, because `heartbeat` and `refresh` call each other once.
            return Box::pin(self.heartbeat(seen)).await;
        }
        // In a large group only members that may have to assign read the full snapshot. A new
        // member does not know yet whether it is one of them.
        let member_count = seen.borrow().member_count;
        if member_count == 0 || member_count >= LARGE_GROUP_MEMBERS {
            let snapshot = match self.store.member_snapshot(&self.config.member).await {
                Ok(snapshot) => snapshot,
                Err(error) => return self.schedule_retry("member_snapshot", error),
            };
            if snapshot.member_count >= LARGE_GROUP_MEMBERS && !lease_plan::may_assign(snapshot.older_members) {
                let lacks_units = snapshot.assigned.iter().any(|unit| !self.leases.contains_key(unit));
                let watching = lacks_units || lease_plan::is_standby_assigner(snapshot.older_members);
                seen.send_replace(WatchState {
                    revision: snapshot.revision,
                    member_count: snapshot.member_count,
                    watching,
                });
                let plan = lease_plan::plan_from_member_snapshot(&snapshot, &self.config.member, &self.leases);
                return self.handle_plan(plan, snapshot.revision).await;
            }
        }
        let snapshot = match self.store.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => return self.schedule_retry("snapshot", error),
        };
        seen.send_replace(WatchState {
            revision: snapshot.revision,
            member_count: snapshot.members.len(),
            watching: true,
        });
        let (member, units) = (&self.config.member, &self.config.units);
        let plan = plan_from_snapshot(&snapshot, member, units, self.config.join_delay, &self.leases);
        self.handle_plan(plan, snapshot.revision).await;
    }

    async fn handle_plan(&mut self, plan: Option<LeasePlan>, revision: Revision) {
        let Some(plan) = plan else { return self.handle_expiry() };
        self.expiries_in_row = 0;
        if let Err(error) = self.apply_plan(plan, revision).await {
            self.schedule_retry("apply_plan", error);
        } else if self.last_heartbeat_ok && std::mem::take(&mut self.failures) > 0 {
            info!(member = %self.config.member, "the store is usable again");
        }
    }

    async fn apply_plan(&mut self, plan: LeasePlan, revision: Revision) -> Result<(), StoreError> {
        self.refresh_at = plan.refresh_after.map(|wait| Instant::now() + wait);
        for lease in plan.drop {
            self.leases.remove(&lease.unit);
            self.send_event(LeaseEvent::Lost(lease));
        }
        for lease in plan.request_return {
            self.request_return(lease);
        }
        if !plan.orphaned.is_empty() {
            self.store.release(&self.config.member, &plan.orphaned).await?;
        }
        if let Some(assignment) = plan.new_assignment {
            // If another member was faster, the revision has changed and the watcher wakes this
            // member.
            let accepted = self.store.assign(revision, &assignment).await?;
            debug!(member = %self.config.member, accepted, "sent an assignment");
            return Ok(());
        }
        if plan.acquire.is_empty() || self.leaving {
            return Ok(());
        }
        match self.store.acquire(&self.config.member, &plan.acquire).await? {
            LeaseAcquireOutcome::Granted(grants) => {
                for (unit, epoch) in plan.acquire.into_iter().zip(grants) {
                    let Some(epoch) = epoch else { continue };
                    self.leases.insert(unit.clone(), HeldLease { epoch, return_requested: false });
                    self.send_event(LeaseEvent::Granted(Lease { unit, epoch }));
                }
            }
            LeaseAcquireOutcome::NotMember => self.handle_expiry(),
            LeaseAcquireOutcome::GrantsPaused => {
                self.refresh_at = Some(Instant::now() + self.config.heartbeat_interval)
            }
        }
        Ok(())
    }

    fn request_return(&mut self, lease: Lease) {
        if let Some(held) = self.leases.get_mut(&lease.unit) {
            held.return_requested = true;
        }
        self.send_event(LeaseEvent::ReturnRequested(lease));
    }

    /// Users release leases in bursts; one call releases all that are queued.
    async fn release_returned(&mut self, first: Lease) {
        let mut next = Some(first);
        while let Some(lease) = next {
            if self.leases.get(&lease.unit).is_some_and(|held| held.epoch == lease.epoch) {
                self.leases.remove(&lease.unit);
                self.pending_releases.push(lease);
            }
            next = self.releases.try_recv().ok();
        }
        match self.store.release(&self.config.member, &self.pending_releases).await {
            // A release raises the revision, so every member refreshes, including this one.
            Ok(_) => self.pending_releases.clear(),
            Err(error) => {
                // They are not in `leases`, so the next refresh finds them as orphaned and releases
                // them.
                self.pending_releases.clear();
                self.schedule_retry("release", error);
            }
        }
    }

    async fn start_leaving(&mut self) {
        self.leaving = true;
        self.record_leaving().await;
        let leases: Vec<Lease> = self
            .leases
            .iter()
            .filter(|(_, held)| !held.return_requested)
            .map(|(unit, held)| Lease { unit: unit.clone(), epoch: held.epoch })
            .collect();
        for lease in leases {
            self.request_return(lease);
        }
    }

    /// Records in the store that the member is leaving. Until then, assigners give it units that it
    /// does not acquire.
    async fn record_leaving(&mut self) {
        match self.store.mark_leaving(&self.config.member).await {
            Ok(_) => self.leaving_recorded = true,
            Err(error) => self.schedule_retry("mark_leaving", error),
        }
    }

    fn schedule_retry(&mut self, step: &str, error: StoreError) {
        let wait = (RETRY_DELAY * 2u32.pow(self.failures.min(8))).min(self.config.heartbeat_interval);
        let (member, cause) = (&self.config.member, std::error::Error::source(&error));
        // A warning once per outage, the rest at debug level.
        match self.failures {
            0 => warn!(%member, step, %error, ?cause, "the store is not usable; retrying"),
            _ => debug!(%member, step, %error, ?cause, "store operation failed"),
        }
        self.failures += 1;
        if matches!(error, StoreError::WrongType { .. }) {
            let _ = self.unusable_store.try_send(error);
        }
        self.refresh_at = Some(Instant::now() + wait);
    }

    fn send_event(&self, event: LeaseEvent) {
        // If the handle is dropped, no user of leases is left to inform.
        let _ = self.events.send(event);
    }
}

/// The state of the last snapshot, as far as the watcher needs it.
#[derive(Clone, Copy, Debug, Default)]
struct WatchState {
    revision: Revision,
    member_count: usize,
    /// Whether every change wakes the member, or only those that a heartbeat reports.
    watching: bool,
}

impl WatchState {
    fn refresh_delay(self) -> Duration {
        let members = u32::try_from(self.member_count.saturating_sub(LARGE_GROUP_MEMBERS)).unwrap_or(u32::MAX);
        REFRESH_DELAY_PER_MEMBER.saturating_mul(members)
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The delay before something is repeated that has been done `times` times in a row without effect.
fn repeat_delay(times: u32) -> Duration {
    match times.checked_sub(REPEATS_WITHOUT_DELAY) {
        None => Duration::ZERO,
        Some(more) => RETRY_DELAY * 2u32.pow(more.min(8)),
    }
}

/// Wakes the member when the store changes. It waits for a refresh before it watches again.
async fn watch_changes<S: LeaseStore>(store: S, mut seen: watch::Receiver<WatchState>, wakeup: mpsc::Sender<()>) {
    // The revision at which the store last reported a change, and how often in a row at the same one.
    let (mut reported_at, mut false_changes) = (None, 0);
    loop {
        if seen.changed().await.is_err() {
            return;
        }
        let last_seen = *seen.borrow_and_update();
        if !last_seen.watching {
            continue;
        }
        if !last_seen.refresh_delay().is_zero() {
            tokio::time::sleep(last_seen.refresh_delay()).await;
        }
        false_changes = if reported_at == Some(last_seen.revision) { false_changes + 1 } else { 0 };
        if false_changes == REPEATS_WITHOUT_DELAY {
            warn!(
                revision = last_seen.revision.0,
                "the store reports changes that its revision does not show; watching it less often"
            );
        }
        if !repeat_delay(false_changes).is_zero() {
            tokio::time::sleep(repeat_delay(false_changes)).await;
        }
        let began = Instant::now();
        let waited = store.wait_for_change(last_seen.revision, WATCH_TIMEOUT).await;
        reported_at = (waited.is_ok() && began.elapsed() < WATCH_TIMEOUT).then_some(last_seen.revision);
        if waited.is_err() {
            tokio::time::sleep(RETRY_DELAY * 4).await;
        }
        if wakeup.send(()).await.is_err() {
            return;
        }
    }
}
