//! Leads one run from phase to phase: waits for workers, applies the stop rules, and stores the
//! result. Every change replaces the record only if it is unchanged, so two leaders cannot both
//! make it. It does not check who leads; `Orchestrator` calls it only while it holds the leader
//! lease.

mod facts;
mod hook_steps;

use squall_coord::{FleetStores, RunRecord, RunStore, StoreError};
use squall_model::{
    Bundle, CommandType, FleetEvent, FleetEventKind, LoadModel, PhaseEvent, RunPhase, RunSpec, ShareSet, StopReason,
    protocol::{RunNote, RunNotes},
};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    FleetClient, FleetError, OrchestratorConfig, RunAggregator, WorkerInfo, WorkerKind,
    command_payload::start_payload,
    compat::{RedisMetricView, RedisUserView, UserViewInput},
    counter_monitor::CounterMonitor,
    fleet_client::{StopRunCommand, recorded_phase},
    planned_load::{planned_load_end, queued_starts_end},
    worker_info::unready_workers,
};

/// Time between two checkpoints for a successor while the roster stays the same.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long after the grace period the leader waits for the last deltas of workers that are alive.
const FINAL_DELTA_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a start waits until workers hold every share.
const SHARE_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Workers end their load by their own clocks, which may be this much ahead of the store's.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3);

/// Round trips to the store between the leader's choice of a start time and the moment the last
/// worker knows it.
const START_ROUND_TRIPS: u32 = 4;

/// The worker that runs a hook counts as lost when the store answers and has not heard it for this
/// long. After a stall of the store every report has expired, so workers need time to report again.
const HOOK_WORKER_TIMEOUT: Duration = Duration::from_secs(5);

/// Workers report about once a second, so a silence of this length means that no worker is left.
const NO_WORKER_GRACE: Duration = Duration::from_secs(5);

/// A run without any worker is aborted after this.
const NO_WORKER_TIMEOUT: Duration = Duration::from_secs(30);

/// A run that this orchestrator leads.
pub(super) struct LeaderRun<C: FleetStores> {
    /// See [`RunSpec::run_id`].
    pub(super) run_id: String,
    bundle_name: String,
    bundle: Bundle,
    pub(super) aggregator: RunAggregator<C>,
    user_view: RedisUserView<C>,
    metric_view: RedisMetricView,
    pub(super) counter_monitor: CounterMonitor,
    /// The last update of the views failed.
    view_failed: bool,
    /// A failure of the views is logged once.
    view_failure_logged: bool,
    /// Since when the worker that runs a hook has been silent, by [`HookKind`].
    hook_worker_silent_since: [Option<Instant>; 2],
    last_save: Instant,
    /// Version of the roster in the last checkpoint.
    saved_roster_version: (usize, usize),
    /// How many events have been logged.
    logged_events: usize,
    no_worker_since: Option<Instant>,
    /// Since when all workers are ready but do not hold every share.
    unheld_shares_since: Option<Instant>,
    /// Time of the run at which the stop was requested.
    stopped_at: Option<Duration>,
}

impl<C: FleetStores> LeaderRun<C> {
    /// Leads the run that `aggregator` has opened; the first `logged_events` of its events have
    /// been logged.
    pub(super) fn new(
        fleet: &FleetClient<C>,
        (record, spec): (&RunRecord, &RunSpec),
        bundle: Bundle,
        (aggregator, logged_events): (RunAggregator<C>, usize),
    ) -> Result<LeaderRun<C>, FleetError> {
        let is_new_run = recorded_phase(record)? == RunPhase::Preparing;
        Ok(LeaderRun {
            run_id: spec.run_id.clone(),
            bundle_name: spec.bundle.clone(),
            counter_monitor: CounterMonitor::new(&bundle),
            bundle,
            user_view: RedisUserView::new(fleet.clone(), record.epoch, is_new_run),
            metric_view: RedisMetricView::resume_after(aggregator.view()),
            view_failed: false,
            view_failure_logged: false,
            hook_worker_silent_since: [None; 2],
            aggregator,
            last_save: Instant::now(),
            saved_roster_version: (0, 0),
            logged_events,
            no_worker_since: None,
            unheld_shares_since: None,
            stopped_at: None,
        })
    }

    pub(super) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Records that the store did not answer for `outage`.
    pub(super) fn record_outage(&mut self, outage: Duration, elapsed: Duration) {
        let seconds = outage.as_secs();
        let text = format!("the store did not answer for {seconds} s; workers that cannot reach it make no load");
        self.aggregator.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Other, text));
    }

    /// Logs the events since the last call.
    pub(super) fn log_new_events(&mut self) {
        let (epoch, events) = (self.aggregator.epoch(), &self.aggregator.roster().events);
        // The roster may have fewer events than were logged, after the store went back to an older
        // checkpoint.
        for FleetEvent { t_s: at_s, text, kind, .. } in events.iter().skip(self.logged_events) {
            match kind.is_problem() {
                true => warn!(epoch, at_s, "{text}"),
                false => info!(epoch, at_s, "{text}"),
            }
        }
        self.logged_events = events.len();
    }

    /// Updates the compatibility views in the store. A failure does not affect the run.
    pub(super) async fn update_views(
        &mut self,
        phase: RunPhase,
        spec: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) {
        let closed = matches!(self.bundle.plan.load.model, LoadModel::Closed { .. });
        let stopping = phase == RunPhase::Stopping;
        let level = if closed && !stopping { (spec.profile.level(elapsed) + 1e-9).floor() as u64 } else { 0 };
        let source = match stopping {
            true => "stop_test",
            false if spec.profile == *self.bundle.plan.load.model.profile() => "start_test",
            false => "change_users",
        };
        let input = UserViewInput { level, running: phase == RunPhase::Running && !elapsed.is_zero(), source, workers };
        let users = self.user_view.update(input).await;
        let (run_store, epoch) = (self.user_view.run(), self.aggregator.epoch());
        let seconds =
            self.metric_view.update(&run_store, epoch, spec.start_at_ms.unwrap_or(0), self.aggregator.view()).await;
        let updated = users.and(seconds);
        self.view_failed = updated.is_err();
        if let Err(error) = updated
            && !std::mem::replace(&mut self.view_failure_logged, true)
        {
            warn!(epoch, %error, "the leader cannot write users and metrics for vikhry tools to the store; the run continues");
        }
    }

    /// Waits until workers have built their users, then sets the time at which all of them start.
    pub(super) async fn start_when_ready(
        &mut self,
        fleet: &FleetClient<C>,
        config: &OrchestratorConfig,
        record: &RunRecord,
        mut spec: RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let ready = workers.iter().filter(|worker| worker.ready == record.epoch).count();
        // One worker that cannot carry out the run ends it before the start, because the bundle is
        // the likely cause. After the start other workers take its shares.
        if let Some(worker) = workers.iter().find(|worker| worker.given_up_run == record.epoch) {
            let message = format!("worker {} cannot carry out the run: {}", worker.id, worker.message);
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        // A lost worker does not delay the start.
        let is_preparing = |id: &String| workers.iter().any(|worker| worker.id == *id && worker.ready != record.epoch);
        let all_ready = ready > 0 && !spec.expected.iter().any(is_preparing);
        let deadline_passed = record.now_ms >= spec.ready_by_ms;
        if !all_ready && !deadline_passed {
            return Ok(());
        }
        if deadline_passed && ready * 2 < spec.expected.len().max(1) {
            let not_ready = unready_workers(&spec.expected, workers, record.epoch).join(", ");
            let message =
                format!("{ready} of {} workers were ready in time; not ready: {not_ready}", spec.expected.len());
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        if self.bundle.hooks && !self.ensure_set_up(fleet, record, &spec, workers).await? {
            return Ok(());
        }
        // A lost worker may still hold shares, and their first starts would be late.
        let ready_workers = workers.iter().filter(|worker| worker.ready == record.epoch);
        let held: ShareSet = ready_workers.flat_map(|worker| worker.held.iter().collect::<Vec<_>>()).collect();
        if held != ShareSet::ALL
            && self.unheld_shares_since.get_or_insert_with(Instant::now).elapsed() < SHARE_SETTLE_TIMEOUT
        {
            return Ok(());
        }
        let Ok(next) = RunPhase::Preparing.step(PhaseEvent::Ready) else { return Ok(()) };
        // Saved before the start, so that a successor does not record these workers as new ones.
        if !self.save().await? {
            return Ok(());
        }
        // The steps above took time, and workers need time to read the record, so the start counts
        // from now.
        let (run_store, read_began) = (fleet.stores().run(), Instant::now());
        let latest = run_store.read_record().await?;
        if latest.revision != record.revision {
            return Ok(());
        }
        let lead_time = config.start_delay + START_ROUND_TRIPS * read_began.elapsed();
        spec.start_at_ms = Some(latest.now_ms + lead_time.as_millis() as u64);
        if run_store.compare_and_set(&latest, next.name(), &spec.encode(), false).await?.is_some() {
            info!(epoch = record.epoch, workers = ready, "the leader starts the run");
            fleet.wake_workers(CommandType::StartTest, record.epoch, start_payload(&spec, &self.bundle)).await;
        }
        Ok(())
    }

    /// Requests a drain: iterations in progress finish.
    pub(super) async fn stop(
        &self,
        fleet: &FleetClient<C>,
        reason: StopReason,
        message: Option<String>,
    ) -> Result<(), FleetError> {
        fleet.stop_run(&self.run_id, StopRunCommand { reason, abort: false, message }).await.map(drop)
    }

    /// Updates the roster, and merges and judges what workers have shipped.
    pub(super) async fn aggregate(
        &mut self,
        phase: RunPhase,
        spec: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        self.aggregator.set_load_active(phase == RunPhase::Running && self.is_load_active(spec, elapsed, workers));
        self.aggregator.set_load_changes(spec);
        self.aggregator.update_roster(workers, elapsed).await?;
        self.aggregator.poll().await?;
        Ok(())
    }

    /// Whether workers still have load to make. A run with an iteration limit makes every
    /// iteration: starts that wait for a free user when the last one is due are made after the
    /// planned end.
    fn is_load_active(&self, spec: &RunSpec, elapsed: Duration, workers: &[WorkerInfo]) -> bool {
        let starts_queued = || self.has_active_worker(workers) && elapsed < queued_starts_end(&self.bundle, spec);
        elapsed < planned_load_end(&self.bundle, spec) || starts_queued()
    }

    fn has_active_worker(&self, workers: &[WorkerInfo]) -> bool {
        let epoch = self.aggregator.epoch();
        workers.iter().any(|worker| worker.ready == epoch && worker.done != epoch)
    }

    /// Stops the run if a threshold was breached, the load is over, or no worker is left. Otherwise
    /// saves a checkpoint if one is due.
    pub(super) async fn stop_or_save_checkpoint(
        &mut self,
        fleet: &FleetClient<C>,
        spec: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let (epoch, loading) = (self.aggregator.epoch(), self.is_load_active(spec, elapsed, workers));
        let working = self.has_active_worker(workers);
        if let Some(threshold) = self.aggregator.judge().breached_abort_threshold().filter(|_| loading) {
            let text = threshold.to_string();
            let words = format!("threshold {text} was breached");
            let event = FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Threshold, words).about(&text);
            self.aggregator.record_event(event);
            return self.stop(fleet, StopReason::Threshold, None).await;
        }
        let alive = workers.iter().any(|worker| worker.can_carry_out(epoch));
        if alive {
            self.no_worker_since = None;
        } else if self.no_worker_since.get_or_insert_with(Instant::now).elapsed() > no_worker_timeout(workers, epoch) {
            let message = match workers.iter().find(|worker| worker.given_up_run == epoch) {
                Some(worker) => {
                    let (id, why) = (&worker.id, &worker.message);
                    format!("no worker is left that can carry out the run; worker {id}: {why}")
                }
                None => "every worker was lost".to_owned(),
            };
            warn!(epoch, "the leader stops the run: {message}");
            let stop = StopRunCommand { reason: StopReason::Aborted, abort: true, message: Some(message) };
            return fleet.stop_run(&self.run_id, stop).await.map(drop);
        }
        if !loading && self.no_worker_since.is_some_and(|since| since.elapsed() > NO_WORKER_GRACE) {
            let message = "no worker is left to make the rest of the load".to_owned();
            return self.stop(fleet, StopReason::Aborted, Some(message)).await;
        }
        // A leaving worker (unhealthy) ends only its own part, and another worker may join.
        let ended_well = |worker: &WorkerInfo| worker.done == epoch && worker.can_carry_out(epoch);
        let ended = !working && workers.iter().any(ended_well);
        if !loading || ended && self.has_iteration_limit() {
            self.stop(fleet, StopReason::Completed, None).await?;
        } else if ended && elapsed + MAX_CLOCK_SKEW < planned_load_end(&self.bundle, spec) {
            let message = "every worker ended its part before the planned end; see the logs of the workers".to_owned();
            self.stop(fleet, StopReason::Aborted, Some(message)).await?;
        } else if self.last_save.elapsed() > SAVE_INTERVAL
            || self.aggregator.roster_version() != self.saved_roster_version
        {
            self.save().await?;
        }
        Ok(())
    }

    /// Whether the run has an iteration limit, so that its workers know when it is over.
    fn has_iteration_limit(&self) -> bool {
        let plans = [&self.bundle.plan.load].into_iter().chain(&self.bundle.together);
        plans.into_iter().any(|load| load.iterations.is_some())
    }

    async fn save(&mut self) -> Result<bool, StoreError> {
        (self.last_save, self.saved_roster_version) = (Instant::now(), self.aggregator.roster_version());
        self.aggregator.extend_retention(&self.bundle_name).await?;
        self.aggregator.save_checkpoint().await
    }

    /// Waits for the last deltas of the workers that are alive, then stores the result and ends the
    /// run.
    pub(super) async fn finish_when_drained(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        spec: &RunSpec,
        elapsed: Duration,
        workers: &[WorkerInfo],
    ) -> Result<(), FleetError> {
        let epoch = self.aggregator.epoch();
        let stop_requested_ms = spec.stop.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms);
        let waited = Duration::from_millis(record.now_ms.saturating_sub(stop_requested_ms));
        self.stopped_at.get_or_insert(elapsed.saturating_sub(waited));
        if self.has_active_worker(workers) && waited < self.bundle.limits.grace + FINAL_DELTA_TIMEOUT {
            return Ok(());
        }
        if self.bundle.hooks && !self.ensure_torn_down(fleet, record, spec, (elapsed, waited), workers).await? {
            return Ok(());
        }
        if !self.user_view.is_up_to_date() && !self.view_failed {
            // The view still removes users, in batches; the next poll continues.
            return Ok(());
        }
        self.aggregator.poll().await?;
        self.aggregator.end_unfinished_workers(elapsed, spec.start_at_ms.is_some()).await?;
        self.aggregator.read_person_notes().await?;
        // Deltas that came too late for their second are only in the final view.
        let Some(view) = self.aggregator.final_view() else { return Ok(()) };
        let run_store = fleet.stores().run();
        let reported = self.bundle.plan.load.warm_up.is_zero().then_some(view.engine.iterations);
        let missed =
            self.counter_monitor.missed_iterations(&run_store, epoch, reported).await?.filter(|_| spec.is_complete());
        // Users with an iteration limit make load to the planned end, unless the iterations ran
        // out.
        let ended_by_workers = spec.is_complete() && (missed.is_some() || !self.counter_monitor.has_iteration_limit());
        let load_end = RunNotes::from(run_store.notes(epoch).await?).load_end().filter(|_| ended_by_workers);
        let drawn = self.counter_monitor.drawn_iterations(&run_store, epoch).await?;
        let begun =
            drawn.or_else(|| self.starts_due_by(elapsed, spec).map(|due| due.saturating_sub(view.engine.dropped)));
        let facts = self.run_facts(&view, spec, (elapsed, load_end), (missed, begun));
        if !self.aggregator.save_checkpoint().await? {
            // Another leader has saved; the next poll decides with what it saved.
            return Ok(());
        }
        let notes = [
            RunNote::Facts(serde_json::to_string(&facts).expect("facts are text and numbers")).encode(),
            RunNote::Bundle(self.bundle_name.clone()).encode(),
            RunNote::Profile(spec.profile_until(facts.active)).encode(),
        ];
        run_store.set_notes(epoch, &notes).await?;
        let next = RunPhase::Stopping.step(PhaseEvent::Drained).unwrap_or_default();
        if run_store.compare_and_set(record, next.name(), &record.spec, false).await?.is_some() {
            info!(epoch, requests = view.all.requests, "the run has ended");
        }
        Ok(())
    }
}

/// How long a run waits for a worker that can carry it out. A vikhry worker that refuses its commands
/// has had its time, so no worker is expected to join.
fn no_worker_timeout(workers: &[WorkerInfo], epoch: u64) -> Duration {
    let has_refused = |worker: &WorkerInfo| worker.kind == WorkerKind::Vikhry && worker.given_up_run == epoch;
    if workers.iter().any(has_refused) { NO_WORKER_GRACE } else { NO_WORKER_TIMEOUT }
}
