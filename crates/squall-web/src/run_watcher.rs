//! Follows whatever run the fleet has, so that every orchestrator can show it, leader or not. Decides nothing and merges nothing of its
//! own: the follower does, and when the run is over its leader's final word replaces it.

use squall_coord::FleetStores;
use squall_metrics::RunView;
use squall_model::{Bundle, LoadModel, RunFacts, RunPhase};
use squall_orchestrator::{FleetClient, FleetError, FleetStatus, RunAggregator};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{RwLock, RwLockReadGuard, broadcast},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::vikhry_json;

/// Messages that wait for a slow subscriber; beyond, its oldest is dropped and counted.
pub(crate) const FEED_CAPACITY: usize = 64;
/// Seconds that are kept for the window of `/metrics`.
pub(crate) const WINDOW_S: u32 = 60;
/// A second is shown this long after it has ended, if nothing is wrong.
const LAG_ALLOWANCE: Duration = Duration::from_secs(5);
/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A store that takes longer is asked again at the next look, so that readers here do not wait for it.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the API counts about itself.
#[derive(Debug, Default)]
pub(crate) struct ApiCounters {
    pub(crate) requests: AtomicU64,
    /// By token, Host or Origin.
    pub(crate) denied_requests: AtomicU64,
    /// With a body or a query that could not be used.
    pub(crate) bad_requests: AtomicU64,
    /// Pools whose keys hold somebody else's values, whenever one was come across.
    pub(crate) unusable_pools: AtomicU64,
    /// Entries in streams of deltas that were none.
    pub(crate) invalid_deltas: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) failed_polls: AtomicU64,
}

impl ApiCounters {
    pub(crate) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// A run and where its numbers come from.
pub(crate) struct WatchedRun<C: FleetStores> {
    pub(crate) epoch: u64,
    /// Its name: a store that has forgotten everything gives another one the same epoch.
    run_name: String,
    /// With the load as it is wanted now.
    pub(crate) bundle: Bundle,
    /// Unix time of its start by the store's clock.
    pub(crate) started_ms: u64,
    pub(crate) elapsed: Duration,
    /// How long load was made: without the time in which what was under way ended.
    load_duration: Duration,
    /// When that was.
    polled_at: Instant,
    pub(crate) finished: bool,
    source: WatchedRunSource<C>,
}

enum WatchedRunSource<C: FleetStores> {
    Aggregating(Box<RunAggregator<C>>),
    Finished(Box<(RunView, RunFacts)>),
}

/// What the order calls the run.
fn run_name(status: &FleetStatus) -> &str {
    status.order.as_ref().map_or("", |order| &order.run)
}

impl<C: FleetStores> WatchedRun<C> {
    /// Whether it is the run that the fleet has.
    fn is_run_of(&self, status: &FleetStatus) -> bool {
        (self.epoch, self.run_name.as_str()) == (status.epoch, run_name(status))
    }

    pub(crate) fn view(&self) -> &RunView {
        match &self.source {
            WatchedRunSource::Aggregating(follower) => follower.view(),
            WatchedRunSource::Finished(finished) => &finished.0,
        }
    }

    /// What its leader wrote down when it was over.
    pub(crate) fn facts(&self) -> Option<&RunFacts> {
        match &self.source {
            WatchedRunSource::Aggregating(_) => None,
            WatchedRunSource::Finished(finished) => Some(&finished.1),
        }
    }

    /// How long what is counted was made for: as the report has it, without warm-up and without what was under way at the end.
    pub(crate) fn measured_duration(&self) -> Duration {
        self.load_duration.saturating_sub(self.bundle.plan.load.warm_up)
    }

    /// Whether what is shown is older than it should be: a worker has gone, or the store does not answer.
    pub(crate) fn is_lagging(&self) -> bool {
        let seen = Duration::from_secs(self.view().timeline.len() as u64);
        !self.finished && self.elapsed + self.polled_at.elapsed() > seen + LAG_ALLOWANCE
    }
}

/// The run as this process sees it.
pub(crate) struct RunWatcher<C: FleetStores> {
    fleet: FleetClient<C>,
    run: RwLock<Option<WatchedRun<C>>>,
    ticks: broadcast::Sender<Arc<str>>,
    pub(crate) counters: Arc<ApiCounters>,
}

impl<C: FleetStores> RunWatcher<C> {
    pub(crate) fn new(fleet: FleetClient<C>) -> RunWatcher<C> {
        let ticks = broadcast::Sender::new(FEED_CAPACITY);
        RunWatcher { fleet, run: RwLock::new(None), ticks, counters: Arc::default() }
    }

    /// The run, if there has been one.
    pub(crate) async fn current_run(&self) -> RwLockReadGuard<'_, Option<WatchedRun<C>>> {
        self.run.read().await
    }

    /// Messages from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.ticks.subscribe()
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        self.ticks.receiver_count()
    }

    /// Follows until `stop`.
    pub(crate) async fn watch(&self, stop: CancellationToken) {
        let mut looks = interval(POLL_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            match self.poll().await {
                Ok(true) => self.publish().await,
                Ok(false) => {}
                Err(error) => {
                    ApiCounters::increment(&self.counters.failed_polls);
                    debug!(%error, "a look at the run failed");
                }
            }
        }
    }

    /// Shows what `status` tells of, if the last look was before it: whoever asks how a test is need not ask again.
    pub(crate) async fn catch_up(&self, status: &FleetStatus) {
        let (epoch, over) = (status.epoch, status.state == RunPhase::Idle);
        if self.current_run().await.as_ref().is_some_and(|shown| (shown.epoch, shown.finished) == (epoch, over)) {
            return;
        }
        match self.update(status).await {
            Ok(true) => self.publish().await,
            Ok(false) => {}
            Err(error) => debug!(%error, "a look at the run failed"),
        }
    }

    async fn poll(&self) -> Result<bool, FleetError> {
        let Ok(status) = timeout(STORE_TIMEOUT, self.fleet.cached_status()).await else { return Ok(false) };
        self.update(&status?).await
    }

    /// Says whether there is something new to show.
    async fn update(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let known = self.run.read().await.as_ref().is_some_and(|shown| shown.is_run_of(status));
        match (known, status.state) {
            _ if status.epoch == 0 => Ok(false),
            (_, RunPhase::Idle) => self.load_finished(status).await,
            (true, _) => self.advance(status).await,
            (false, _) => self.start_run(status).await,
        }
    }

    async fn start_run(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let Some(order) = &status.order else { return Ok(false) };
        let Some(bundle) = self.fleet.load_bundle(&order.bundle).await? else { return Ok(false) };
        let follower = RunAggregator::open(self.fleet.stores(), status.epoch, &bundle.plan, WINDOW_S).await?;
        *self.run.write().await = Some(WatchedRun {
            epoch: status.epoch,
            run_name: order.run.clone(),
            bundle,
            started_ms: 0,
            elapsed: Duration::ZERO,
            load_duration: Duration::ZERO,
            polled_at: Instant::now(),
            finished: false,
            source: WatchedRunSource::Aggregating(Box::new(follower)),
        });
        self.advance(status).await.map(|_| true)
    }

    async fn advance(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let mut shown = self.run.write().await;
        let Some(shown) = shown.as_mut() else { return Ok(false) };
        if let Some(order) = &status.order {
            let load = &mut shown.bundle.plan.load.model;
            let (LoadModel::Open { rate: profile, .. } | LoadModel::Closed { users: profile, .. }) = load;
            *profile = order.profile.clone();
            shown.started_ms = order.start_at_ms.unwrap_or(0);
        }
        shown.elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
        if status.state == RunPhase::Running {
            shown.load_duration = shown.elapsed;
        }
        shown.polled_at = Instant::now();
        let WatchedRunSource::Aggregating(follower) = &mut shown.source else { return Ok(false) };
        let before = follower.rejected_entries();
        let following = async {
            follower.update_roster(&status.workers, shown.elapsed).await?;
            follower.poll().await
        };
        // Giving up in the middle loses nothing: the follower goes on from the last delta that it has merged.
        let followed = timeout(STORE_TIMEOUT, following).await.unwrap_or(Ok(0));
        self.counters.invalid_deltas.fetch_add(follower.rejected_entries().saturating_sub(before), Relaxed);
        Ok(followed? > 0)
    }

    /// Takes over what the leader wrote down.
    async fn load_finished(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        if self.run.read().await.as_ref().is_some_and(|shown| shown.is_run_of(status) && shown.finished) {
            return Ok(false);
        }
        let Some(run) = self.fleet.stored_result(status.epoch).await? else { return Ok(false) };
        *self.run.write().await = Some(WatchedRun {
            epoch: status.epoch,
            run_name: run_name(status).to_owned(),
            bundle: run.bundle,
            started_ms: run.facts.started_unix_ms,
            elapsed: run.facts.elapsed,
            load_duration: run.facts.active,
            polled_at: Instant::now(),
            finished: true,
            source: WatchedRunSource::Finished(Box::new((run.view, run.facts))),
        });
        Ok(true)
    }

    /// One message for everybody who listens.
    async fn publish(&self) {
        if self.ticks.receiver_count() == 0 {
            return;
        }
        let payload = vikhry_json::metrics_json(
            self.current_run().await.as_ref(),
            &vikhry_json::MetricsFilter::tick(),
            &self.counters,
        );
        let message = vikhry_json::feed_message("metrics_tick", &payload);
        // Nobody listening any more is no mistake.
        let _ = self.ticks.send(message.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemoryFleetStores, RunStore};
    use squall_model::{EngineLimits, Load, Pause, Plan, Profile, RunSpec, TaskSpec};

    fn bundle(name: &str) -> Bundle {
        let users = Profile::constant(1.0, Duration::from_secs(60)).expect("a load");
        let model = LoadModel::Closed { users, pause: Pause::NONE };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let tasks = vec![TaskSpec::new("a")];
        let plan = Plan { name: name.into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
        let second = Duration::from_secs(1);
        let (slack, grace, late_after) = (second, second, second);
        let limits = EngineLimits { threads: None, max_users: 10, grace, slack, late_after, phases: false };
        Bundle::new(plan, limits)
    }

    /// A Redis without persistence counts epochs from 1 again.
    #[tokio::test]
    async fn another_run_with_the_same_epoch_is_shown_instead() {
        let cell = MemoryFleetStores::default();
        let (run, live) = (cell.run(), RunWatcher::new(FleetClient::new(cell)));
        for (raise, name) in [(true, "first"), (false, "second")] {
            let bundle = bundle(name);
            let kept = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
            let order = RunSpec::new(name, kept, bundle.plan.load.model.profile().clone());
            let (seen, text) = (run.read_record().await.unwrap(), serde_json::to_string(&order).unwrap());
            run.compare_and_set(&seen, RunPhase::Running.name(), &text, raise).await.unwrap().expect("alone");
            assert!(live.poll().await.unwrap(), "there is something new");
            let shown = live.current_run().await;
            let shown = shown.as_ref().map(|shown| (shown.epoch, shown.bundle.plan.name.as_str()));
            assert_eq!(shown, Some((1, name)));
        }
    }
}
