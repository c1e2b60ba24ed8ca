//! Watches the current run of the fleet, so that every orchestrator can show it, leader or not. It
//! merges nothing itself: a [`RunAggregator`] does, and when the run is over, the result that its
//! leader stored replaces the aggregated view. The handlers read the watched run.

use squall_coord::{FleetStores, StoreError};
use squall_metrics::RunView;
use squall_model::{Bundle, Plan, RunFacts, RunPhase, ThresholdResult, WorkerFacts, protocol::parse_instance};
use squall_orchestrator::{FleetClient, FleetError, FleetStatus, RunAggregator, WorkerActivity};
use squall_report::{InterruptionRule, ReportInput};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use thiserror::Error;
use tokio::{
    sync::{RwLock, RwLockReadGuard, broadcast},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    cpu_history::CpuHistory,
    live::{LiveFeed, StoreContact},
    run_saver::RunSaver,
    vikhry_json,
    worker_history::WorkerHistory,
};
use squall_history::{RunFolder, RunId};

/// Messages of vikhry's feed that are buffered for a slow subscriber; if more wait, the oldest is
/// dropped and counted.
const VIKHRY_FEED_CAPACITY: usize = 64;
/// Length of the window of `/metrics` in seconds.
pub(crate) const WINDOW_S: u32 = 60;
/// A healthy fleet reports a second within this time after its end.
const LAG_ALLOWANCE: Duration = Duration::from_secs(5);
/// How often the notes of people are read.
const NOTES_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two polls of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A poll gives up after this time and the next one retries, so that handlers do not wait for a
/// slow store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most runs that are saved when another run is found in place of the watched one. The fleet runs one at a
/// time, so more of them between two polls mean that the store was away.
const MOST_REPLACED_RUNS: u64 = 16;

/// Counters of the API itself.
#[derive(Debug, Default)]
pub(crate) struct ApiCounters {
    pub(crate) requests: AtomicU64,
    /// Requests denied by token, Host or Origin.
    pub(crate) denied_requests: AtomicU64,
    /// Requests with an invalid body or query.
    pub(crate) bad_requests: AtomicU64,
    /// Pools whose keys contain values of other programs, counted at each encounter.
    pub(crate) unusable_pools: AtomicU64,
    /// Entries in delta streams that are not deltas.
    pub(crate) invalid_deltas: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) failed_polls: AtomicU64,
}

impl ApiCounters {
    pub(crate) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// A run and the source of its numbers.
pub(crate) struct WatchedRun<C: FleetStores> {
    pub(crate) epoch: u64,
    /// Distinguishes runs with equal epochs: a store that lost its data counts epochs from 1 again.
    run_id: String,
    /// As the run started.
    pub(crate) bundle: Bundle,
    /// The plan with the current load profile.
    pub(crate) plan: Plan,
    /// Unix time of the start by the store's clock.
    pub(crate) started_ms: u64,
    pub(crate) elapsed: Duration,
    /// How long the fleet made load, without the time in which the last requests ended.
    load_duration: Duration,
    /// When `elapsed` was read.
    polled_at: Instant,
    /// When the notes of people were read.
    notes_read_at: Option<Instant>,
    pub(crate) finished: bool,
    /// The id in the history, once the run is saved.
    pub(crate) saved_as: Option<RunId>,
    pub(crate) cpu: CpuHistory,
    pub(crate) workers: WorkerHistory,
    source: WatchedRunSource<C>,
}

enum WatchedRunSource<C: FleetStores> {
    Aggregating(Box<RunAggregator<C>>),
    Finished(Box<(RunView, RunFacts)>),
}

/// The input of every rendering of a finished run of the fleet, so that all of them agree.
pub(crate) fn report_input<'a>(
    bundle: &Bundle,
    (plan, view, facts): (&'a Plan, &'a RunView, &'a RunFacts),
    version: &'a str,
) -> ReportInput<'a> {
    let (schedule_rule, interruption_rule) = (bundle.schedule_rule, InterruptionRule::default());
    ReportInput { plan, view, facts, schedule_rule, interruption_rule, command: None, version }
}

/// The part of a worker in a run that is over; `None` if its instance cannot be read.
fn finished_activity(worker: &WorkerFacts) -> Option<WorkerActivity> {
    Some(WorkerActivity {
        id: worker.id.clone(),
        instance: parse_instance(&worker.instance)?,
        state: worker.state.name(),
        joined_s: worker.joined_s,
        ended_s: worker.ended_s,
        lost_at_most: worker.lost_at_most,
        latest: None,
    })
}

/// The name of the run in its specification.
fn run_id_of(status: &FleetStatus) -> &str {
    status.spec.as_ref().map_or("", |spec| &spec.run_id)
}

impl<C: FleetStores> WatchedRun<C> {
    /// A finished run, for tests of messages.
    #[cfg(test)]
    pub(crate) fn finished(bundle: Bundle, view: RunView, facts: RunFacts) -> WatchedRun<C> {
        WatchedRun {
            epoch: 3,
            run_id: "r1".to_owned(),
            plan: bundle.plan.clone(),
            bundle,
            started_ms: facts.started_unix_ms,
            elapsed: facts.elapsed,
            load_duration: facts.active,
            polled_at: Instant::now(),
            notes_read_at: None,
            finished: true,
            saved_as: None,
            cpu: CpuHistory::default(),
            workers: WorkerHistory::default(),
            source: WatchedRunSource::Finished(Box::new((view, facts))),
        }
    }

    /// Whether this is the fleet's current run.
    pub(crate) fn is_run_of(&self, status: &FleetStatus) -> bool {
        (self.epoch, self.run_id.as_str()) == (status.epoch, run_id_of(status))
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    pub(crate) fn view(&self) -> &RunView {
        match &self.source {
            WatchedRunSource::Aggregating(aggregator) => aggregator.view(),
            WatchedRunSource::Finished(finished) => &finished.0,
        }
    }

    /// What aggregates the run; `None` once it is over.
    pub(crate) fn aggregator(&self) -> Option<&RunAggregator<C>> {
        match &self.source {
            WatchedRunSource::Aggregating(aggregator) => Some(aggregator),
            WatchedRunSource::Finished(_) => None,
        }
    }

    /// The parts of the workers in the run so far, or at its end.
    pub(crate) fn worker_activity(&self) -> Vec<WorkerActivity> {
        match &self.source {
            WatchedRunSource::Aggregating(aggregator) => aggregator.worker_activity(),
            WatchedRunSource::Finished(finished) => {
                let workers = finished.1.fleet.iter().flat_map(|fleet| &fleet.workers);
                workers.filter_map(finished_activity).collect()
            }
        }
    }

    /// The facts that the leader stored at the end of the run.
    pub(crate) fn facts(&self) -> Option<&RunFacts> {
        match &self.source {
            WatchedRunSource::Aggregating(_) => None,
            WatchedRunSource::Finished(finished) => Some(&finished.1),
        }
    }

    /// The thresholds so far, or at the end.
    pub(crate) fn thresholds(&self) -> Vec<ThresholdResult> {
        match &self.source {
            WatchedRunSource::Aggregating(aggregator) => aggregator.threshold_results(),
            WatchedRunSource::Finished(finished) => finished.1.thresholds.clone(),
        }
    }

    /// The run as the report of it sees it; `None` until it is over.
    pub(crate) fn report_input<'a>(&'a self, version: &'a str) -> Option<ReportInput<'a>> {
        let WatchedRunSource::Finished(finished) = &self.source else { return None };
        let (view, facts) = &**finished;
        Some(report_input(&self.bundle, (&self.plan, view, facts), version))
    }

    /// Why the generator is the limit, or was it in a finished run.
    pub(crate) fn saturated_because(&self) -> Vec<String> {
        match &self.source {
            WatchedRunSource::Aggregating(aggregator) => aggregator.saturation_reasons(&self.plan, self.elapsed),
            WatchedRunSource::Finished(finished) => finished.1.generator.saturated_because.clone(),
        }
    }

    /// The measured time as in the report: without the warm-up and without the time in which the
    /// last requests ended. During the run it is that of the closed seconds, because only their
    /// requests are in the view.
    pub(crate) fn measured_duration(&self) -> Duration {
        let load_duration = match self.finished {
            true => self.load_duration,
            false => self.load_duration.min(Duration::from_secs(self.view().timeline.len() as u64)),
        };
        load_duration.saturating_sub(self.plan.load.warm_up)
    }

    /// The age of the run and when it was read; `None` once the run is over.
    pub(crate) fn age(&self) -> Option<(Instant, Duration)> {
        (!self.finished).then_some((self.polled_at, self.elapsed))
    }

    /// Whether the view is older than it should be, because a worker is lost or the store does not
    /// respond.
    pub(crate) fn is_lagging(&self) -> bool {
        let seen = Duration::from_secs(self.view().timeline.len() as u64);
        !self.finished && self.elapsed + self.polled_at.elapsed() > seen + LAG_ALLOWANCE
    }
}

/// Why a poll failed.
#[derive(Debug, Error)]
enum PollError {
    #[error("the store did not respond within {} s", STORE_TIMEOUT.as_secs())]
    TimedOut,
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What `reading` returns, or an error if the store is too slow.
async fn within_store_timeout<T, E>(reading: impl Future<Output = Result<T, E>>) -> Result<T, PollError>
where
    PollError: From<E>,
{
    Ok(timeout(STORE_TIMEOUT, reading).await.map_err(|_| PollError::TimedOut)??)
}

/// Polls the fleet's run and publishes its seconds to the subscribers.
pub(crate) struct RunWatcher<C: FleetStores> {
    fleet: FleetClient<C>,
    run: RwLock<Option<WatchedRun<C>>>,
    vikhry_ticks: broadcast::Sender<Arc<str>>,
    history: Option<RunSaver>,
    pub(crate) live: LiveFeed,
    pub(crate) counters: Arc<ApiCounters>,
}

impl<C: FleetStores> RunWatcher<C> {
    /// `version` is that of Squall.
    pub(crate) fn new(fleet: FleetClient<C>, version: &'static str) -> RunWatcher<C> {
        RunWatcher {
            fleet,
            run: RwLock::new(None),
            vikhry_ticks: broadcast::Sender::new(VIKHRY_FEED_CAPACITY),
            history: None,
            live: LiveFeed::new(version),
            counters: Arc::default(),
        }
    }

    /// Saves the runs that end from now on.
    pub(crate) fn saving_runs_to(self, folder: Option<Arc<RunFolder>>) -> RunWatcher<C> {
        RunWatcher { history: folder.map(RunSaver::new), ..self }
    }

    /// The current or last run; `None` if there was none.
    pub(crate) async fn current_run(&self) -> RwLockReadGuard<'_, Option<WatchedRun<C>>> {
        self.run.read().await
    }

    /// A receiver of all later messages of vikhry's feed.
    pub(crate) fn vikhry_subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.vikhry_ticks.subscribe()
    }

    pub(crate) fn vikhry_subscriber_count(&self) -> usize {
        self.vikhry_ticks.receiver_count()
    }

    /// Polls until `stop`.
    pub(crate) async fn watch(&self, stop: CancellationToken) {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = polls.tick() => {}
            }
            match self.poll().await {
                Ok(true) => self.vikhry_publish().await,
                Ok(false) => {}
                Err(error) => {
                    self.live.publish(StoreContact::Lost, self.current_run().await.as_ref());
                    self.count_failed_poll(&error);
                }
            }
        }
    }

    /// Updates the run from `status` if the last poll is older, so that one request for the state
    /// of a test gets the latest state.
    pub(crate) async fn catch_up(&self, status: &FleetStatus) {
        let finished = status.phase == RunPhase::Idle;
        let is_latest = |watched: &WatchedRun<C>| watched.is_run_of(status) && watched.finished == finished;
        if self.current_run().await.as_ref().is_some_and(is_latest) {
            return;
        }
        match self.update(status).await {
            Ok(true) => self.vikhry_publish().await,
            Ok(false) => {}
            Err(error) => self.count_failed_poll(&error),
        }
    }

    fn count_failed_poll(&self, error: &PollError) {
        ApiCounters::increment(&self.counters.failed_polls);
        debug!(%error, "the watcher cannot poll the run");
    }

    async fn poll(&self) -> Result<bool, PollError> {
        let status = within_store_timeout(self.fleet.cached_status()).await?;
        let changed = self.update(&status).await?;
        self.publish_live(&status).await?;
        Ok(changed)
    }

    /// Sends the subscribers of the web UI what has changed.
    async fn publish_live(&self, status: &FleetStatus) -> Result<(), FleetError> {
        // The status has no workers between runs, and without subscribers they are not needed.
        let read_workers = status.phase == RunPhase::Idle && self.live.subscriber_count() > 0;
        let idle = if read_workers { self.fleet.cached_workers().await? } else { Vec::new() };
        let workers = if read_workers { &idle } else { &status.workers };
        self.live.publish(StoreContact::Status { status, workers }, self.current_run().await.as_ref());
        Ok(())
    }

    /// Returns whether the run has changed.
    async fn update(&self, status: &FleetStatus) -> Result<bool, PollError> {
        let known = self.run.read().await.as_ref().is_some_and(|watched| watched.is_run_of(status));
        match (known, status.phase) {
            _ if status.epoch == 0 => Ok(false),
            (true, RunPhase::Idle) => Ok(self.load_finished(status).await?),
            (true, _) => self.advance(status).await,
            (false, phase) => {
                self.save_replaced_runs(status.epoch).await?;
                match phase {
                    RunPhase::Idle => Ok(self.load_finished(status).await?),
                    _ => self.start_run(status).await,
                }
            }
        }
    }

    /// Saves the watched run, unless it is saved, and the runs after it up to that of `epoch`: the fleet may start
    /// the next run between two polls.
    async fn save_replaced_runs(&self, epoch: u64) -> Result<(), PollError> {
        let Some(saver) = &self.history else { return Ok(()) };
        let first = self.run.read().await.as_ref().map(|watched| watched.epoch + u64::from(watched.finished));
        let Some(first) = first else { return Ok(()) };
        for replaced in first.max(epoch.saturating_sub(MOST_REPLACED_RUNS))..epoch {
            match self.fleet.stored_result(replaced).await {
                Ok(Some(run)) => {
                    let parts = (&run.plan, &run.view, &run.facts);
                    saver.save(&report_input(&run.bundle, parts, self.live.version()), &run.bundle).await;
                }
                Ok(None) => {}
                Err(FleetError::Store(error)) => return Err(error.into()),
                Err(error) => warn!(epoch = replaced, %error, "the run is not saved"),
            }
        }
        Ok(())
    }

    async fn start_run(&self, status: &FleetStatus) -> Result<bool, PollError> {
        let Some(spec) = &status.spec else { return Ok(false) };
        let Some(bundle) = self.fleet.load_bundle(&spec.bundle).await? else { return Ok(false) };
        let aggregator = RunAggregator::open(self.fleet.stores(), status.epoch, &bundle.plan, WINDOW_S).await?;
        *self.run.write().await = Some(WatchedRun {
            epoch: status.epoch,
            run_id: spec.run_id.clone(),
            plan: bundle.plan.clone(),
            bundle,
            started_ms: 0,
            elapsed: Duration::ZERO,
            load_duration: Duration::ZERO,
            polled_at: Instant::now(),
            notes_read_at: None,
            finished: false,
            saved_as: None,
            cpu: CpuHistory::default(),
            workers: WorkerHistory::default(),
            source: WatchedRunSource::Aggregating(Box::new(aggregator)),
        });
        self.advance(status).await.map(|_| true)
    }

    async fn advance(&self, status: &FleetStatus) -> Result<bool, PollError> {
        let mut watched = self.run.write().await;
        let Some(watched) = watched.as_mut() else { return Ok(false) };
        if let Some(spec) = &status.spec {
            watched.plan.load.model.set_profile(spec.profile.clone());
            watched.started_ms = spec.start_at_ms.unwrap_or(0);
        }
        watched.elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0));
        if status.phase == RunPhase::Running {
            watched.load_duration = watched.elapsed;
            watched.cpu.note(watched.elapsed, status.workers.iter().map(|worker| worker.cpu_percent));
        }
        watched.polled_at = Instant::now();
        let WatchedRunSource::Aggregating(aggregator) = &mut watched.source else { return Ok(false) };
        let rejected_before = aggregator.rejected_entries();
        let merging = async {
            aggregator.update_roster(&status.workers, watched.elapsed).await?;
            if watched.notes_read_at.is_none_or(|at| at.elapsed() >= NOTES_INTERVAL) {
                watched.notes_read_at = Some(Instant::now());
                aggregator.read_person_notes().await?;
            }
            aggregator.poll().await
        };
        let merged = within_store_timeout(merging).await;
        if status.phase == RunPhase::Running {
            watched.workers.note(watched.elapsed, &status.workers, &aggregator.worker_activity());
        }
        self.counters.invalid_deltas.fetch_add(aggregator.rejected_entries().saturating_sub(rejected_before), Relaxed);
        match merged {
            // The store did respond, and nothing is lost: the aggregator continues after the last
            // delta that it merged.
            Err(error @ PollError::TimedOut) => {
                self.count_failed_poll(&error);
                Ok(false)
            }
            merged => Ok(merged? > 0),
        }
    }

    /// Replaces the view with the result that the leader stored.
    async fn load_finished(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        if self.run.read().await.as_ref().is_some_and(|watched| watched.is_run_of(status) && watched.finished) {
            return Ok(false);
        }
        let Some(run) = self.fleet.stored_result(status.epoch).await? else { return Ok(false) };
        let mut watched = self.run.write().await;
        // The result has no figures of workers by second.
        let known = watched.take_if(|watched| watched.is_run_of(status));
        let (cpu, workers) = known.map(|watched| (watched.cpu, watched.workers)).unwrap_or_default();
        *watched = Some(WatchedRun {
            epoch: status.epoch,
            run_id: run_id_of(status).to_owned(),
            bundle: run.bundle,
            plan: run.plan,
            started_ms: run.facts.started_unix_ms,
            elapsed: run.facts.elapsed,
            load_duration: run.facts.active,
            polled_at: Instant::now(),
            notes_read_at: None,
            finished: true,
            saved_as: None,
            cpu,
            workers,
            source: WatchedRunSource::Finished(Box::new((run.view, run.facts))),
        });
        drop(watched);
        let saved_as = match (&self.history, self.run.read().await.as_ref()) {
            (Some(saver), Some(watched)) => match watched.report_input(self.live.version()) {
                Some(report) => saver.save(&report, &watched.bundle).await,
                None => None,
            },
            _ => None,
        };
        if let Some(watched) = self.run.write().await.as_mut().filter(|watched| watched.is_run_of(status)) {
            watched.saved_as = saved_as;
        }
        Ok(true)
    }

    /// Sends one message to all subscribers of vikhry's feed.
    async fn vikhry_publish(&self) {
        if self.vikhry_subscriber_count() == 0 {
            return;
        }
        let payload = vikhry_json::metrics_json(
            self.current_run().await.as_ref(),
            &vikhry_json::MetricsFilter::tick(),
            &self.counters,
        );
        let message = vikhry_json::feed_message("metrics_tick", &payload);
        // The send fails only if the last subscriber has left, which is not an error.
        let _ = self.vikhry_ticks.send(message.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemoryFleetStores, RunStore};
    use squall_model::{EngineLimits, Load, LoadModel, Pause, Plan, Profile, RunSpec, TaskSpec};

    fn bundle(name: &str) -> Bundle {
        let users = Profile::constant(1.0, Duration::from_secs(60)).expect("a load");
        let model = LoadModel::Closed { users, pause: Pause::NONE };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let tasks = vec![TaskSpec::new("a")];
        let plan = Plan { name: name.into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
        let second = Duration::from_secs(1);
        let (slack, grace, late_after) = (second, second, second);
        let limits = EngineLimits { max_users: 10, grace, slack, late_after, ..EngineLimits::default() };
        Bundle::new(plan, limits)
    }

    /// Makes `name` the fleet's run.
    async fn put_run(run: &impl RunStore, name: &str, raise_epoch: bool) {
        let bundle = bundle(name);
        let bundle_id = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
        let spec = RunSpec::new(name, bundle_id, bundle.plan.load.model.profile().clone());
        let (seen, text) = (run.read_record().await.unwrap(), serde_json::to_string(&spec).unwrap());
        run.compare_and_set(&seen, RunPhase::Running.name(), &text, raise_epoch).await.unwrap().expect("alone");
    }

    /// Epoch and name of the watched run.
    async fn watched_run(watcher: &RunWatcher<MemoryFleetStores>) -> Option<(u64, String)> {
        watcher.current_run().await.as_ref().map(|watched| (watched.epoch, watched.plan.name.clone()))
    }

    /// A Redis without persistence counts epochs from 1 again.
    #[tokio::test]
    async fn new_run_with_the_same_epoch_replaces_the_old_one() {
        let cell = MemoryFleetStores::default();
        let (run, watcher) = (cell.run(), RunWatcher::new(FleetClient::new(cell), "test"));
        for (raise, name) in [(true, "first"), (false, "second")] {
            put_run(&run, name, raise).await;
            assert!(watcher.poll().await.unwrap(), "the run has changed");
            assert_eq!(watched_run(&watcher).await, Some((1, name.to_owned())));
        }
    }

    #[tokio::test]
    async fn request_for_the_state_finds_a_new_run_with_the_same_epoch() {
        let cell = MemoryFleetStores::default();
        let (run, watcher) = (cell.run(), RunWatcher::new(FleetClient::new(cell), "test"));
        for (raise, name) in [(true, "first"), (false, "second")] {
            put_run(&run, name, raise).await;
            watcher.catch_up(&watcher.fleet.status().await.unwrap()).await;
            assert_eq!(watched_run(&watcher).await, Some((1, name.to_owned())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn poll_of_a_store_that_does_not_respond_in_time_fails_and_is_counted() {
        let silent = std::future::pending::<Result<(), FleetError>>();
        let error = within_store_timeout(silent).await.unwrap_err();
        assert_eq!(error.to_string(), "the store did not respond within 2 s");
        let watcher = RunWatcher::new(FleetClient::new(MemoryFleetStores::default()), "test");
        watcher.count_failed_poll(&error);
        assert_eq!(watcher.counters.failed_polls.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn age_of_the_run_grows_while_the_store_is_away() {
        let cell = MemoryFleetStores::default();
        let (run, watcher) = (cell.run(), RunWatcher::new(FleetClient::new(cell), "test"));
        put_run(&run, "first", true).await;
        watcher.poll().await.unwrap();
        if let Some(watched) = watcher.run.write().await.as_mut() {
            (watched.elapsed, watched.polled_at) = (Duration::from_secs(5), Instant::now());
        }
        for expected in [7.0, 9.0] {
            tokio::time::advance(Duration::from_secs(2)).await;
            watcher.live.publish(StoreContact::Lost, watcher.current_run().await.as_ref());
            assert_eq!(watcher.live.elapsed_s(), Some(expected));
        }
    }

    #[tokio::test]
    async fn rates_of_a_run_in_progress_are_those_of_its_closed_seconds() {
        let cell = MemoryFleetStores::default();
        let (run, watcher) = (cell.run(), RunWatcher::new(FleetClient::new(cell), "test"));
        put_run(&run, "first", true).await;
        watcher.poll().await.unwrap();
        let mut watched = watcher.run.write().await;
        let watched = watched.as_mut().unwrap();
        watched.load_duration = Duration::from_millis(2_700);
        assert_eq!(watched.view().timeline.len(), 0, "no second has closed");
        assert_eq!(watched.measured_duration(), Duration::ZERO);
    }
}
