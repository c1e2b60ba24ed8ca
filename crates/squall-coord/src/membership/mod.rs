//! One member's loop in a space: joins, beats, takes what is assigned to it, gives back what is not.
//! Refuses to use what it holds; it tells the owner of the [`MembershipHandle`], who does and who gives leases back when done.

mod lease_plan;
mod lease_validity;

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::lease_plan::{HeldLease, LeasePlan, plan_from_snapshot};
pub use self::lease_validity::LeaseValidity;
use crate::{HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseStore, MemberId, Revision, StoreError, UnitId};

/// How long the watcher waits at the store before it asks again. Beats tell of changes too, so it may be long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Below this many members everybody looks at every change at once.
const LARGE_GROUP_MEMBERS: usize = 50;
/// How much longer each further member makes everybody wait between two looks: changes among a thousand members come in
/// bursts, and everybody looking at each of them would be a million views.
const REFRESH_DELAY_PER_MEMBER: Duration = Duration::from_millis(1);
/// In a crowd, whoever neither assigns nor waits for anything looks only when the assignment has changed, and otherwise after this
/// many beats with any change at all. Everybody looking at every arrival of a thousand would keep the server from hearing beats,
/// and members that are not heard expire and arrive again.
const PASSIVE_REFRESH_HEARTBEATS: u32 = 10;
/// How soon a failed step is tried again; doubled up to the beat.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Its name.
    pub member: MemberId,
    /// Everything there is to hold, the same for all members.
    pub units: Vec<UnitId>,
    /// Time between beats. Default 1 s.
    pub heartbeat_interval: Duration,
    /// How long the member lives without a beat; at least three beats. Default 3.5 s.
    pub ttl: Duration,
    /// How long a new member waits for others to arrive before units move to it. Default 250 ms.
    pub join_delay: Duration,
}

/// Timings that cannot work together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MembershipConfigError {
    /// One late beat would already cost the membership.
    #[error("a member must live for at least three beats: {ttl:?} is less than 3 × {heartbeat_interval:?}")]
    TtlTooShort {
        /// Time between beats.
        heartbeat_interval: Duration,
        /// Life without a beat.
        ttl: Duration,
    },
    /// No time between beats.
    #[error("the time between beats must not be zero")]
    ZeroHeartbeatInterval,
}

impl MembershipConfig {
    /// A member with default timings.
    pub fn new(member: MemberId, units: Vec<UnitId>) -> Self {
        Self {
            member,
            units,
            heartbeat_interval: Duration::from_secs(1),
            ttl: Duration::from_millis(3500),
            join_delay: Duration::from_millis(250),
        }
    }

    fn check(&self) -> Result<(), MembershipConfigError> {
        match (self.heartbeat_interval, self.ttl) {
            (Duration::ZERO, _) => Err(MembershipConfigError::ZeroHeartbeatInterval),
            (interval, ttl) if ttl < interval * 3 => {
                Err(MembershipConfigError::TtlTooShort { heartbeat_interval: interval, ttl })
            }
            _ => Ok(()),
        }
    }
}

/// What the holder of leases has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// Ours now.
    Granted(Lease),
    /// Finish what is in hand, then give it back with [`MembershipHandle::release`].
    Drain(Lease),
    /// Not ours any more: stop at once, there is nothing to give back.
    Lost(Lease),
}

/// The other end of a [`Membership`].
#[derive(Debug)]
pub struct MembershipHandle {
    /// What happens. Unbounded, but never longer than a few notices per unit.
    pub events: mpsc::UnboundedReceiver<LeaseEvent>,
    /// Whether leases may be used right now.
    pub validity: LeaseValidity,
    releases: mpsc::UnboundedSender<Lease>,
}

impl MembershipHandle {
    /// Gives a lease back, after draining or because it turned out to be worthless.
    pub fn release(&self, lease: Lease) {
        // A seat that has ended holds nothing any more, so there is nobody to tell.
        let _ = self.releases.send(lease);
    }
}

/// One member's loop.
pub struct Membership<S> {
    store: S,
    config: MembershipConfig,
    leases: BTreeMap<UnitId, HeldLease>,
    validity: LeaseValidity,
    events: mpsc::UnboundedSender<LeaseEvent>,
    releases: mpsc::UnboundedReceiver<Lease>,
    /// Given back by their users, not yet in the store.
    pending_releases: Vec<Lease>,
    joined: bool,
    leaving: bool,
    /// The store knows that it is.
    leaving_recorded: bool,
    /// When to look at the store next, apart from beats and wake-ups.
    refresh_at: Option<Instant>,
    last_refresh: Instant,
    failures: u32,
    /// The last beat was. A server that only reads answers looks and is of no use.
    last_heartbeat_ok: bool,
    /// How often the membership has expired.
    expiry_count: u32,
}

impl<S: LeaseStore> Membership<S> {
    /// A seat and the handle through which its leases are used.
    pub fn new(store: S, config: MembershipConfig) -> Result<(Self, MembershipHandle), MembershipConfigError> {
        config.check()?;
        let (events, event_rx) = mpsc::unbounded_channel();
        let (release_tx, releases) = mpsc::unbounded_channel();
        let validity = LeaseValidity::new();
        let handle = MembershipHandle { events: event_rx, validity: validity.clone(), releases: release_tx };
        let membership = Self {
            store,
            config,
            leases: BTreeMap::new(),
            validity,
            events,
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
        };
        Ok((membership, handle))
    }

    /// Runs until `stop`, then drains: every lease is asked back, the member leaves when the last one has come.
    /// Errors of the store are outlived: while it is away nothing is granted, and when the membership may have expired
    /// everything held is dropped.
    pub async fn run(self, stop: CancellationToken) {
        self.run_until(stop.clone(), stop).await;
    }

    /// The same for whoever needs its place for longer than its leases: it drains from `stop` on, and leaves when `leave` says so as well,
    /// unless its membership has expired by then.
    pub async fn run_until(mut self, stop: CancellationToken, leave: CancellationToken) {
        let (seen_tx, seen_rx) = watch::channel(WatchState::default());
        let (wakeup_tx, mut wakeup) = mpsc::channel(1);
        let mut watcher = JoinSet::new();
        watcher.spawn(watch_changes(self.store.clone(), seen_rx, wakeup_tx));
        let mut heartbeats = tokio::time::interval(self.config.heartbeat_interval);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // In order, so that a simulation with the same seed takes the same path. No arm is ready for ever.
                biased;
                () = stop.cancelled(), if !self.leaving => self.start_leaving().await,
                () = leave.cancelled(), if self.leaving && self.holds_no_leases() => break,
                () = tokio::time::sleep_until(self.validity.expires_at()), if !self.leases.is_empty() => self.drop_unconfirmed_leases(),
                _ = heartbeats.tick() => self.heartbeat(&seen_tx).await,
                Some(lease) = self.releases.recv() => self.release_returned(lease).await,
                Some(()) = wakeup.recv() => self.refresh(&seen_tx).await,
                () = sleep_until_some(self.refresh_at), if self.refresh_at.is_some() => self.refresh(&seen_tx).await,
            }
            // Whoever has lost its place has nothing to keep, and must not join again.
            if self.leaving && self.holds_no_leases() && (!self.joined || leave.is_cancelled()) {
                break;
            }
        }
        if let Err(error) = self.store.leave(&self.config.member).await {
            warn!(member = %self.config.member, %error, "left without being able to say so; the membership will expire");
        }
    }

    fn holds_no_leases(&self) -> bool {
        self.leases.is_empty() && self.pending_releases.is_empty()
    }

    /// Says that we are alive; joins if we are not a member.
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
                self.schedule_retry("heartbeat", &error);
            }
        }
    }

    /// Everything is gone; try to join at once.
    fn handle_expiry(&mut self) {
        self.expiry_count += 1;
        let (member, held, ttl) = (&self.config.member, self.leases.len(), self.config.ttl);
        match self.expiry_count {
            1 => warn!(%member, held, "membership expired; joining again"),
            times => warn!(
                %member, held, times, ?ttl,
                "membership expired again; joining again. Its beats come late: where the way to the store is slow, a longer time to \
                 live keeps its place (squall worker --expires-after)"
            ),
        }
        self.drop_all_leases();
        self.validity.expire();
        self.joined = false;
        self.pending_releases.clear();
        self.refresh_at = Some(Instant::now());
    }

    /// Too long without an answer: nothing may be used any more. The store may still have it as ours, so look at once.
    fn drop_unconfirmed_leases(&mut self) {
        self.drop_all_leases();
        self.refresh_at = Some(Instant::now());
    }

    fn drop_all_leases(&mut self) {
        for (unit, held) in std::mem::take(&mut self.leases) {
            self.send_event(LeaseEvent::Lost(Lease { unit, epoch: held.epoch }));
        }
    }

    /// Reads the space and does what the plan says.
    async fn refresh(&mut self, seen: &watch::Sender<WatchState>) {
        self.refresh_at = None;
        self.last_refresh = Instant::now();
        if !self.joined {
            // Boxed: beat and look call each other once.
            return Box::pin(self.heartbeat(seen)).await;
        }
        // In a crowd only those who may have to assign read everything. Who has just come does not know yet whether it is one.
        let member_count = seen.borrow().member_count;
        if member_count == 0 || member_count >= LARGE_GROUP_MEMBERS {
            let snapshot = match self.store.member_snapshot(&self.config.member).await {
                Ok(snapshot) => snapshot,
                Err(error) => return self.schedule_retry("member_snapshot", &error),
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
            Err(error) => return self.schedule_retry("snapshot", &error),
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
        if let Err(error) = self.apply_plan(plan, revision).await {
            self.schedule_retry("apply_plan", &error);
        } else if self.last_heartbeat_ok && std::mem::take(&mut self.failures) > 0 {
            info!(member = %self.config.member, "the store can be used again");
        }
    }

    async fn apply_plan(&mut self, plan: LeasePlan, revision: Revision) -> Result<(), StoreError> {
        self.refresh_at = plan.refresh_after.map(|wait| Instant::now() + wait);
        for lease in plan.drop {
            self.leases.remove(&lease.unit);
            self.send_event(LeaseEvent::Lost(lease));
        }
        for lease in plan.drain {
            self.drain(lease);
        }
        if !plan.orphaned.is_empty() {
            self.store.release(&self.config.member, &plan.orphaned).await?;
        }
        if let Some(assignment) = plan.new_assignment {
            // Whoever was faster has raised the revision, and the watcher wakes us for it.
            let accepted = self.store.assign(revision, &assignment).await?;
            debug!(member = %self.config.member, accepted, "assignment");
            return Ok(());
        }
        if plan.acquire.is_empty() || self.leaving {
            return Ok(());
        }
        match self.store.acquire(&self.config.member, &plan.acquire).await? {
            LeaseAcquireOutcome::Granted(grants) => {
                for (unit, epoch) in plan.acquire.into_iter().zip(grants) {
                    let Some(epoch) = epoch else { continue };
                    self.leases.insert(unit.clone(), HeldLease { epoch, draining: false });
                    self.send_event(LeaseEvent::Granted(Lease { unit, epoch }));
                }
            }
            LeaseAcquireOutcome::NotMember => self.handle_expiry(),
            LeaseAcquireOutcome::Paused => self.refresh_at = Some(Instant::now() + self.config.heartbeat_interval),
        }
        Ok(())
    }

    fn drain(&mut self, lease: Lease) {
        if let Some(held) = self.leases.get_mut(&lease.unit) {
            held.draining = true;
        }
        self.send_event(LeaseEvent::Drain(lease));
    }

    /// Leases come back in bunches; one step returns them all.
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
            // Released leases raise the revision, so everybody, this member too, looks again.
            Ok(_) => self.pending_releases.clear(),
            Err(error) => {
                // Not in `held`, so the next look finds them as strays and gives them back.
                self.pending_releases.clear();
                self.schedule_retry("release", &error);
            }
        }
    }

    async fn start_leaving(&mut self) {
        self.leaving = true;
        self.record_leaving().await;
        let leases: Vec<Lease> = self
            .leases
            .iter()
            .filter(|(_, held)| !held.draining)
            .map(|(unit, held)| Lease { unit: unit.clone(), epoch: held.epoch })
            .collect();
        for lease in leases {
            self.drain(lease);
        }
    }

    /// Until the store knows it, others would leave units to this member that it does not take.
    async fn record_leaving(&mut self) {
        match self.store.mark_leaving(&self.config.member).await {
            Ok(_) => self.leaving_recorded = true,
            Err(error) => self.schedule_retry("mark_leaving", &error),
        }
    }

    fn schedule_retry(&mut self, step: &str, error: &StoreError) {
        let wait = (RETRY_DELAY * 2u32.pow(self.failures.min(8))).min(self.config.heartbeat_interval);
        let (member, cause) = (&self.config.member, std::error::Error::source(error));
        // Once for each time that the store is away.
        match self.failures {
            0 => warn!(%member, step, %error, ?cause, "the store cannot be used; it is tried again"),
            _ => debug!(%member, step, %error, ?cause, "store step failed"),
        }
        self.failures += 1;
        self.refresh_at = Some(Instant::now() + wait);
    }

    fn send_event(&self, event: LeaseEvent) {
        // The handle is dropped only when nobody uses leases any more.
        let _ = self.events.send(event);
    }
}

/// What the last look showed, as far as the watcher has to know.
#[derive(Clone, Copy, Debug, Default)]
struct WatchState {
    revision: Revision,
    member_count: usize,
    /// Whether every change is of interest, or only those that a beat tells of.
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

/// Wakes the seat when the space changes; waits for it to have looked before watching again.
async fn watch_changes<S: LeaseStore>(store: S, mut seen: watch::Receiver<WatchState>, wakeup: mpsc::Sender<()>) {
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
        if store.wait_for_change(last_seen.revision, WATCH_TIMEOUT).await.is_err() {
            tokio::time::sleep(RETRY_DELAY * 4).await;
        }
        if wakeup.send(()).await.is_err() {
            return;
        }
    }
}
