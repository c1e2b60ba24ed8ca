//! A fleet for tests: an orchestrator and workers that hold shares and report, but make no load.
//! That is enough for a leader to lead a run from phase to phase. On the in-memory store it also
//! runs on paused time.

use squall_coord::{FleetStores, MemoryFleetStores, RedisClient, RedisFleetStores, RunStore, fleet_key_prefix};
use squall_model::{
    Bundle, EngineLimits, Load, LoadModel, Pause, Plan, Profile, RunPhase, RunSpec, ShareSet, TaskSpec,
    protocol::{ProtocolVersion, WorkerHealth, WorkerReport},
};
use squall_orchestrator::{FleetClient, Orchestrator, OrchestratorConfig};
use squall_testkit::redis::RedisServer;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// Longest wait for a condition; only a failing test reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A fleet without load.
pub(crate) struct FleetFixture<S = RedisFleetStores> {
    pub(crate) stores: S,
    pub(crate) fleet: FleetClient<S>,
    redis: Option<(RedisClient, RedisServer)>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// The shares that a worker reports. It stops reporting when this becomes `None`.
pub(crate) type ReportedShares = Arc<Mutex<Option<ShareSet>>>;

impl FleetFixture<MemoryFleetStores> {
    /// A fleet in memory, for tests on paused time.
    pub(crate) fn in_memory() -> FleetFixture<MemoryFleetStores> {
        FleetFixture::with_stores(MemoryFleetStores::default(), None)
    }
}

impl FleetFixture {
    pub(crate) async fn on_redis() -> FleetFixture {
        let server = RedisServer::start();
        let client = RedisClient::open(&server.url()).await.expect("the server runs");
        FleetFixture::with_stores(RedisFleetStores::new(&client, "t"), Some((client, server)))
    }

    /// Runs one command on a key of the fleet.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, command: &str, key: &str, rest: &[&str]) -> T {
        let mut asked = redis::cmd(command);
        asked.arg(format!("{}{key}", fleet_key_prefix("t"))).arg(rest);
        self.query(&asked).await
    }

    pub(crate) async fn query<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let (client, _) = self.redis.as_ref().expect("a fleet on Redis");
        command.query_async(&mut client.connection()).await.expect("Redis answers")
    }

    /// Repeats a command until it returns `expected`.
    pub(crate) async fn until<T: redis::FromRedisValue + PartialEq + std::fmt::Debug>(
        &self,
        command: &str,
        key: &str,
        expected: T,
    ) {
        let began = Instant::now();
        loop {
            let found: T = self.ask(command, key, &[]).await;
            if found == expected {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "{command} {key}: {found:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl FleetFixture {
    pub(crate) fn redis_client(&self) -> RedisClient {
        self.redis.as_ref().expect("a fleet on Redis").0.clone()
    }

    /// What all keys of the fleet begin with.
    pub(crate) fn key_prefix(&self) -> String {
        fleet_key_prefix("t")
    }

    /// Waits until a field of a hash has the value `expected`.
    pub(crate) async fn until_field(&self, key: &str, field: &str, expected: &str) {
        self.until_true(expected, async || {
            self.ask::<Option<String>>("HGET", key, &[field]).await.as_deref() == Some(expected)
        })
        .await;
    }
}

impl<S: FleetStores> FleetFixture<S> {
    fn with_stores(stores: S, redis: Option<(RedisClient, RedisServer)>) -> FleetFixture<S> {
        let fleet = FleetClient::new(stores.clone());
        FleetFixture { stores, fleet, redis, tasks: JoinSet::new(), stop: CancellationToken::new() }
    }

    /// Starts an orchestrator, which ends when the returned token is cancelled.
    pub(crate) fn lead(&mut self) -> CancellationToken {
        self.lead_with(self.stores.clone())
    }

    /// Starts an orchestrator with its own access to the stores.
    pub(crate) fn lead_with(&mut self, stores: impl FleetStores) -> CancellationToken {
        let stop = self.stop.child_token();
        let orchestrator_stop = stop.clone();
        self.tasks.spawn(async move {
            let orchestrator = Orchestrator::new(stores, OrchestratorConfig::new("o"));
            orchestrator.run(orchestrator_stop).await.expect("valid timings");
        });
        stop
    }

    /// Starts a worker that reports `shares`.
    pub(crate) fn join(&mut self, id: &str, shares: ShareSet) -> ReportedShares {
        self.join_with_protocol(id, shares, ProtocolVersion::CURRENT)
    }

    /// Starts a worker whose reports name a protocol version.
    pub(crate) fn join_with_protocol(
        &mut self,
        id: &str,
        shares: ShareSet,
        protocol: ProtocolVersion,
    ) -> ReportedShares {
        let shares: ReportedShares = Arc::new(Mutex::new(Some(shares)));
        self.tasks.spawn(report(self.stores.run(), (id.to_owned(), protocol), shares.clone(), self.stop.clone()));
        shares
    }

    /// Runs a task that ends when the fleet ends.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(CancellationToken) -> F) {
        self.tasks.spawn(task(self.stop.clone()));
    }

    pub(crate) async fn until_workers_at_least(&self, count: usize) {
        self.until_true("workers", async || self.stores.run().reports().await.unwrap().len() >= count).await;
    }

    /// Waits until `count` workers report.
    pub(crate) async fn until_workers(&self, count: usize) {
        self.until_true("the number of workers", async || self.stores.run().reports().await.unwrap().len() == count)
            .await;
    }

    /// Waits until the run is in `phase`.
    pub(crate) async fn until_phase(&self, phase: RunPhase) {
        self.until_true(phase.name(), async || self.fleet.status().await.unwrap().phase == phase).await;
    }

    /// Waits until the record of the run satisfies `condition`.
    pub(crate) async fn until_spec(&self, what: &str, condition: impl Fn(&RunSpec) -> bool) {
        self.until_true(what, async || condition(&self.run_spec().await)).await;
    }

    /// Waits until the leader has saved a checkpoint that contains `text`.
    pub(crate) async fn until_saved(&self, epoch: u64, text: &str) {
        self.until_true(text, async || {
            let saved = self.stores.run().load_checkpoint(epoch).await.unwrap();
            saved.is_some_and(|saved| saved.data.windows(text.len()).any(|part| part == text.as_bytes()))
        })
        .await;
    }

    pub(crate) async fn until_true(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !condition().await {
            assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn run_spec(&self) -> RunSpec {
        serde_json::from_str(&self.stores.run().read_record().await.unwrap().spec).expect("a run spec")
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A closed load of `users` for a minute.
pub(crate) fn bundle(users: f64) -> Bundle {
    let profile = Profile::constant(users, Duration::from_secs(60)).expect("a load");
    bundle_of(LoadModel::Closed { users: profile, pause: Pause::NONE })
}

pub(crate) fn bundle_of(model: LoadModel) -> Bundle {
    let plan = Plan {
        name: "p".into(),
        target: "t".into(),
        load: Load { model, iterations: None, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new("a")],
        thresholds: Vec::new(),
        seed: 1,
    };
    let limits = EngineLimits {
        start_users: None,
        threads: None,
        max_users: 10,
        grace: Duration::from_secs(1),
        slack: Duration::from_millis(1),
        late_after: Duration::from_millis(10),
        phases: false,
    };
    Bundle::new(plan, limits)
}

async fn report<R: RunStore>(
    run: R,
    (id, protocol): (String, ProtocolVersion),
    reported: ReportedShares,
    stop: CancellationToken,
) {
    // A different instance for each name.
    let instance = id.bytes().fold(7u64, |sum, byte| sum * 31 + u64::from(byte));
    while !stop.is_cancelled() {
        let Some(shares) = *reported.lock().expect("no panic") else { return };
        let record = run.read_record().await.expect("the store answers");
        let ended = matches!(RunPhase::from_name(&record.state), Some(RunPhase::Stopping | RunPhase::Idle));
        let done = if ended { record.epoch } else { 0 };
        let report = WorkerReport {
            protocol,
            health: WorkerHealth::Healthy,
            instance,
            ready: record.epoch,
            done,
            share_count: shares.len(),
            held: shares,
            takes_user_ids: true,
            ..WorkerReport::default()
        };
        run.report(&id, &report.encode(), Duration::from_millis(3500)).await.expect("the store answers");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
