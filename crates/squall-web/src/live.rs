//! Follows whatever run the fleet has, so that every orchestrator can show it, leader or not. Decides nothing and merges nothing of its
//! own: the follower does, and when the run is over its leader's final word replaces it.

use squall_coord::FleetStores;
use squall_metrics::RunView;
use squall_model::{Bundle, LoadModel, RunFacts, RunPhase};
use squall_orchestrator::{Fleet, FleetError, FleetStatus, Follower};
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

use crate::shapes;

/// Messages that wait for a slow subscriber; beyond, its oldest is dropped and counted.
pub(crate) const QUEUE: usize = 64;
/// Seconds that are kept for the window of `/metrics`.
pub(crate) const WINDOW_S: u32 = 60;
/// A second is shown this long after it has ended, if nothing is wrong.
const LATEST: Duration = Duration::from_secs(5);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A store that takes longer is asked again at the next look, so that readers here do not wait for it.
const ANSWER: Duration = Duration::from_secs(2);

/// What the API counts about itself.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    /// By token, Host or Origin.
    pub(crate) refused: AtomicU64,
    /// With a body or a query that could not be used.
    pub(crate) bad_requests: AtomicU64,
    /// Pools whose keys hold somebody else's values, whenever one was come across.
    pub(crate) refused_pools: AtomicU64,
    /// Entries in streams of deltas that were none.
    pub(crate) refused_deltas: AtomicU64,
    pub(crate) dropped_messages: AtomicU64,
    pub(crate) failed_looks: AtomicU64,
}

impl Counters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
}

/// A run and where its numbers come from.
pub(crate) struct Shown<C: FleetStores> {
    pub(crate) epoch: u64,
    /// Its name: a store that has forgotten everything gives another one the same epoch.
    run: String,
    /// With the load as it is wanted now.
    pub(crate) bundle: Bundle,
    /// Unix time of its start by the store's clock.
    pub(crate) started_ms: u64,
    pub(crate) elapsed: Duration,
    /// How long load was made: without the time in which what was under way ended.
    active: Duration,
    /// When that was.
    looked: Instant,
    pub(crate) over: bool,
    source: Source<C>,
}

enum Source<C: FleetStores> {
    Following(Box<Follower<C>>),
    Finished(Box<(RunView, RunFacts)>),
}

/// What the order calls the run.
fn name_of(status: &FleetStatus) -> &str {
    status.order.as_ref().map_or("", |order| &order.run)
}

impl<C: FleetStores> Shown<C> {
    /// Whether it is the run that the fleet has.
    fn is_of(&self, status: &FleetStatus) -> bool {
        (self.epoch, self.run.as_str()) == (status.epoch, name_of(status))
    }

    pub(crate) fn view(&self) -> &RunView {
        match &self.source {
            Source::Following(follower) => follower.view(),
            Source::Finished(finished) => &finished.0,
        }
    }

    /// What its leader wrote down when it was over.
    pub(crate) fn facts(&self) -> Option<&RunFacts> {
        match &self.source {
            Source::Following(_) => None,
            Source::Finished(finished) => Some(&finished.1),
        }
    }

    /// How long what is counted was made for: as the report has it, without warm-up and without what was under way at the end.
    pub(crate) fn measured(&self) -> Duration {
        self.active.saturating_sub(self.bundle.plan.load.warm_up)
    }

    /// Whether what is shown is older than it should be: a worker has gone, or the store does not answer.
    pub(crate) fn lags(&self) -> bool {
        let seen = Duration::from_secs(self.view().timeline.len() as u64);
        !self.over && self.elapsed + self.looked.elapsed() > seen + LATEST
    }
}

/// The run as this process sees it.
pub(crate) struct Live<C: FleetStores> {
    fleet: Fleet<C>,
    shown: RwLock<Option<Shown<C>>>,
    ticks: broadcast::Sender<Arc<str>>,
    pub(crate) counters: Arc<Counters>,
}

impl<C: FleetStores> Live<C> {
    pub(crate) fn new(fleet: Fleet<C>) -> Live<C> {
        let ticks = broadcast::Sender::new(QUEUE);
        Live { fleet, shown: RwLock::new(None), ticks, counters: Arc::default() }
    }

    /// The run, if there has been one.
    pub(crate) async fn shown(&self) -> RwLockReadGuard<'_, Option<Shown<C>>> {
        self.shown.read().await
    }

    /// Messages from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.ticks.subscribe()
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.ticks.receiver_count()
    }

    /// Follows until `stop`.
    pub(crate) async fn watch(&self, stop: CancellationToken) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            match self.look().await {
                Ok(true) => self.tell().await,
                Ok(false) => {}
                Err(error) => {
                    Counters::count(&self.counters.failed_looks);
                    debug!(%error, "a look at the run failed");
                }
            }
        }
    }

    /// Shows what `status` tells of, if the last look was before it: whoever asks how a test is need not ask again.
    pub(crate) async fn catch_up(&self, status: &FleetStatus) {
        let (epoch, over) = (status.epoch, status.state == RunPhase::Idle);
        if self.shown().await.as_ref().is_some_and(|shown| (shown.epoch, shown.over) == (epoch, over)) {
            return;
        }
        match self.look_at(status).await {
            Ok(true) => self.tell().await,
            Ok(false) => {}
            Err(error) => debug!(%error, "a look at the run failed"),
        }
    }

    async fn look(&self) -> Result<bool, FleetError> {
        let Ok(status) = timeout(ANSWER, self.fleet.glance()).await else { return Ok(false) };
        self.look_at(&status?).await
    }

    /// Says whether there is something new to show.
    async fn look_at(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let known = self.shown.read().await.as_ref().is_some_and(|shown| shown.is_of(status));
        match (known, status.state) {
            _ if status.epoch == 0 => Ok(false),
            (_, RunPhase::Idle) => self.finish(status).await,
            (true, _) => self.follow(status).await,
            (false, _) => self.open(status).await,
        }
    }

    async fn open(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let Some(order) = &status.order else { return Ok(false) };
        let Some(bundle) = self.fleet.bundle(&order.bundle).await? else { return Ok(false) };
        let follower = Follower::open(self.fleet.cell(), status.epoch, &bundle.plan, WINDOW_S).await?;
        *self.shown.write().await = Some(Shown {
            epoch: status.epoch,
            run: order.run.clone(),
            bundle,
            started_ms: 0,
            elapsed: Duration::ZERO,
            active: Duration::ZERO,
            looked: Instant::now(),
            over: false,
            source: Source::Following(Box::new(follower)),
        });
        self.follow(status).await.map(|_| true)
    }

    async fn follow(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        let mut shown = self.shown.write().await;
        let Some(shown) = shown.as_mut() else { return Ok(false) };
        if let Some(order) = &status.order {
            let load = &mut shown.bundle.plan.load.model;
            let (LoadModel::Open { rate: profile, .. } | LoadModel::Closed { users: profile, .. }) = load;
            *profile = order.profile.clone();
            shown.started_ms = order.start_at_ms.unwrap_or(0);
        }
        shown.elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
        if status.state == RunPhase::Running {
            shown.active = shown.elapsed;
        }
        shown.looked = Instant::now();
        let Source::Following(follower) = &mut shown.source else { return Ok(false) };
        let before = follower.refused();
        let following = async {
            follower.look_at(&status.workers, shown.elapsed).await?;
            follower.follow().await
        };
        // Giving up in the middle loses nothing: the follower goes on from the last delta that it has merged.
        let followed = timeout(ANSWER, following).await.unwrap_or(Ok(0));
        self.counters.refused_deltas.fetch_add(follower.refused().saturating_sub(before), Relaxed);
        Ok(followed? > 0)
    }

    /// Takes over what the leader wrote down.
    async fn finish(&self, status: &FleetStatus) -> Result<bool, FleetError> {
        if self.shown.read().await.as_ref().is_some_and(|shown| shown.is_of(status) && shown.over) {
            return Ok(false);
        }
        let Some(run) = self.fleet.finished(status.epoch).await? else { return Ok(false) };
        *self.shown.write().await = Some(Shown {
            epoch: status.epoch,
            run: name_of(status).to_owned(),
            bundle: run.bundle,
            started_ms: run.facts.started_unix_ms,
            elapsed: run.facts.elapsed,
            active: run.facts.active,
            looked: Instant::now(),
            over: true,
            source: Source::Finished(Box::new((run.view, run.facts))),
        });
        Ok(true)
    }

    /// One message for everybody who listens.
    async fn tell(&self) {
        if self.ticks.receiver_count() == 0 {
            return;
        }
        let payload = shapes::metrics(self.shown().await.as_ref(), &shapes::Wanted::tick(), &self.counters);
        let message = shapes::message("metrics_tick", &payload);
        // Nobody listening any more is no mistake.
        let _ = self.ticks.send(message.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemoryFleetStores, RunStore};
    use squall_model::{WorkerLimits, Load, Pause, Plan, Profile, RunSpec, TaskSpec};

    fn bundle(name: &str) -> Bundle {
        let users = Profile::constant(1.0, Duration::from_secs(60)).expect("a load");
        let model = LoadModel::Closed { users, pause: Pause::NONE };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let tasks = vec![TaskSpec::new("a")];
        let plan = Plan { name: name.into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
        let second = Duration::from_secs(1);
        let (slack, grace, late_after) = (second, second, second);
        let limits = WorkerLimits { threads: None, max_users: 10, grace, slack, late_after, phases: false };
        let (arguments, together) = (Vec::new(), Vec::new());
        Bundle { plan, arguments, files: [].into(), env: [].into(), limits, hooks: false, together }
    }

    /// A Redis without persistence counts epochs from 1 again.
    #[tokio::test]
    async fn another_run_with_the_same_epoch_is_shown_instead() {
        let cell = MemoryFleetStores::default();
        let (run, live) = (cell.run(), Live::new(Fleet::new(cell)));
        for (raise, name) in [(true, "first"), (false, "second")] {
            let bundle = bundle(name);
            let kept = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
            let order = RunSpec::new(name, kept, bundle.plan.load.model.profile().clone());
            let (seen, text) = (run.read_record().await.unwrap(), serde_json::to_string(&order).unwrap());
            run.compare_and_set(&seen, RunPhase::Running.name(), &text, raise).await.unwrap().expect("alone");
            assert!(live.look().await.unwrap(), "there is something new");
            let shown = live.shown().await;
            let shown = shown.as_ref().map(|shown| (shown.epoch, shown.bundle.plan.name.as_str()));
            assert_eq!(shown, Some((1, name)));
        }
    }
}
