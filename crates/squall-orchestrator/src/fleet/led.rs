//! One run, as its leader takes it from phase to phase: waits for workers, applies the stop rules, and writes down how it ended. Every
//! change is a replacement of the record that it has read, so two leaders cannot both make it. Does not ask who leads.

use squall_coord::{FleetStores, RunRecord, RunStore, StoreError};
use squall_metrics::RunView;
use squall_model::{
    Bundle, CommandType, FleetEvent, FleetFacts, GeneratorStats, LoadModel, PhaseEvent, RunFacts, RunSpec, RunPhase,
    ShareSet, StopReason,
};
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::{
    Fleet, FleetError, Follower, OrchestratorConfig, WorkerInfo,
    board::{Board, Scene},
    due::{due_before, end_of, end_of_waiting, loads},
    follow::CrewState,
    hooks::{LONGEST_TEAR_DOWN, Progress, Which},
    rations::{Rations, load_end},
    seconds::Seconds,
    steer::{Ending, phase_of, starting, text},
    worker_info::not_ready,
};
use crate::run::{Extent, remedy, saturation};

/// How often what was merged is kept for a successor.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How long after the grace a run waits for the last deltas of workers that are alive.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// How long a start waits until every share is held.
const SETTLING: Duration = Duration::from_secs(10);

/// Workers end their load by clocks of their own, which may be so much ahead.
const CLOCKS: Duration = Duration::from_secs(3);

/// Round trips to the store between the naming of an instant and the last worker's knowing of it.
const ROUND_TRIPS: u32 = 4;

/// A worker that runs a hook is lost when it has not been heard for so long by a store that answers: after a stall nobody has been
/// heard yet.
const HOOK_LOST_AFTER: Duration = Duration::from_secs(5);

/// Who reports once a beat is not heard for so long only if there is nobody.
const NOBODY: Duration = Duration::from_secs(5);

/// A run without any worker is given up after this.
const ALONE: Duration = Duration::from_secs(30);

/// A run that is being led.
pub(super) struct Led<C: FleetStores> {
    /// Which one; see [`RunOrder::run`].
    pub(super) run: String,
    bundle_name: String,
    bundle: Bundle,
    pub(super) follower: Follower<C>,
    board: Board<C>,
    seconds: Seconds,
    pub(super) rations: Rations,
    /// What is shown could not be written last time.
    hidden: bool,
    /// That was said.
    hidden_told: bool,
    /// Since when the worker that runs a hook has not been heard, for each.
    unheard_since: [Option<Instant>; 2],
    saved: Instant,
    /// What a successor would know by the last saving.
    saved_knowing: (usize, usize),
    /// Events that were logged.
    pub(super) told: usize,
    alone_since: Option<Instant>,
    /// Everybody is ready and not every share is held.
    unheld_since: Option<Instant>,
    /// Workers were told to stop at this time of the run.
    stopped_at: Option<Duration>,
}

impl<C: FleetStores> Led<C> {
    /// Takes the run up with what `follower` knows of it, of which `told` events were logged.
    pub(super) fn new(
        fleet: &Fleet<C>,
        (record, order): (&RunRecord, &RunSpec),
        bundle: Bundle,
        (follower, told): (Follower<C>, usize),
    ) -> Result<Led<C>, FleetError> {
        let anew = phase_of(record)? == RunPhase::Preparing;
        Ok(Led {
            run: order.run.clone(),
            bundle_name: order.bundle.clone(),
            rations: Rations::new(&bundle),
            bundle,
            board: Board::new(fleet.clone(), record.epoch, anew),
            seconds: Seconds::after(follower.view()),
            hidden: false,
            hidden_told: false,
            unheard_since: [None; 2],
            follower,
            saved: Instant::now(),
            saved_knowing: (0, 0),
            told,
            alone_since: None,
            unheld_since: None,
            stopped_at: None,
        })
    }

    /// Shows the run to those who look into the store. That it could not is no fault of the run.
    pub(super) async fn show(&mut self, phase: RunPhase, order: &RunSpec, elapsed: Duration, workers: &[WorkerInfo]) {
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
        let shown = users.and(seconds);
        self.hidden = shown.is_err();
        if let Err(error) = shown
            && !std::mem::replace(&mut self.hidden_told, true)
        {
            warn!(epoch, %error, "users and seconds cannot be shown in the store; the run goes on");
        }
    }

    /// Waits until workers have built their users, then names the instant at which all start.
    pub(super) async fn prepare(
        &mut self,
        fleet: &Fleet<C>,
        config: &OrchestratorConfig,
        record: &RunRecord,
        mut order: RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let ready = workers.iter().filter(|worker| worker.ready == record.epoch).count();
        // Whoever started it counts on everybody who is there; those who come later need not be able to.
        if let Some(worker) = workers.iter().find(|worker| worker.failed == record.epoch) {
            let message = format!("worker {} cannot carry out the run: {}", worker.id, worker.message);
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
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
            let not_ready = not_ready(&order.expected, workers, record.epoch).join(", ");
            let message = format!("{ready} of {} workers were ready in time; not: {not_ready}", order.expected.len());
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
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
        // What was done since the record was read has taken its time, and workers need theirs to hear of it.
        let (run, asked) = (fleet.cell().run(), Instant::now());
        let latest = run.read_record().await?;
        if latest.revision != record.revision {
            return Ok(());
        }
        let lead_time = config.lead_time + ROUND_TRIPS * asked.elapsed();
        order.start_at_ms = Some(latest.now_ms + lead_time.as_millis() as u64);
        if run.compare_and_set(&latest, next.name(), &text(&order), false).await?.is_some() {
            info!(epoch = record.epoch, workers = ready, "starts");
            fleet.wake(CommandType::StartTest, record.epoch, starting(&order, &self.bundle)).await;
        }
        Ok(())
    }

    /// Ends the run; what is under way is finished.
    pub(super) async fn stop(
        &self,
        fleet: &Fleet<C>,
        reason: StopReason,
        message: Option<String>,
    ) -> Result<(), FleetError> {
        fleet.stop_run(&self.run, Ending { reason, abort: false, message }).await.map(drop)
    }

    /// Whether the scenario's set-up is done; has it done, or ends a run that cannot be set up.
    async fn is_set_up(
        &mut self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        match self.progress(Which::SetUp, fleet, order, workers).await? {
            Progress::NotAsked => Which::SetUp.ask(fleet, record, (order, &self.bundle), workers).await.map(|_| false),
            Progress::UnderWay => Ok(false),
            Progress::Done => Ok(true),
            Progress::Failed(reason) => {
                self.stop(fleet, StopReason::Aborted, Some(reason)).await?;
                Ok(false)
            }
        }
    }

    /// Whether what was set up is torn down, as far as it can be.
    async fn is_torn_down(
        &mut self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunSpec,
        (elapsed, waited): (Duration, Duration),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let patient = waited < self.bundle.limits.grace + LONGEST_TEAR_DOWN
            && !order.stop.as_ref().is_some_and(|stop| stop.abort);
        match self.progress(Which::SetUp, fleet, order, workers).await? {
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
        let trouble = match self.progress(Which::TearDown, fleet, order, workers).await? {
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

    /// How far a hook is.
    async fn progress(
        &mut self,
        which: Which,
        fleet: &Fleet<C>,
        order: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<Progress, FleetError> {
        let unheard = &mut self.unheard_since[which as usize];
        let lost = match which.is_heard(order, workers) {
            true => {
                *unheard = None;
                false
            }
            false => unheard.get_or_insert_with(Instant::now).elapsed() > HOOK_LOST_AFTER,
        };
        which.progress(fleet, self.follower.epoch(), order, lost).await
    }

    /// Tells of something that is found at every look.
    fn tell_once(&mut self, elapsed: Duration, text: String) {
        if !self.follower.crew().events.iter().any(|(_, told)| *told == text) {
            self.follower.happened(elapsed, text);
        }
    }

    /// Learns who is there, and merges and judges what they have shipped.
    pub(super) async fn follow(
        &mut self,
        phase: RunPhase,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        self.follower.set_loading(phase == RunPhase::Running && self.is_loading(order, elapsed, workers));
        self.follower.look_at(workers, elapsed).await?;
        self.follower.follow().await?;
        Ok(())
    }

    /// Whether load is still to be made. A run of so many iterations makes them all: what waits for a user when the last was due is made
    /// by those who have it.
    fn is_loading(&self, order: &RunSpec, elapsed: Duration, workers: &[WorkerInfo]) -> bool {
        let waits = || self.is_working(workers) && elapsed < end_of_waiting(&self.bundle, order);
        elapsed < end_of(&self.bundle, order) || waits()
    }

    fn is_working(&self, workers: &[WorkerInfo]) -> bool {
        let epoch = self.follower.epoch();
        workers.iter().any(|worker| worker.ready == epoch && worker.done != epoch)
    }

    /// Looks at thresholds and at the end.
    pub(super) async fn watch(
        &mut self,
        fleet: &Fleet<C>,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let (epoch, loading) = (self.follower.epoch(), self.is_loading(order, elapsed, workers));
        let working = self.is_working(workers);
        if let Some(threshold) = self.follower.judge().breached().filter(|_| loading) {
            let text = threshold.to_string();
            self.follower.happened(elapsed, format!("threshold {text} was breached"));
            return self.stop(fleet, StopReason::Threshold, None).await;
        }
        let alive = workers.iter().any(|worker| worker.is_healthy() && worker.failed != epoch);
        if alive {
            self.alone_since = None;
        } else if self.alone_since.get_or_insert_with(Instant::now).elapsed() > ALONE {
            let message = match workers.iter().find(|worker| worker.failed == epoch) {
                Some(worker) => format!("no worker is left that can carry out the run: {}", worker.message),
                None => "every worker was lost".to_owned(),
            };
            let stop = Ending { reason: StopReason::Aborted, abort: true, message: Some(message) };
            return fleet.stop_run(&self.run, stop).await.map(drop);
        }
        if !loading && self.alone_since.is_some_and(|since| since.elapsed() > NOBODY) {
            let message = "no worker was left that could make the rest of the load".to_owned();
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        // Whoever leaves has ended its own part and nothing else; others may come.
        let ended_well = |worker: &WorkerInfo| worker.done == epoch && worker.is_healthy() && worker.failed != epoch;
        let ended = !working && workers.iter().any(ended_well);
        if !loading || ended && self.ends_with_its_workers() {
            self.stop(fleet, StopReason::Completed, None).await?;
        } else if ended && elapsed + CLOCKS < end_of(&self.bundle, order) {
            let message = "every worker has ended its part before the planned end; their logs say why".to_owned();
            self.stop(fleet, StopReason::Aborted, Some(message)).await?;
        } else if self.saved.elapsed() > SAVE_EVERY || self.follower.known() != self.saved_knowing {
            self.save().await?;
        }
        Ok(())
    }

    /// Whether it is over when its workers say so, because it has so many iterations and no more.
    fn ends_with_its_workers(&self) -> bool {
        let plans = [&self.bundle.plan.load].into_iter().chain(&self.bundle.together);
        plans.into_iter().any(|load| load.iterations.is_some())
    }

    async fn save(&mut self) -> Result<bool, StoreError> {
        (self.saved, self.saved_knowing) = (Instant::now(), self.follower.known());
        self.follower.keep(&self.bundle_name).await?;
        self.follower.save().await
    }

    /// Waits for the last words of everybody alive, then writes down how it was.
    pub(super) async fn finish(
        &mut self,
        fleet: &Fleet<C>,
        record: &RunRecord,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let epoch = self.follower.epoch();
        let asked_ms = order.stop.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms);
        let waited = Duration::from_millis(record.now_ms.saturating_sub(asked_ms));
        self.stopped_at.get_or_insert(elapsed.saturating_sub(waited));
        if self.is_working(workers) && waited < self.bundle.limits.grace + LAST_WORDS {
            return Ok(());
        }
        if self.bundle.hooks && !self.is_torn_down(fleet, record, order, (elapsed, waited), workers).await? {
            return Ok(());
        }
        if !self.board.is_settled() && !self.hidden {
            // Users are still being taken down; the next look goes on with it.
            return Ok(());
        }
        self.follower.follow().await?;
        self.follower.close(elapsed, order.start_at_ms.is_some()).await?;
        // What came too late for its own second is in the finished view only.
        let Some(view) = self.follower.finished() else { return Ok(()) };
        let run = fleet.cell().run();
        let made = self.bundle.plan.load.warm_up.is_zero().then_some(view.engine.iterations);
        let missed = self.rations.missed(&run, epoch, made).await?.filter(|_| order.is_complete());
        // Users who take iterations as they can have made load to the planned end, unless there were no more to take.
        let known = order.is_complete() && (missed.is_some() || !self.rations.are_limited());
        let over = load_end(&run.notes(epoch).await?).filter(|_| known);
        let drawn = self.rations.begun(&run, epoch).await?;
        let begun = drawn.or_else(|| self.due_by(elapsed, order).map(|due| due.saturating_sub(view.engine.dropped)));
        let facts = self.facts(&view, order, (elapsed, over), (missed, begun));
        if !self.follower.save().await? {
            // Somebody else saved meanwhile; look again.
            return Ok(());
        }
        let notes = [
            ("facts".to_owned(), serde_json::to_string(&facts).expect("facts are text and numbers")),
            ("bundle".to_owned(), self.bundle_name.clone()),
        ];
        run.set_notes(epoch, &notes).await?;
        let next = RunPhase::Stopping.step(PhaseEvent::Drained).unwrap_or_default();
        if run.compare_and_set(record, next.name(), &record.spec, false).await?.is_some() {
            info!(epoch, requests = view.all.requests, "the run is over");
        }
        Ok(())
    }

    /// `over`: when the load was, if workers have said so; `missed` and `begun`: iterations that nobody has made, and that can have
    /// begun, if that is known.
    fn facts(
        &self,
        view: &RunView,
        order: &RunSpec,
        (elapsed, over): (Duration, Option<Duration>),
        (missed, begun): (Option<u64>, Option<u64>),
    ) -> RunFacts {
        let (plan, crew) = (&self.bundle.plan, self.follower.crew());
        let planned = end_of(&self.bundle, order).max(end_of_waiting(&self.bundle, order));
        let active = over.unwrap_or_else(|| self.stopped_at.unwrap_or(elapsed).min(planned));
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
            thresholds: self.follower.judge().clone().verdicts(view, active.saturating_sub(plan.load.warm_up)),
            generator: GeneratorStats {
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
                missed_starts: missed.unwrap_or_else(|| self.missed_starts(view, order, active)),
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
    fn due_by(&self, at: Duration, order: &RunSpec) -> Option<u64> {
        let load = &self.bundle.plan.load;
        let is_open = matches!(load.model, LoadModel::Open { .. });
        let as_planned = !self.bundle.has_multiple_scenarios() && order.profile == *load.model.profile();
        (is_open && as_planned).then(|| due_before(load, &order.profile, self.bundle.plan.seed, at))
    }

    /// Starts that were due and are not in the report, for whatever reason.
    fn missed_starts(&self, view: &RunView, order: &RunSpec, active: Duration) -> u64 {
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
