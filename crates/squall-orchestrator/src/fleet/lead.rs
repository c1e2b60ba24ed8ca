//! The leader of a fleet: takes the run from phase to phase, applies its stop rules, and writes down how it ended. Any number of
//! orchestrators may be there; one holds the lead, and when it dies the next takes the run up from the record and the savings.

use squall_coord::{
    Cell, MemberId, Notice, PoolStore, RunRecord, RunStore, Seat, SeatConfig, SeatConfigError, StoreError, Unit,
};
use squall_engine::Schedule;
use squall_metrics::RunView;
use squall_model::{
    Arrivals, Bundle, CommandType, FleetEvent, FleetFacts, Generator, Load, LoadModel, PhaseEvent, Profile, RunFacts,
    RunOrder, RunPhase, ShareSet, StopReason,
};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Fleet, FleetError, Follower, LEAD, WorkerInfo,
    board::{Board, Scene},
    follow::CrewState,
    hooks::{LONGEST_TEAR_DOWN, Progress, Which},
    rations::{Rations, UsedUp},
    seconds::Seconds,
    steer::{phase_of, read_order, starting, text},
};
use crate::{
    Judge,
    run::{Extent, remedy, saturation},
};

/// How an orchestrator behaves.
#[derive(Debug, Clone)]
pub struct OrchestratorConfig {
    pub id: String,
    /// Time between beats.
    pub beat: Duration,
    /// How long it leads without one.
    pub ttl: Duration,
    /// Time between two looks at the run.
    pub look: Duration,
    /// Between the last worker's readiness and the first start.
    pub lead_time: Duration,
}

impl OrchestratorConfig {
    pub fn new(id: impl Into<String>) -> OrchestratorConfig {
        OrchestratorConfig {
            id: id.into(),
            beat: Duration::from_secs(1),
            ttl: Duration::from_millis(3500),
            look: Duration::from_millis(200),
            lead_time: Duration::from_millis(500),
        }
    }
}

/// How often what was merged is kept for a successor.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How often what the dead had borrowed is given back; whoever finds a pool empty does it at once.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// How long after the grace a run waits for the last deltas of workers that are alive.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// How long a start waits until every share is held.
const SETTLING: Duration = Duration::from_secs(10);

/// A run without any worker is given up after this.
const ALONE: Duration = Duration::from_secs(30);

/// One orchestrator.
pub struct Orchestrator<C: Cell> {
    fleet: Fleet<C>,
    config: OrchestratorConfig,
    /// This life of it.
    member: MemberId,
    led: Option<Led<C>>,
    /// When it last gave back what the dead had borrowed.
    swept: Instant,
}

/// A run that is being led.
struct Led<C: Cell> {
    /// Which one; see [`RunOrder::run`].
    run: String,
    bundle_name: String,
    bundle: Bundle,
    follower: Follower<C>,
    board: Board<C>,
    seconds: Seconds,
    rations: Rations,
    /// What is shown could not be written last time; said once.
    hidden: bool,
    judge: Judge,
    saved: Instant,
    /// What a successor would know by the last saving.
    saved_knowing: (usize, usize),
    /// Events that were logged.
    told: usize,
    alone_since: Option<Instant>,
    /// Everybody is ready and not every share is held.
    unheld_since: Option<Instant>,
    /// Workers were told to stop at this time of the run.
    stopped_at: Option<Duration>,
}

impl<C: Cell> Orchestrator<C> {
    pub fn new(cell: C, config: OrchestratorConfig) -> Orchestrator<C> {
        let member = MemberId::new(format!("{}.{}", config.id, MemberId::unique()));
        Orchestrator { fleet: Fleet::new(cell), config, member, led: None, swept: Instant::now() }
    }

    /// Leads whenever it holds the lead, until `stop`; then hands it over.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), SeatConfigError> {
        let seat = SeatConfig {
            beat: self.config.beat,
            ttl: self.config.ttl,
            ..SeatConfig::new(self.member.clone(), vec![Unit::new(LEAD)])
        };
        let (seat, mut handle) = Seat::new(self.fleet.cell().orchestrators(), seat)?;
        let seat = tokio::spawn(seat.run(stop.clone()));
        let mut looks = tokio::time::interval(self.config.look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leading = false;
        loop {
            tokio::select! {
                notice = handle.notices.recv() => match notice {
                    Some(Notice::Granted(_)) => {
                        info!(orchestrator = self.config.id, "leads");
                        leading = true;
                    }
                    Some(Notice::Drain(lease)) => {
                        leading = false;
                        self.led = None;
                        handle.release(lease);
                    }
                    Some(Notice::Dropped(_)) => {
                        leading = false;
                        self.led = None;
                    }
                    None => break,
                },
                _ = looks.tick(), if leading && handle.tenure.valid() => {
                    if let Err(error) = Box::pin(self.look()).await {
                        debug!(%error, "a look at the run failed");
                    }
                }
            }
        }
        let _ = seat.await;
        Ok(())
    }

    /// One look at the run and one step, if one is due.
    async fn look(&mut self) -> Result<(), FleetError> {
        if self.swept.elapsed() > SWEEP_EVERY {
            self.swept = Instant::now();
            match self.fleet.cell().pools().sweep().await {
                Err(error @ StoreError::Unreachable(_)) => return Err(error.into()),
                // Somebody else's value in a pool's keys is that pool's trouble, and said to whoever uses it.
                Err(error) => debug!(%error, "a pool cannot be swept"),
                Ok(_) => {}
            }
        }
        let run = self.fleet.cell().run();
        let record = run.record().await?;
        let phase = phase_of(&record);
        if phase == RunPhase::Idle {
            self.led = None;
            return Ok(());
        }
        let order = match read_order(&record) {
            Ok(order) => order,
            Err(error) => {
                // Nobody can make sense of it, so nobody is working on it: leave the fleet usable.
                warn!(%error, "the run is given up");
                run.replace(&record, RunPhase::Idle.name(), "", false).await?;
                return Ok(());
            }
        };
        if self.led.as_ref().is_none_or(|led| led.follower.epoch() != record.epoch || led.run != order.run) {
            self.led = self.take_up(&record, &order).await?;
        }
        let Some(led) = &mut self.led else { return Ok(()) };
        let workers = self.fleet.workers().await?;
        let elapsed = elapsed(&record, &order);
        led.follower.look_at(&workers, elapsed).await?;
        led.follower.follow().await?;
        led.show(phase, &order, elapsed, &workers).await;
        let used_up = led.rations.look(&self.fleet, &mut led.follower, elapsed).await?;
        for (at_s, text) in &led.follower.crew().events[led.told..] {
            info!(epoch = record.epoch, at_s, "{text}");
        }
        led.told = led.follower.crew().events.len();
        match phase {
            RunPhase::Running if used_up => self.fleet.stop(StopReason::Completed, false, None).await.map(drop),
            RunPhase::Preparing => led.prepare(&self.fleet, &self.config, &record, order, &workers).await,
            RunPhase::Running => led.watch(&self.fleet, &order, elapsed, &workers).await,
            RunPhase::Stopping => led.finish(&self.fleet, &record, &order, elapsed, &workers).await,
            RunPhase::Idle => Ok(()),
        }
    }

    /// Ends a run that nobody can go on with, so that the fleet is usable.
    async fn give_up(&self, record: &RunRecord, why: &str) -> Result<Option<Led<C>>, FleetError> {
        warn!(epoch = record.epoch, why, "the run is given up");
        self.fleet.cell().run().replace(record, RunPhase::Idle.name(), "", false).await?;
        Ok(None)
    }

    async fn take_up(&self, record: &RunRecord, order: &RunOrder) -> Result<Option<Led<C>>, FleetError> {
        let bundle = match self.fleet.bundle(&order.bundle).await {
            Ok(Some(bundle)) => bundle,
            // It may come back, or let us in again.
            Err(FleetError::Store(error @ (StoreError::Unreachable(_) | StoreError::Refused(_)))) => {
                return Err(error.into());
            }
            // Nobody can read it, so nobody works on it: leave the fleet usable.
            other => {
                let error = other.err().map_or_else(|| "it is not in the store any more".to_owned(), |e| e.to_string());
                return self.give_up(record, &format!("its plan cannot be read: {error}")).await;
            }
        };
        let saved = self.fleet.cell().run().saved(record.epoch).await?;
        if saved.is_some_and(|(_, made)| Follower::<C>::view_of(&made).is_none()) {
            return self.give_up(record, "what was kept of it cannot be read").await;
        }
        info!(epoch = record.epoch, plan = bundle.plan.name, "takes the run up");
        let mut follower = Follower::open(self.fleet.cell(), record.epoch, &bundle.plan, 1).await?;
        let told = follower.crew().events.len();
        follower.led_by(&self.config.id, self.member.as_str(), elapsed(record, order));
        let anew = phase_of(record) == RunPhase::Preparing;
        Ok(Some(Led {
            run: order.run.clone(),
            bundle_name: order.bundle.clone(),
            judge: Judge::new(&bundle.plan),
            rations: Rations::new(&bundle),
            bundle,
            board: Board::new(self.fleet.clone(), record.epoch, anew),
            seconds: Seconds::after(follower.view()),
            hidden: false,
            follower,
            saved: Instant::now(),
            saved_knowing: (0, 0),
            told,
            alone_since: None,
            unheld_since: None,
            stopped_at: None,
        }))
    }
}

/// The time of the run by the store's clock; zero before it has started.
fn elapsed(record: &RunRecord, order: &RunOrder) -> Duration {
    order.start_at_ms.map_or(Duration::ZERO, |start| Duration::from_millis(record.now_ms.saturating_sub(start)))
}

impl<C: Cell> Led<C> {
    /// Shows the run to those who look into the store. That it could not is no fault of the run.
    async fn show(&mut self, phase: RunPhase, order: &RunOrder, elapsed: Duration, workers: &[WorkerInfo]) {
        let closed = matches!(self.bundle.plan.load.model, LoadModel::Closed { .. });
        let ends = phase == RunPhase::Stopping;
        let level = if closed && !ends { (order.profile.level(elapsed) + 1e-9).floor() as u64 } else { 0 };
        let source = match ends {
            true => "stop_test",
            false if order.profile == *self.bundle.plan.load.model.profile() => "start_test",
            false => "change_users",
        };
        let scene = Scene { level, running: phase == RunPhase::Running && !elapsed.is_zero(), source, workers };
        let users = self.board.show(scene).await;
        let (run, epoch) = (self.board.run(), self.follower.epoch());
        let seconds = self.seconds.show(&run, epoch, order.start_at_ms.unwrap_or(0), self.follower.view()).await;
        if let Err(error) = users.and(seconds)
            && !std::mem::replace(&mut self.hidden, true)
        {
            warn!(epoch, %error, "users and seconds cannot be shown in the store; the run goes on");
        }
    }

    /// Waits until workers have built their users, then names the instant at which all start.
    async fn prepare(
        &mut self,
        fleet: &Fleet<C>,
        config: &OrchestratorConfig,
        record: &RunRecord,
        mut order: RunOrder,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let ready = workers.iter().filter(|worker| worker.ready == record.epoch).count();
        // Whoever started it counts on everybody who is there; those who come later need not be able to.
        if let Some(worker) = workers.iter().find(|worker| worker.failed == record.epoch) {
            let message = format!("worker {} cannot carry out the run: {}", worker.id, worker.message);
            fleet.stop(StopReason::Aborted, false, Some(message)).await?;
            return Ok(());
        }
        let missing: Vec<&str> = order
            .expected
            .iter()
            .filter(|id| workers.iter().any(|worker| worker.id == **id && worker.ready != record.epoch))
            .map(String::as_str)
            .collect();
        let late = record.now_ms >= order.ready_by_ms;
        if !(ready > 0 && missing.is_empty() || late) {
            return Ok(());
        }
        if late && ready * 2 < order.expected.len().max(1) {
            let message =
                format!("{ready} of {} workers were ready in time; not: {}", order.expected.len(), missing.join(", "));
            fleet.stop(StopReason::Aborted, false, Some(message)).await?;
            return Ok(());
        }
        if self.bundle.hooks && !self.is_set_up(fleet, record, &order, workers).await? {
            return Ok(());
        }
        // Shares may still be with somebody who is gone; what is due of them at the start would be late.
        let at_work = workers.iter().filter(|worker| worker.ready == record.epoch);
        let held: ShareSet = at_work.flat_map(|worker| worker.held.iter().collect::<Vec<_>>()).collect();
        if held != ShareSet::ALL && self.unheld_since.get_or_insert_with(Instant::now).elapsed() < SETTLING {
            return Ok(());
        }
        let Ok(next) = RunPhase::Preparing.step(PhaseEvent::Ready) else { return Ok(()) };
        // Before anything is sent: whoever comes next must not think that these have only just joined.
        if !self.save().await? {
            return Ok(());
        }
        order.start_at_ms = Some(record.now_ms + config.lead_time.as_millis() as u64);
        if fleet.cell().run().replace(record, next.name(), &text(&order), false).await?.is_some() {
            info!(epoch = record.epoch, workers = ready, "starts");
            fleet.wake(CommandType::StartTest, record.epoch, starting(&order, &self.bundle)).await;
        }
        Ok(())
    }

    /// Whether the scenario's set-up is done; has it done, or ends a run that cannot be set up.
    async fn is_set_up(
        &self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunOrder,
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        match Which::SetUp.progress(fleet, record.epoch, order, workers).await? {
            Progress::NotAsked => Which::SetUp.ask(fleet, record, (order, &self.bundle), workers).await.map(|_| false),
            Progress::UnderWay => Ok(false),
            Progress::Done => Ok(true),
            Progress::Failed(reason) => {
                fleet.stop(StopReason::Aborted, false, Some(reason)).await?;
                Ok(false)
            }
        }
    }

    /// Whether what was set up is torn down, as far as it can be.
    async fn is_torn_down(
        &mut self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunOrder,
        (elapsed, waited): (Duration, Duration),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let patient = waited < self.bundle.limits.grace + LONGEST_TEAR_DOWN
            && !order.stop.as_ref().is_some_and(|stop| stop.abort);
        match Which::SetUp.progress(fleet, record.epoch, order, workers).await? {
            Progress::Done => {}
            // Stopped meanwhile: what it is making has to be torn down.
            Progress::UnderWay if patient => return Ok(false),
            Progress::UnderWay => {
                self.tell_once(
                    elapsed,
                    "set-up was not waited for any longer; what it makes is not torn down".to_owned(),
                );
                return Ok(true);
            }
            Progress::Failed(reason) => {
                if order.stop.as_ref().is_none_or(|stop| stop.message.as_ref() != Some(&reason)) {
                    self.tell_once(elapsed, reason);
                }
                return Ok(true);
            }
            Progress::NotAsked => return Ok(true),
        }
        let trouble = match Which::TearDown.progress(fleet, record.epoch, order, workers).await? {
            Progress::Done => return Ok(true),
            Progress::UnderWay if waited < self.bundle.limits.grace + LONGEST_TEAR_DOWN => return Ok(false),
            Progress::NotAsked if Which::TearDown.ask(fleet, record, (order, &self.bundle), workers).await? => {
                return Ok(false);
            }
            Progress::NotAsked => "tear-down did not run: no worker is left".to_owned(),
            Progress::UnderWay => "tear-down was not waited for any longer".to_owned(),
            Progress::Failed(reason) => reason,
        };
        self.tell_once(elapsed, trouble);
        Ok(true)
    }

    /// Tells of something that is found at every look.
    fn tell_once(&mut self, elapsed: Duration, text: String) {
        if !self.follower.crew().events.iter().any(|(_, told)| *told == text) {
            self.follower.happened(elapsed, text);
        }
    }

    /// Looks at thresholds and at the end.
    async fn watch(
        &mut self,
        fleet: &Fleet<C>,
        order: &RunOrder,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let end = end_of(&self.bundle, order);
        let loading = elapsed < end;
        if let Some(threshold) = self.judge.look(self.follower.view(), loading).filter(|_| loading) {
            let text = threshold.to_string();
            self.follower.happened(elapsed, format!("threshold {text} was breached"));
            fleet.stop(StopReason::Threshold, false, None).await?;
            return Ok(());
        }
        let epoch = self.follower.epoch();
        let working = workers.iter().any(|worker| worker.ready == epoch && worker.done != epoch);
        let alive = workers.iter().any(|worker| worker.is_healthy() && worker.failed != epoch);
        if alive {
            self.alone_since = None;
        } else if self.alone_since.get_or_insert_with(Instant::now).elapsed() > ALONE {
            let message = match workers.iter().find(|worker| worker.failed == epoch) {
                Some(worker) => format!("no worker is left that can carry out the run: {}", worker.message),
                None => "every worker was lost".to_owned(),
            };
            self.follower.happened(elapsed, message.clone());
            fleet.stop(StopReason::Aborted, true, Some(message)).await?;
            return Ok(());
        }
        if !loading || (!working && workers.iter().any(|worker| worker.done == epoch)) {
            fleet.stop(StopReason::Completed, false, None).await?;
        } else if self.saved.elapsed() > SAVE_EVERY || self.follower.known() != self.saved_knowing {
            self.save().await?;
        }
        Ok(())
    }

    async fn save(&mut self) -> Result<bool, StoreError> {
        (self.saved, self.saved_knowing) = (Instant::now(), self.follower.known());
        self.follower.keep(&self.bundle_name).await?;
        self.follower.save().await
    }

    /// Waits for the last words of everybody alive, then writes down how it was.
    async fn finish(
        &mut self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunOrder,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let epoch = self.follower.epoch();
        let asked_ms = order.stop.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms);
        let waited = Duration::from_millis(record.now_ms.saturating_sub(asked_ms));
        self.stopped_at.get_or_insert(elapsed.saturating_sub(waited));
        let speaking = workers.iter().any(|worker| worker.ready == epoch && worker.done != epoch);
        if speaking && waited < self.bundle.limits.grace + LAST_WORDS {
            return Ok(());
        }
        if self.bundle.hooks && !self.is_torn_down(fleet, record, order, (elapsed, waited), workers).await? {
            return Ok(());
        }
        self.follower.follow().await?;
        self.follower.close(elapsed, order.start_at_ms.is_some()).await?;
        if !self.board.is_settled() && !self.hidden {
            // Users are still being taken down; the next look goes on with it.
            return Ok(());
        }
        // What came too late for its own second is in the finished view only.
        let Some(view) = Follower::<C>::view_of(&self.follower.made()) else { return Ok(()) };
        let run = fleet.cell().run();
        let made = self.bundle.plan.load.warm_up.is_zero().then_some(view.engine.iterations);
        let used_up = self.rations.end(&run, epoch, made).await?.filter(|_| order.is_complete());
        let drawn = self.rations.begun(&run, epoch).await?;
        let begun = drawn.or_else(|| self.due_by(elapsed, order).map(|due| due.saturating_sub(view.engine.dropped)));
        let facts = self.facts(&view, order, elapsed, (used_up, begun));
        if !self.follower.save().await? {
            // Somebody else saved meanwhile; look again.
            return Ok(());
        }
        let notes = [
            ("facts".to_owned(), serde_json::to_string(&facts).expect("facts are text and numbers")),
            ("bundle".to_owned(), self.bundle_name.clone()),
        ];
        run.note(epoch, &notes).await?;
        let next = RunPhase::Stopping.step(PhaseEvent::Drained).unwrap_or_default();
        if run.replace(record, next.name(), &record.order, false).await?.is_some() {
            info!(epoch, requests = view.all.requests, "the run is over");
        }
        Ok(())
    }

    /// `begun`: iterations that can have begun, if that is known.
    fn facts(
        &self,
        view: &RunView,
        order: &RunOrder,
        elapsed: Duration,
        (used_up, begun): (Option<UsedUp>, Option<u64>),
    ) -> RunFacts {
        let (plan, crew) = (&self.bundle.plan, self.follower.crew());
        let planned = end_of(&self.bundle, order);
        let stopped_at = self.stopped_at.unwrap_or(elapsed).min(planned);
        let active = used_up.and_then(|run| run.last_end).unwrap_or(stopped_at);
        let stop = order.stop.as_ref().map_or(StopReason::Completed, |stop| match stop.abort {
            true => StopReason::Aborted,
            false => stop.reason,
        });
        let threads: u32 = crew.members.values().map(|member| member.threads).sum();
        let cpu_s: f64 = crew.members.values().map(|member| member.cpu_s - member.first_cpu_s).sum();
        let max_rss_bytes = crew.members.values().map(|member| member.max_rss_bytes).max().unwrap_or(0);
        let extent = Extent { elapsed, cpu_s, threads };
        let lost = crew.members.values().filter(|member| member.state == CrewState::Lost).count();
        let saturated_because = saturation(plan, view, extent, remedy(stop, lost));
        let unreported = self.unreported(view, begun);
        let announced: u64 = crew.members.keys().map(|instance| self.follower.lost_at_most(*instance)).sum();
        let lost_at_most = announced.min(unreported);
        let events = crew.events.iter().map(|(t_s, text)| FleetEvent { t_s: *t_s, text: text.clone() });
        let stop_message = order.stop.as_ref().and_then(|stop| stop.message.clone());
        let events = events.chain(stop_message.map(|text| FleetEvent { t_s: active.as_secs_f64(), text }));
        RunFacts {
            started_unix_ms: order.start_at_ms.unwrap_or(0),
            active,
            elapsed,
            stop,
            thresholds: self.judge.clone().verdicts(view, active.saturating_sub(plan.load.warm_up)),
            generator: Generator {
                threads,
                cpu_s,
                max_rss_bytes,
                saturated: !saturated_because.is_empty(),
                saturated_because,
            },
            lost_at_most,
            fleet: Some(FleetFacts {
                workers: self.follower.worker_facts(active, unreported),
                events: events.collect(),
                missed_starts: used_up.map_or_else(|| self.missed_starts(view, order, active), |run| run.missed),
            }),
        }
    }

    /// Most requests that iterations can have made and nobody has reported, if `begun` of them can have begun: nobody begins one twice.
    fn unreported(&self, view: &RunView, begun: Option<u64>) -> u64 {
        let (Some(each), Some(begun)) = (self.follower.each(), begun) else { return u64::MAX };
        let accounting = view.accounting();
        begun.saturating_mul(each).saturating_sub(accounting.recorded.saturating_sub(accounting.unsent))
    }

    /// Starts of an open load that were due before `at`, its warm-up included. Where somebody has changed the rate it depends on when each
    /// worker heard of it.
    fn due_by(&self, at: Duration, order: &RunOrder) -> Option<u64> {
        let load = &self.bundle.plan.load;
        let is_open = matches!(load.model, LoadModel::Open { .. });
        let as_planned = !self.bundle.is_several() && order.profile == *load.model.profile();
        (is_open && as_planned).then(|| due_before(load, &order.profile, self.bundle.plan.seed, at))
    }

    /// Starts that were due and are not in the report, for whatever reason.
    fn missed_starts(&self, view: &RunView, order: &RunOrder, active: Duration) -> u64 {
        let mut planned = 0;
        for (load, profile) in loads(&self.bundle, order) {
            // Where users decide when to start, among others or alone, nobody can say what was due.
            if !matches!(load.model, LoadModel::Open { .. }) {
                return 0;
            }
            let due = |at: Duration| due_before(load, profile, self.bundle.plan.seed, at);
            planned += due(active).saturating_sub(due(load.warm_up));
        }
        planned.saturating_sub(view.engine.iterations + view.engine.dropped)
    }
}

/// Starts of an open load that are due before `at`.
fn due_before(load: &Load, profile: &Profile, seed: u64, at: Duration) -> u64 {
    let arrivals = match load.model {
        LoadModel::Open { arrivals, .. } => arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    Schedule::due_before(profile, arrivals, load.iterations, seed, at)
}

/// The time of the run at which its load is over.
fn end_of(bundle: &Bundle, order: &RunOrder) -> Duration {
    let end = |(load, profile): (&Load, &Profile)| {
        // The users of a closed model take their iterations as they can; the clock of an open one knows when the last is due.
        let of_clock = load.iterations.filter(|_| matches!(load.model, LoadModel::Open { .. }));
        of_clock.and_then(|n| profile.time_of_area(n as f64)).unwrap_or(profile.duration())
    };
    loads(bundle, order).into_iter().map(end).max().unwrap_or_default()
}

/// The loads of a run and how they go on: that of one scenario may have been changed.
fn loads<'a>(bundle: &'a Bundle, order: &'a RunOrder) -> Vec<(&'a Load, &'a Profile)> {
    match bundle.is_several() {
        true => bundle.together.iter().map(|load| (load, load.model.profile())).collect(),
        false => vec![(&bundle.plan.load, &order.profile)],
    }
}
