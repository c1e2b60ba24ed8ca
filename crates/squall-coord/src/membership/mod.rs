//! One member's loop in a space: joins, beats, takes what is assigned to it, gives back what is not.
//! Refuses to use what it holds; it tells the owner of the [`SeatHandle`], who does and who gives leases back when done.

mod plan;
mod tenure;

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::plan::{Held, Plan, plan};
pub use self::tenure::Tenure;
use crate::{Acquired, Beat, Lease, MemberId, Revision, Store, StoreError, UnitId};

/// How long the watcher waits at the store before it asks again. Beats tell of changes too, so it may be long.
const WATCH: Duration = Duration::from_secs(20);
/// Below this many members everybody looks at every change at once.
const CROWD: usize = 50;
/// How much longer each further member makes everybody wait between two looks: changes among a thousand members come in
/// bursts, and everybody looking at each of them would be a million views.
const PER_MEMBER: Duration = Duration::from_millis(1);
/// In a crowd, whoever neither assigns nor waits for anything looks only when the assignment has changed, and otherwise after this
/// many beats with any change at all. Everybody looking at every arrival of a thousand would keep the server from hearing beats,
/// and members that are not heard expire and arrive again.
const BACK_ROW_BEATS: u32 = 10;
/// How soon a failed step is tried again; doubled up to the beat.
const RETRY: Duration = Duration::from_millis(50);

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct SeatConfig {
    /// Its name.
    pub member: MemberId,
    /// Everything there is to hold, the same for all members.
    pub units: Vec<UnitId>,
    /// Time between beats. Default 1 s.
    pub beat: Duration,
    /// How long the member lives without a beat; at least three beats. Default 3.5 s.
    pub ttl: Duration,
    /// How long a new member waits for others to arrive before units move to it. Default 250 ms.
    pub join_delay: Duration,
}

/// Timings that cannot work together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SeatConfigError {
    /// One late beat would already cost the membership.
    #[error("a member must live for at least three beats: {ttl:?} is less than 3 × {beat:?}")]
    ShortLife {
        /// Time between beats.
        beat: Duration,
        /// Life without a beat.
        ttl: Duration,
    },
    /// No time between beats.
    #[error("the time between beats must not be zero")]
    NoBeat,
}

impl SeatConfig {
    /// A member with default timings.
    pub fn new(member: MemberId, units: Vec<UnitId>) -> Self {
        Self {
            member,
            units,
            beat: Duration::from_secs(1),
            ttl: Duration::from_millis(3500),
            join_delay: Duration::from_millis(250),
        }
    }

    fn check(&self) -> Result<(), SeatConfigError> {
        match (self.beat, self.ttl) {
            (Duration::ZERO, _) => Err(SeatConfigError::NoBeat),
            (beat, ttl) if ttl < beat * 3 => Err(SeatConfigError::ShortLife { beat, ttl }),
            _ => Ok(()),
        }
    }
}

/// What the holder of leases has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Ours now.
    Granted(Lease),
    /// Finish what is in hand, then give it back with [`SeatHandle::release`].
    Drain(Lease),
    /// Not ours any more: stop at once, there is nothing to give back.
    Dropped(Lease),
}

/// The other end of a [`Seat`].
#[derive(Debug)]
pub struct SeatHandle {
    /// What happens. Unbounded, but never longer than a few notices per unit.
    pub notices: mpsc::UnboundedReceiver<Notice>,
    /// Whether leases may be used right now.
    pub tenure: Tenure,
    returns: mpsc::UnboundedSender<Lease>,
}

impl SeatHandle {
    /// Gives a lease back, after draining or because it turned out to be worthless.
    pub fn release(&self, lease: Lease) {
        // A seat that has ended holds nothing any more, so there is nobody to tell.
        let _ = self.returns.send(lease);
    }
}

/// One member's loop.
pub struct Seat<S> {
    store: S,
    config: SeatConfig,
    held: BTreeMap<UnitId, Held>,
    tenure: Tenure,
    notices: mpsc::UnboundedSender<Notice>,
    returns: mpsc::UnboundedReceiver<Lease>,
    /// Given back by their users, not yet in the store.
    returned: Vec<Lease>,
    joined: bool,
    retiring: bool,
    /// The store knows that it is.
    retired: bool,
    /// When to look at the store next, apart from beats and wake-ups.
    look_at: Option<Instant>,
    looked: Instant,
    failures: u32,
    /// The last beat was. A server that only reads answers looks and is of no use.
    heard: bool,
    /// How often the membership has expired.
    expired: u32,
}

impl<S: Store> Seat<S> {
    /// A seat and the handle through which its leases are used.
    pub fn new(store: S, config: SeatConfig) -> Result<(Self, SeatHandle), SeatConfigError> {
        config.check()?;
        let (notices, notice_rx) = mpsc::unbounded_channel();
        let (return_tx, returns) = mpsc::unbounded_channel();
        let tenure = Tenure::new();
        let handle = SeatHandle { notices: notice_rx, tenure: tenure.clone(), returns: return_tx };
        let seat = Self {
            store,
            config,
            held: BTreeMap::new(),
            tenure,
            notices,
            returns,
            returned: Vec::new(),
            joined: false,
            retiring: false,
            retired: false,
            look_at: None,
            looked: Instant::now(),
            failures: 0,
            heard: false,
            expired: 0,
        };
        Ok((seat, handle))
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
        let (seen_tx, seen_rx) = watch::channel(Seen::default());
        let (kick_tx, mut kick) = mpsc::channel(1);
        let mut watcher = JoinSet::new();
        watcher.spawn(watch_changes(self.store.clone(), seen_rx, kick_tx));
        let mut beats = tokio::time::interval(self.config.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // In order, so that a simulation with the same seed takes the same path. No arm is ready for ever.
                biased;
                () = stop.cancelled(), if !self.retiring => self.retire().await,
                () = leave.cancelled(), if self.retiring && self.is_free() => break,
                () = tokio::time::sleep_until(self.tenure.until()), if !self.held.is_empty() => self.distrust(),
                _ = beats.tick() => self.beat(&seen_tx).await,
                Some(lease) = self.returns.recv() => self.take_back(lease).await,
                Some(()) = kick.recv() => self.look(&seen_tx).await,
                () = until(self.look_at), if self.look_at.is_some() => self.look(&seen_tx).await,
            }
            // Whoever has lost its place has nothing to keep, and must not join again.
            if self.retiring && self.is_free() && (!self.joined || leave.is_cancelled()) {
                break;
            }
        }
        if let Err(error) = self.store.leave(&self.config.member).await {
            warn!(member = %self.config.member, %error, "left without being able to say so; the membership will expire");
        }
    }

    fn is_free(&self) -> bool {
        self.held.is_empty() && self.returned.is_empty()
    }

    /// Says that we are alive; joins if we are not a member.
    async fn beat(&mut self, seen: &watch::Sender<Seen>) {
        if self.retiring && !self.retired {
            self.tell_retired().await;
        }
        let sent = Instant::now();
        let (member, ttl) = (&self.config.member, self.config.ttl);
        let known = *seen.borrow();
        let outcome = if self.joined {
            self.store.beat(member, ttl).await
        } else {
            let joined = self.store.join(member, ttl).await;
            joined.map(|revision| Beat::Alive { revision, assigned: revision })
        };
        match outcome {
            Ok(Beat::Alive { revision, assigned }) => {
                self.tenure.extend(sent, ttl);
                self.heard = true;
                if !self.joined {
                    info!(member = %self.config.member, "joined");
                }
                let fresh = std::mem::replace(&mut self.joined, true);
                let patience = self.config.beat * if known.watching { 0 } else { BACK_ROW_BEATS };
                let news = revision != known.revision && self.looked.elapsed() >= patience;
                if !fresh || news || assigned > known.revision || self.failures > 0 {
                    self.look(seen).await;
                }
            }
            Ok(Beat::Gone) => self.lose(),
            Err(error) => {
                self.heard = false;
                self.failed("beat", &error);
            }
        }
    }

    /// Everything is gone; try to join at once.
    fn lose(&mut self) {
        self.expired += 1;
        let (member, held, ttl) = (&self.config.member, self.held.len(), self.config.ttl);
        match self.expired {
            1 => warn!(%member, held, "membership expired; joining again"),
            times => warn!(
                %member, held, times, ?ttl,
                "membership expired again; joining again. Its beats come late: where the way to the store is slow, a longer time to \
                 live keeps its place (squall worker --expires-after)"
            ),
        }
        self.drop_all();
        self.tenure.end();
        self.joined = false;
        self.returned.clear();
        self.look_at = Some(Instant::now());
    }

    /// Too long without an answer: nothing may be used any more. The store may still have it as ours, so look at once.
    fn distrust(&mut self) {
        self.drop_all();
        self.look_at = Some(Instant::now());
    }

    fn drop_all(&mut self) {
        for (unit, held) in std::mem::take(&mut self.held) {
            self.notify(Notice::Dropped(Lease { unit, epoch: held.epoch }));
        }
    }

    /// Reads the space and does what the plan says.
    async fn look(&mut self, seen: &watch::Sender<Seen>) {
        self.look_at = None;
        self.looked = Instant::now();
        if !self.joined {
            // Boxed: beat and look call each other once.
            return Box::pin(self.beat(seen)).await;
        }
        // In a crowd only those who may have to assign read everything. Who has just come does not know yet whether it is one.
        let known = seen.borrow().members;
        if known == 0 || known >= CROWD {
            let look = match self.store.look(&self.config.member).await {
                Ok(look) => look,
                Err(error) => return self.failed("look", &error),
            };
            if look.members >= CROWD && !plan::may_assign(look.before) {
                let waits = look.assigned.iter().any(|unit| !self.held.contains_key(unit));
                let watching = waits || plan::in_front(look.before);
                seen.send_replace(Seen { revision: look.revision, members: look.members, watching });
                let plan = plan::follow(&look, &self.config.member, &self.held);
                return self.act(plan, look.revision).await;
            }
        }
        let view = match self.store.view().await {
            Ok(view) => view,
            Err(error) => return self.failed("view", &error),
        };
        seen.send_replace(Seen { revision: view.revision, members: view.members.len(), watching: true });
        let (member, units) = (&self.config.member, &self.config.units);
        let plan = plan(&view, member, units, self.config.join_delay, &self.held);
        self.act(plan, view.revision).await;
    }

    async fn act(&mut self, plan: Option<Plan>, revision: Revision) {
        let Some(plan) = plan else { return self.lose() };
        if let Err(error) = self.follow(plan, revision).await {
            self.failed("step", &error);
        } else if self.heard && std::mem::take(&mut self.failures) > 0 {
            info!(member = %self.config.member, "the store can be used again");
        }
    }

    async fn follow(&mut self, plan: Plan, revision: Revision) -> Result<(), StoreError> {
        self.look_at = plan.look_again.map(|wait| Instant::now() + wait);
        for lease in plan.drop {
            self.held.remove(&lease.unit);
            self.notify(Notice::Dropped(lease));
        }
        for lease in plan.drain {
            self.drain(lease);
        }
        if !plan.strays.is_empty() {
            self.store.release(&self.config.member, &plan.strays).await?;
        }
        if let Some(assignment) = plan.assign {
            // Whoever was faster has raised the revision, and the watcher wakes us for it.
            let done = self.store.assign(revision, &assignment).await?;
            debug!(member = %self.config.member, done, "assignment");
            return Ok(());
        }
        if plan.acquire.is_empty() || self.retiring {
            return Ok(());
        }
        match self.store.acquire(&self.config.member, &plan.acquire).await? {
            Acquired::Units(grants) => {
                for (unit, epoch) in plan.acquire.into_iter().zip(grants) {
                    let Some(epoch) = epoch else { continue };
                    self.held.insert(unit.clone(), Held { epoch, draining: false });
                    self.notify(Notice::Granted(Lease { unit, epoch }));
                }
            }
            Acquired::Gone => self.lose(),
            Acquired::Closed => self.look_at = Some(Instant::now() + self.config.beat),
        }
        Ok(())
    }

    fn drain(&mut self, lease: Lease) {
        if let Some(held) = self.held.get_mut(&lease.unit) {
            held.draining = true;
        }
        self.notify(Notice::Drain(lease));
    }

    /// Leases come back in bunches; one step returns them all.
    async fn take_back(&mut self, first: Lease) {
        let mut next = Some(first);
        while let Some(lease) = next {
            if self.held.get(&lease.unit).is_some_and(|held| held.epoch == lease.epoch) {
                self.held.remove(&lease.unit);
                self.returned.push(lease);
            }
            next = self.returns.try_recv().ok();
        }
        match self.store.release(&self.config.member, &self.returned).await {
            // Released leases raise the revision, so everybody, this member too, looks again.
            Ok(_) => self.returned.clear(),
            Err(error) => {
                // Not in `held`, so the next look finds them as strays and gives them back.
                self.returned.clear();
                self.failed("release", &error);
            }
        }
    }

    async fn retire(&mut self) {
        self.retiring = true;
        self.tell_retired().await;
        let leases: Vec<Lease> = self
            .held
            .iter()
            .filter(|(_, held)| !held.draining)
            .map(|(unit, held)| Lease { unit: unit.clone(), epoch: held.epoch })
            .collect();
        for lease in leases {
            self.drain(lease);
        }
    }

    /// Until the store knows it, others would leave units to this member that it does not take.
    async fn tell_retired(&mut self) {
        match self.store.retire(&self.config.member).await {
            Ok(_) => self.retired = true,
            Err(error) => self.failed("retire", &error),
        }
    }

    fn failed(&mut self, step: &str, error: &StoreError) {
        let wait = (RETRY * 2u32.pow(self.failures.min(8))).min(self.config.beat);
        let (member, cause) = (&self.config.member, std::error::Error::source(error));
        // Once for each time that the store is away.
        match self.failures {
            0 => warn!(%member, step, %error, ?cause, "the store cannot be used; it is tried again"),
            _ => debug!(%member, step, %error, ?cause, "store step failed"),
        }
        self.failures += 1;
        self.look_at = Some(Instant::now() + wait);
    }

    fn notify(&self, notice: Notice) {
        // The handle is dropped only when nobody uses leases any more.
        let _ = self.notices.send(notice);
    }
}

/// What the last look showed, as far as the watcher has to know.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    revision: Revision,
    members: usize,
    /// Whether every change is of interest, or only those that a beat tells of.
    watching: bool,
}

impl Seen {
    fn pause(self) -> Duration {
        let members = u32::try_from(self.members.saturating_sub(CROWD)).unwrap_or(u32::MAX);
        PER_MEMBER.saturating_mul(members)
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Wakes the seat when the space changes; waits for it to have looked before watching again.
async fn watch_changes<S: Store>(store: S, mut seen: watch::Receiver<Seen>, kick: mpsc::Sender<()>) {
    loop {
        if seen.changed().await.is_err() {
            return;
        }
        let known = *seen.borrow_and_update();
        if !known.watching {
            continue;
        }
        if !known.pause().is_zero() {
            tokio::time::sleep(known.pause()).await;
        }
        if store.changed(known.revision, WATCH).await.is_err() {
            tokio::time::sleep(RETRY * 4).await;
        }
        if kick.send(()).await.is_err() {
            return;
        }
    }
}
