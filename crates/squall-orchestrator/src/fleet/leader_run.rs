//! One run, as its leader takes it from phase to phase: waits for workers, applies the stop rules, and writes down how it ended. Every
//! change is a replacement of the record that it has read, so two leaders cannot both make it. Does not ask who leads.

use squall_coord::{FleetStores, RunRecord, RunStore, StoreError};
use squall_metrics::RunView;
use squall_model::{
    Bundle, CommandType, FleetEvent, FleetFacts, GeneratorStats, LoadModel, PhaseEvent, RunFacts, RunPhase, RunSpec,
    ShareSet, StopReason,
    protocol::{RunNote, RunNotes},
};
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::{
    FleetClient, FleetError, OrchestratorConfig, RunAggregator, WorkerInfo,
    counter_monitor::CounterMonitor,
    fleet_client::{StopRunCommand, recorded_phase, render_run_spec, start_payload},
    hooks::{HookKind, HookProgress, TEAR_DOWN_TIMEOUT},
    planned_load::{planned_load_end, planned_loads, queued_starts_end, starts_due_before},
    redis_metric_view::RedisMetricView,
    redis_user_view::{RedisUserView, UserViewInput},
    run_aggregator::RosterEntryState,
    worker_info::unready_workers,
};
use crate::local_run::{GeneratorUsage, dropped_start_advice, saturation_reasons};

/// How often what was merged is kept for a successor.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long after the grace a run waits for the last deltas of workers that are alive.
const FINAL_DELTA_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a start waits until every share is held.
const SHARE_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Workers end their load by clocks of their own, which may be so much ahead.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3);

/// Round trips to the store between the naming of an instant and the last worker's knowing of it.
const START_ROUND_TRIPS: u32 = 4;

/// A worker that runs a hook is lost when it has not been heard for so long by a store that answers: after a stall nobody has been
/// heard yet.
const HOOK_WORKER_TIMEOUT: Duration = Duration::from_secs(5);

/// Who reports once a beat is not heard for so long only if there is nobody.
const NO_WORKER_GRACE: Duration = Duration::from_secs(5);

/// A run without any worker is given up after this.
const NO_WORKER_TIMEOUT: Duration = Duration::from_secs(30);

/// A run that is being led.
pub(super) struct LeaderRun<C: FleetStores> {
    /// Which one; see [`RunSpec::run_id`].
    pub(super) run_id: String,
    bundle_name: String,
    bundle: Bundle,
    pub(super) aggregator: RunAggregator<C>,
    user_view: RedisUserView<C>,
    metric_view: RedisMetricView,
    pub(super) counter_monitor: CounterMonitor,
    /// What is shown could not be written last time.
    view_failed: bool,
    /// That was said.
    view_failure_logged: bool,
    /// Since when the worker that runs a hook has not been heard, for each.
    hook_worker_silent_since: [Option<Instant>; 2],
    last_save: Instant,
    /// What a successor would know by the last saving.
    saved_roster_version: (usize, usize),
    /// Events that were logged.
    pub(super) logged_events: usize,
    no_worker_since: Option<Instant>,
    /// Everybody is ready and not every share is held.
    unheld_shares_since: Option<Instant>,
    /// Workers were told to stop at this time of the run.
    stopped_at: Option<Duration>,
}

impl<C: FleetStores> LeaderRun<C> {
    /// Takes the run up with what `follower` knows of it, of which `told` events were logged.
    pub(super) fn new(
        fleet: &FleetClient<C>,
        (record, order): (&RunRecord, &RunSpec),
        bundle: Bundle,
        (follower, told): (RunAggregator<C>, usize),
    ) -> Result<LeaderRun<C>, FleetError> {
        let anew = recorded_phase(record)? == RunPhase::Preparing;
        Ok(LeaderRun {
            run_id: order.run.clone(),
            bundle_name: order.bundle.clone(),
            counter_monitor: CounterMonitor::new(&bundle),
            bundle,
            user_view: RedisUserView::new(fleet.clone(), record.epoch, anew),
            metric_view: RedisMetricView::resume_after(follower.view()),
            view_failed: false,
            view_failure_logged: false,
            hook_worker_silent_since: [None; 2],
            aggregator: follower,
            last_save: Instant::now(),
            saved_roster_version: (0, 0),
            logged_events: told,
            no_worker_since: None,
            unheld_shares_since: None,
            stopped_at: None,
        })
    }

    /// Shows the run to those who look into the store. That it could not is no fault of the run.
    pub(super) async fn update_views(
        &mut self,
        phase: RunPhase,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) {
        let closed = matches!(self.bundle.plan.load.model, LoadModel::Closed { .. });
        let ends = phase == RunPhase::Stopping;
        let level = if closed && !ends { (order.profile.level(elapsed) + 1e-9).floor() as u64 } else { 0 };
        let source = match ends {
            true => "stop_test",
            false if order.profile == *self.bundle.plan.load.model.profile() => "start_test",
            false => "change_users",
        };
        let scene = UserViewInput { level, running: phase == RunPhase::Running && !elapsed.is_zero(), source, workers };
        let users = self.user_view.update(scene).await;
        let (run, epoch) = (self.user_view.run(), self.aggregator.epoch());
        let seconds =
            self.metric_view.update(&run, epoch, order.start_at_ms.unwrap_or(0), self.aggregator.view()).await;
        let shown = users.and(seconds);
        self.view_failed = shown.is_err();
        if let Err(error) = shown
            && !std::mem::replace(&mut self.view_failure_logged, true)
        {
            warn!(epoch, %error, "users and seconds cannot be shown in the store; the run goes on");
        }
    }

    /// Waits until workers have built their users, then names the instant at which all start.
    pub(super) async fn start_when_ready(
        &mut self,
        fleet: &FleetClient<C>,
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
            let not_ready = unready_workers(&order.expected, workers, record.epoch).join(", ");
            let message = format!("{ready} of {} workers were ready in time; not: {not_ready}", order.expected.len());
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        if self.bundle.hooks && !self.ensure_set_up(fleet, record, &order, workers).await? {
            return Ok(());
        }
        // Shares may still be with somebody who is gone; what is due of them at the start would be late.
        let at_work = workers.iter().filter(|worker| worker.ready == record.epoch);
        let held: ShareSet = at_work.flat_map(|worker| worker.held.iter().collect::<Vec<_>>()).collect();
        if held != ShareSet::ALL
            && self.unheld_shares_since.get_or_insert_with(Instant::now).elapsed() < SHARE_SETTLE_TIMEOUT
        {
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
        let lead_time = config.start_delay + START_ROUND_TRIPS * asked.elapsed();
        order.start_at_ms = Some(latest.now_ms + lead_time.as_millis() as u64);
        if run.compare_and_set(&latest, next.name(), &render_run_spec(&order), false).await?.is_some() {
            info!(epoch = record.epoch, workers = ready, "starts");
            fleet.wake_workers(CommandType::StartTest, record.epoch, start_payload(&order, &self.bundle)).await;
        }
        Ok(())
    }

    /// Ends the run; what is under way is finished.
    pub(super) async fn stop(
        &self,
        fleet: &FleetClient<C>,
        reason: StopReason,
        message: Option<String>,
    ) -> Result<(), FleetError> {
        fleet.stop_run(&self.run_id, StopRunCommand { reason, abort: false, message }).await.map(drop)
    }

    /// Whether the scenario's set-up is done; has it done, or ends a run that cannot be set up.
    async fn ensure_set_up(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        order: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        match self.hook_progress(HookKind::SetUp, fleet, order, workers).await? {
            HookProgress::NotAssigned => {
                HookKind::SetUp.assign(fleet, record, (order, &self.bundle), workers).await.map(|_| false)
            }
            HookProgress::Running => Ok(false),
            HookProgress::Done => Ok(true),
            HookProgress::Failed(reason) => {
                self.stop(fleet, StopReason::Aborted, Some(reason)).await?;
                Ok(false)
            }
        }
    }

    /// Whether what was set up is torn down, as far as it can be.
    async fn ensure_torn_down(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        order: &RunSpec,
        (elapsed, waited): (Duration, Duration),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let patient = waited < self.bundle.limits.grace + TEAR_DOWN_TIMEOUT
            && !order.stop.as_ref().is_some_and(|stop| stop.abort);
        match self.hook_progress(HookKind::SetUp, fleet, order, workers).await? {
            HookProgress::Done => {}
            // Stopped meanwhile: what it is making has to be torn down.
            HookProgress::Running if patient => return Ok(false),
            HookProgress::Running => {
                self.record_event_once(
                    elapsed,
                    "set-up was not waited for any longer; what it makes is not torn down".to_owned(),
                );
                return Ok(true);
            }
            HookProgress::Failed(reason) => {
                if order.stop.as_ref().is_none_or(|stop| stop.message.as_ref() != Some(&reason)) {
                    self.record_event_once(elapsed, reason);
                }
                return Ok(true);
            }
            HookProgress::NotAssigned => return Ok(true),
        }
        let trouble = match self.hook_progress(HookKind::TearDown, fleet, order, workers).await? {
            HookProgress::Done => return Ok(true),
            HookProgress::Running if waited < self.bundle.limits.grace + TEAR_DOWN_TIMEOUT => return Ok(false),
            HookProgress::NotAssigned
                if HookKind::TearDown.assign(fleet, record, (order, &self.bundle), workers).await? =>
            {
                return Ok(false);
            }
            HookProgress::NotAssigned => "tear-down did not run: no worker is left".to_owned(),
            HookProgress::Running => "tear-down was not waited for any longer".to_owned(),
            HookProgress::Failed(reason) => reason,
        };
        self.record_event_once(elapsed, trouble);
        Ok(true)
    }

    /// How far a hook is.
    async fn hook_progress(
        &mut self,
        which: HookKind,
        fleet: &FleetClient<C>,
        order: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<HookProgress, FleetError> {
        let unheard = &mut self.hook_worker_silent_since[which as usize];
        let lost = match which.is_worker_present(order, workers) {
            true => {
                *unheard = None;
                false
            }
            false => unheard.get_or_insert_with(Instant::now).elapsed() > HOOK_WORKER_TIMEOUT,
        };
        which.progress(fleet, self.aggregator.epoch(), order, lost).await
    }

    /// Tells of something that is found at every look.
    fn record_event_once(&mut self, elapsed: Duration, text: String) {
        if !self.aggregator.roster().events.iter().any(|(_, told)| *told == text) {
            self.aggregator.record_event(elapsed, text);
        }
    }

    /// Learns who is there, and merges and judges what they have shipped.
    pub(super) async fn aggregate(
        &mut self,
        phase: RunPhase,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        self.aggregator.set_load_active(phase == RunPhase::Running && self.is_load_active(order, elapsed, workers));
        self.aggregator.update_roster(workers, elapsed).await?;
        self.aggregator.poll().await?;
        Ok(())
    }

    /// Whether load is still to be made. A run of so many iterations makes them all: what waits for a user when the last was due is made
    /// by those who have it.
    fn is_load_active(&self, order: &RunSpec, elapsed: Duration, workers: &[WorkerInfo]) -> bool {
        let waits = || self.has_active_worker(workers) && elapsed < queued_starts_end(&self.bundle, order);
        elapsed < planned_load_end(&self.bundle, order) || waits()
    }

    fn has_active_worker(&self, workers: &[WorkerInfo]) -> bool {
        let epoch = self.aggregator.epoch();
        workers.iter().any(|worker| worker.ready == epoch && worker.done != epoch)
    }

    /// Looks at thresholds and at the end.
    pub(super) async fn check_stop_rules(
        &mut self,
        fleet: &FleetClient<C>,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let (epoch, loading) = (self.aggregator.epoch(), self.is_load_active(order, elapsed, workers));
        let working = self.has_active_worker(workers);
        if let Some(threshold) = self.aggregator.judge().breached_abort_threshold().filter(|_| loading) {
            let text = threshold.to_string();
            self.aggregator.record_event(elapsed, format!("threshold {text} was breached"));
            return self.stop(fleet, StopReason::Threshold, None).await;
        }
        let alive = workers.iter().any(|worker| worker.is_healthy() && worker.failed != epoch);
        if alive {
            self.no_worker_since = None;
        } else if self.no_worker_since.get_or_insert_with(Instant::now).elapsed() > NO_WORKER_TIMEOUT {
            let message = match workers.iter().find(|worker| worker.failed == epoch) {
                Some(worker) => format!("no worker is left that can carry out the run: {}", worker.message),
                None => "every worker was lost".to_owned(),
            };
            let stop = StopRunCommand { reason: StopReason::Aborted, abort: true, message: Some(message) };
            return fleet.stop_run(&self.run_id, stop).await.map(drop);
        }
        if !loading && self.no_worker_since.is_some_and(|since| since.elapsed() > NO_WORKER_GRACE) {
            let message = "no worker was left that could make the rest of the load".to_owned();
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        // Whoever leaves has ended its own part and nothing else; others may come.
        let ended_well = |worker: &WorkerInfo| worker.done == epoch && worker.is_healthy() && worker.failed != epoch;
        let ended = !working && workers.iter().any(ended_well);
        if !loading || ended && self.has_iteration_limit() {
            self.stop(fleet, StopReason::Completed, None).await?;
        } else if ended && elapsed + MAX_CLOCK_SKEW < planned_load_end(&self.bundle, order) {
            let message = "every worker has ended its part before the planned end; their logs say why".to_owned();
            self.stop(fleet, StopReason::Aborted, Some(message)).await?;
        } else if self.last_save.elapsed() > SAVE_INTERVAL
            || self.aggregator.roster_version() != self.saved_roster_version
        {
            self.save().await?;
        }
        Ok(())
    }

    /// Whether it is over when its workers say so, because it has so many iterations and no more.
    fn has_iteration_limit(&self) -> bool {
        let plans = [&self.bundle.plan.load].into_iter().chain(&self.bundle.together);
        plans.into_iter().any(|load| load.iterations.is_some())
    }

    async fn save(&mut self) -> Result<bool, StoreError> {
        (self.last_save, self.saved_roster_version) = (Instant::now(), self.aggregator.roster_version());
        self.aggregator.extend_retention(&self.bundle_name).await?;
        self.aggregator.save_checkpoint().await
    }

    /// Waits for the last words of everybody alive, then writes down how it was.
    pub(super) async fn finish_when_drained(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        order: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let epoch = self.aggregator.epoch();
        let asked_ms = order.stop.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms);
        let waited = Duration::from_millis(record.now_ms.saturating_sub(asked_ms));
        self.stopped_at.get_or_insert(elapsed.saturating_sub(waited));
        if self.has_active_worker(workers) && waited < self.bundle.limits.grace + FINAL_DELTA_TIMEOUT {
            return Ok(());
        }
        if self.bundle.hooks && !self.ensure_torn_down(fleet, record, order, (elapsed, waited), workers).await? {
            return Ok(());
        }
        if !self.user_view.is_up_to_date() && !self.view_failed {
            // Users are still being taken down; the next look goes on with it.
            return Ok(());
        }
        self.aggregator.poll().await?;
        self.aggregator.close(elapsed, order.start_at_ms.is_some()).await?;
        // What came too late for its own second is in the finished view only.
        let Some(view) = self.aggregator.final_view() else { return Ok(()) };
        let run = fleet.cell().run();
        let made = self.bundle.plan.load.warm_up.is_zero().then_some(view.engine.iterations);
        let missed = self.counter_monitor.missed_iterations(&run, epoch, made).await?.filter(|_| order.is_complete());
        // Users who take iterations as they can have made load to the planned end, unless there were no more to take.
        let known = order.is_complete() && (missed.is_some() || !self.counter_monitor.has_iteration_limit());
        let over = RunNotes::from(run.notes(epoch).await?).load_end().filter(|_| known);
        let drawn = self.counter_monitor.drawn_iterations(&run, epoch).await?;
        let begun =
            drawn.or_else(|| self.starts_due_by(elapsed, order).map(|due| due.saturating_sub(view.engine.dropped)));
        let facts = self.run_facts(&view, order, (elapsed, over), (missed, begun));
        if !self.aggregator.save_checkpoint().await? {
            // Somebody else saved meanwhile; look again.
            return Ok(());
        }
        let notes = [
            RunNote::Facts(serde_json::to_string(&facts).expect("facts are text and numbers")).encode(),
            RunNote::Bundle(self.bundle_name.clone()).encode(),
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
    fn run_facts(
        &self,
        view: &RunView,
        order: &RunSpec,
        (elapsed, over): (Duration, Option<Duration>),
        (missed, begun): (Option<u64>, Option<u64>),
    ) -> RunFacts {
        let (plan, crew) = (&self.bundle.plan, self.aggregator.roster());
        let planned = planned_load_end(&self.bundle, order).max(queued_starts_end(&self.bundle, order));
        let active = over.unwrap_or_else(|| self.stopped_at.unwrap_or(elapsed).min(planned));
        let stop = order.stop.as_ref().map_or(StopReason::Completed, |stop| match stop.abort {
            true => StopReason::Aborted,
            false => stop.reason,
        });
        let threads: u32 = crew.members.values().map(|member| member.threads).sum();
        let cpu_s: f64 = crew.members.values().map(|member| member.cpu_s - member.first_cpu_s).sum();
        let max_rss_bytes = crew.members.values().map(|member| member.max_rss_bytes).max().unwrap_or(0);
        let extent = GeneratorUsage { elapsed, cpu_s, threads };
        let lost = crew.members.values().filter(|member| member.state == RosterEntryState::Lost).count();
        let saturated_because = saturation_reasons(plan, view, extent, dropped_start_advice(stop, lost));
        let unreported = self.max_unreported_requests(view, begun);
        let announced: u64 = crew.members.keys().map(|instance| self.aggregator.lost_at_most(*instance)).sum();
        let lost_at_most = announced.min(unreported);
        let events = crew.events.iter().map(|(t_s, text)| FleetEvent { t_s: *t_s, text: text.clone() });
        let stop_message = order.stop.as_ref().and_then(|stop| stop.message.clone());
        let events = events.chain(stop_message.map(|text| FleetEvent { t_s: active.as_secs_f64(), text }));
        RunFacts {
            started_unix_ms: order.start_at_ms.unwrap_or(0),
            active,
            elapsed,
            stop,
            thresholds: self.aggregator.judge().clone().final_results(view, active.saturating_sub(plan.load.warm_up)),
            generator: GeneratorStats {
                threads,
                cpu_s,
                max_rss_bytes,
                saturated: !saturated_because.is_empty(),
                saturated_because,
            },
            lost_at_most,
            fleet: Some(FleetFacts {
                workers: self.aggregator.worker_facts(active, unreported),
                events: events.collect(),
                missed_starts: missed.unwrap_or_else(|| self.missed_starts(view, order, active)),
            }),
        }
    }

    /// Most requests that iterations can have made and nobody has reported, if `begun` of them can have begun: nobody begins one twice.
    fn max_unreported_requests(&self, view: &RunView, begun: Option<u64>) -> u64 {
        let (Some(each), Some(begun)) = (self.aggregator.max_requests_per_iteration(), begun) else { return u64::MAX };
        let accounting = view.accounting();
        begun.saturating_mul(each).saturating_sub(accounting.recorded.saturating_sub(accounting.unsent))
    }

    /// Starts of an open load that were due before `at`, its warm-up included. Where somebody has changed the rate it depends on when each
    /// worker heard of it.
    fn starts_due_by(&self, at: Duration, order: &RunSpec) -> Option<u64> {
        let load = &self.bundle.plan.load;
        let is_open = matches!(load.model, LoadModel::Open { .. });
        let as_planned = !self.bundle.has_multiple_scenarios() && order.profile == *load.model.profile();
        (is_open && as_planned).then(|| starts_due_before(load, &order.profile, self.bundle.plan.seed, at))
    }

    /// Starts that were due and are not in the report, for whatever reason.
    fn missed_starts(&self, view: &RunView, order: &RunSpec, active: Duration) -> u64 {
        let mut planned = 0;
        for (load, profile) in planned_loads(&self.bundle, order) {
            // Where users decide when to start, among others or alone, nobody can say what was due.
            if !matches!(load.model, LoadModel::Open { .. }) {
                return 0;
            }
            let due = |at: Duration| starts_due_before(load, profile, self.bundle.plan.seed, at);
            planned += due(active).saturating_sub(due(load.warm_up));
        }
        planned.saturating_sub(view.engine.iterations + view.engine.dropped)
    }
}
