//! A Squall worker under vikhry's orchestrator. A stand-in plays the orchestrator: it writes the same
//! keys and sends the same commands in the same order, and nothing else.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore};
use squall_engine::{Driver, DriverError, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_metrics::{MetricKey, MetricKind, Outcome};
use squall_model::{Bundle, Load, LoadModel, Pause, Profile, RunSpec, RunStopRequest, StopReason};
use squall_testkit::redis::RedisServer;
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{TEST_TIMEOUT, bundle_of, only_scenario};

/// Users that count their iterations, each with one request.
#[derive(Clone, Default)]
struct CountingDriver {
    iterations: Arc<AtomicU64>,
    params: Arc<Mutex<BTreeMap<String, String>>>,
    /// The numbers of all users; ids count from 1 and numbers from 0.
    users: Arc<Mutex<BTreeSet<u64>>>,
    /// Whether the scenario has a probe beside its users, and whether this driver is that probe.
    probe: ProbeRole,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum ProbeRole {
    #[default]
    None,
    Declared,
    Runs,
}

struct CountingThread(CountingDriver, ThreadRecorder);

struct CountingUser(CountingDriver, ThreadRecorder);

impl DriverFactory for CountingDriver {
    type Driver = CountingDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<CountingDriver>, OpenBundleError> {
        *self.params.lock().expect("no panic") = bundle.params.clone();
        let mut scenarios = vec![only_scenario(bundle, self.clone(), 1)];
        if self.probe == ProbeRole::Declared {
            let mut probe = only_scenario(&scenario(), CountingDriver { probe: ProbeRole::Runs, ..self.clone() }, 1);
            let users = Profile::constant(1.0, Duration::from_secs(600)).expect("a load");
            (probe.plan.load.model, probe.background) = (LoadModel::Closed { users, pause: Pause::NONE }, true);
            scenarios.push(probe);
        }
        Ok(RunnableBundle { scenarios, pools: Vec::new(), shared_counters: Vec::new(), hooks: None })
    }
}

impl Driver for CountingDriver {
    type Thread = CountingThread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<CountingThread, DriverError> {
        Ok(CountingThread(self.clone(), recorder))
    }
}

impl DriverThread for CountingThread {
    type User = CountingUser;

    fn user(&self, identity: UserIdentity) -> CountingUser {
        self.0.users.lock().expect("no panic").insert(identity.number);
        CountingUser(self.0.clone(), self.1.clone())
    }
}

impl VirtualUser for CountingUser {
    async fn iterate(&mut self, _: Iteration) -> bool {
        let started = Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
        if self.0.probe == ProbeRole::Runs {
            let value = MetricKey { kind: MetricKind::Custom, ..MetricKey::request("depth") };
            let ended = started + Duration::from_millis(42);
            self.1.record_span(self.1.metric(value), started, ended, Outcome::of_status(200));
            let call = self.1.metric(MetricKey::group("probe/depth"));
            self.1.record_span(call, started, Instant::now(), Outcome::of_status(200));
            return true;
        }
        let metric = self.1.metric(MetricKey::group("look"));
        self.1.record_span(metric, started, Instant::now(), Outcome::of_status(200));
        self.0.iterations.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// vikhry's orchestrator, on keys without a prefix.
struct OldOrchestrator {
    client: RedisClient,
    epoch: u64,
    started: Instant,
}

impl OldOrchestrator {
    async fn ask<T: redis::FromRedisValue>(&self, command: &str, arguments: &[&str]) -> T {
        redis::cmd(command).arg(arguments).query_async(&mut self.client.connection()).await.expect("Redis answers")
    }

    async fn send(&self, kind: &str, payload: serde_json::Value) {
        let sent_at = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let command = serde_json::json!({
            "type": kind, "command_id": "8c6b7b0e-8f39-4f28-9d2c-61b50e0a6a40", "epoch": self.epoch,
            "sent_at": sent_at, "payload": payload,
        });
        let receivers: u64 = self.ask("PUBLISH", &["worker:w:commands", &command.to_string()]).await;
        assert_eq!(receivers, 1, "the worker is subscribed");
    }

    /// Starts a test with users that this worker gets.
    async fn start_test(&mut self, users: &[u64]) {
        self.ask::<()>("SET", &["test:state", "PREPARING"]).await;
        self.epoch = self.ask("INCR", &["test:epoch"]).await;
        let params = serde_json::json!({"page": 3, "region": "eu"});
        self.send("start_test", serde_json::json!({"target_users": users.len() * 2, "init_params": params})).await;
        for user in users {
            self.ask::<u64>("HSET", &[&format!("user:{user}"), "status", "pending", "worker_id", "w"]).await;
            self.send("add_user", serde_json::json!({"user_id": user})).await;
        }
        self.ask::<()>("SET", &["test:state", "RUNNING"]).await;
    }

    async fn stop_test(&self) {
        self.ask::<()>("SET", &["test:state", "STOPPING"]).await;
        self.send("stop_test", serde_json::json!({})).await;
        self.ask::<()>("SET", &["test:state", "IDLE"]).await;
    }

    async fn active(&self) -> BTreeSet<u64> {
        self.ask("SMEMBERS", &["worker:w:active_users"]).await
    }

    /// Why the worker takes no part; empty if it does.
    async fn message(&self) -> String {
        self.ask::<Option<String>>("HGET", &["worker:w:status", "message"]).await.unwrap_or_default()
    }

    /// A worker with a scenario.
    async fn start_worker(&self, driver: &CountingDriver, stop: &CancellationToken) -> JoinHandle<()> {
        let config = WorkerConfig { scenario: Some(scenario()), ..WorkerConfig::new("w") };
        self.start_worker_with(config, driver, stop).await
    }

    /// Returns when the worker has subscribed to its commands.
    async fn start_worker_with(
        &self,
        config: WorkerConfig,
        driver: &CountingDriver,
        stop: &CancellationToken,
    ) -> JoinHandle<()> {
        let working = Worker::new(RedisFleetStores::new(&self.client, ""), driver.clone(), config).run(stop.clone());
        let task = tokio::spawn(async move { working.await.expect("the worker leaves in good order") });
        self.until("the worker", async || self.ask::<u64>("SCARD", &["workers"]).await == 1).await;
        let subscribed = ["NUMSUB", "worker:w:commands"];
        self.until("the subscription", async || self.ask::<(String, u64)>("PUBSUB", &subscribed).await.1 == 1).await;
        task
    }

    async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        while !condition().await {
            assert!(self.started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn scenario() -> Bundle {
    let users = Profile::constant(1.0, Duration::from_secs(1)).unwrap();
    let model = LoadModel::Closed { users, pause: Pause::NONE };
    bundle_of(Load { model, iterations: None, warm_up: Duration::ZERO }, Duration::from_secs(1))
}

#[tokio::test]
async fn squall_worker_runs_the_users_that_vikhrys_orchestrator_gives_it() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker(&driver, &stop).await;
    // vikhry reads whole seconds.
    let heartbeat: String = orchestrator.ask("HGET", &["worker:w:status", "last_heartbeat"]).await;
    assert!(heartbeat.parse::<u64>().is_ok_and(|at| at > 1_600_000_000), "{heartbeat}");

    for run in 1..=2 {
        let before = driver.iterations.load(Ordering::SeqCst);
        orchestrator.ask::<u64>("DEL", &["metrics", "metric:look"]).await;
        orchestrator.start_test(&[2, 4, 6]).await;
        orchestrator.until("three users", async || orchestrator.active().await == BTreeSet::from([2, 4, 6])).await;
        let params = driver.params.lock().unwrap().clone();
        assert_eq!(params, [("page", "3"), ("region", "eu")].map(|(a, b)| (a.to_owned(), b.to_owned())).into());
        orchestrator.send("remove_user", serde_json::json!({"user_id": 6})).await;
        orchestrator.until("two users", async || orchestrator.active().await == BTreeSet::from([2, 4])).await;
        orchestrator.send("add_user", serde_json::json!({"user_id": 8})).await;
        orchestrator.until("a new user", async || orchestrator.active().await == BTreeSet::from([2, 4, 8])).await;
        orchestrator.stop_test().await;
        orchestrator.until("no user", async || orchestrator.active().await.is_empty()).await;
        // Each iteration is one event, as vikhry counts them.
        let made = driver.iterations.load(Ordering::SeqCst) - before;
        assert!(made > 0, "run {run}");
        orchestrator
            .until("every event", async || orchestrator.ask::<u64>("XLEN", &["metric:look"]).await == made)
            .await;
        let entry: Vec<(String, BTreeMap<String, String>)> =
            orchestrator.ask("XRANGE", &["metric:look", "-", "+", "COUNT", "1"]).await;
        let event: serde_json::Value = serde_json::from_str(&entry[0].1["data"]).unwrap();
        let fields = [&event["worker_id"], &event["source"], &event["status"], &event["result_code"]];
        assert_eq!(
            fields,
            [
                &serde_json::json!("w"),
                &serde_json::json!("step"),
                &serde_json::json!(true),
                &serde_json::json!("HTTP_200")
            ]
        );
        assert!(event["time"].as_f64().is_some_and(|time| time >= 20.0), "{event}");
    }
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn run_of_squalls_orchestrator_is_not_repeated_under_vikhrys() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let run_store = RedisFleetStores::new(&client, "").run();
    // A run of Squall's orchestrator that was stopped; its record and its bundle stay.
    let users = Profile::constant(5.0, Duration::from_secs(600)).unwrap();
    let mut earlier = scenario();
    earlier.plan.load.model = LoadModel::Closed { users: users.clone(), pause: Pause::NONE };
    let name = run_store.put_bundle(&serde_json::to_vec(&earlier).unwrap()).await.unwrap();
    let mut spec = RunSpec { start_at_ms: Some(1), ..RunSpec::new("earlier", name, users) };
    let reason = StopReason::Interrupted;
    spec.stop = Some(RunStopRequest { reason, abort: false, asked_at_ms: 2, message: None });
    let seen = run_store.read_record().await.unwrap();
    run_store.compare_and_set(&seen, "IDLE", &spec.encode(), true).await.unwrap().expect("no other writer");

    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker(&driver, &stop).await;
    for _ in 0..2 {
        orchestrator.ask::<u64>("DEL", &["metrics", "metric:look"]).await;
        orchestrator.start_test(&[1, 2, 3]).await;
        orchestrator.until("three users", async || orchestrator.active().await == BTreeSet::from([1, 2, 3])).await;
        orchestrator.until("events", async || orchestrator.ask::<u64>("XLEN", &["metric:look"]).await > 0).await;
        assert_eq!(orchestrator.active().await, BTreeSet::from([1, 2, 3]));
        orchestrator.stop_test().await;
        orchestrator.until("no user", async || orchestrator.active().await.is_empty()).await;
    }
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn users_of_a_stopped_test_are_not_active_in_the_next_one_that_follows_at_once() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker(&driver, &stop).await;
    orchestrator.start_test(&[1, 2, 3]).await;
    orchestrator.until("three users", async || orchestrator.active().await == BTreeSet::from([1, 2, 3])).await;
    // vikhry's orchestrator does not wait for the end of a test.
    orchestrator.stop_test().await;
    orchestrator.start_test(&[7]).await;
    orchestrator.until("only the new user", async || orchestrator.active().await == BTreeSet::from([7])).await;
    orchestrator.stop_test().await;
    orchestrator.until("no user", async || orchestrator.active().await.is_empty()).await;
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn code_of_a_user_sees_the_id_that_vikhrys_orchestrator_gave_it() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker(&driver, &stop).await;
    // Another worker has the users with odd ids.
    orchestrator.start_test(&[2, 4, 6]).await;
    orchestrator.until("three users", async || orchestrator.active().await == BTreeSet::from([2, 4, 6])).await;
    assert_eq!(*driver.users.lock().unwrap(), BTreeSet::from([1, 3, 5]));
    orchestrator.stop_test().await;
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn probes_run_only_with_the_flag_and_have_streams_of_their_own() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    for run_probes in [false, true] {
        let driver = CountingDriver { probe: ProbeRole::Declared, ..CountingDriver::default() };
        let (stop, users) = (CancellationToken::new(), if run_probes { [2] } else { [1] });
        let config = WorkerConfig { scenario: Some(scenario()), run_probes, ..WorkerConfig::new("w") };
        let task = orchestrator.start_worker_with(config, &driver, &stop).await;
        orchestrator.ask::<u64>("DEL", &["metrics", "metric:look"]).await;
        orchestrator.start_test(&users).await;
        orchestrator.until("events", async || orchestrator.ask::<u64>("XLEN", &["metric:look"]).await > 0).await;
        if run_probes {
            orchestrator.until("probes", async || orchestrator.ask::<u64>("XLEN", &["probe:depth"]).await > 0).await;
            let entry: Vec<(String, BTreeMap<String, String>)> =
                orchestrator.ask("XRANGE", &["probe:depth", "-", "+", "COUNT", "1"]).await;
            let event: serde_json::Value = serde_json::from_str(&entry[0].1["data"]).unwrap();
            assert_eq!((&event["name"], &event["status"]), (&"depth".into(), &true.into()), "{event}");
            assert_eq!(event["value"].as_f64().map(f64::round), Some(42.0), "{event}");
        }
        orchestrator.stop_test().await;
        orchestrator.until("no user", async || orchestrator.active().await.is_empty()).await;
        stop.cancel();
        task.await.expect("no panic");
        assert_eq!(orchestrator.ask::<Vec<String>>("SMEMBERS", &["metrics"]).await, ["look"]);
        let probes: Vec<String> = orchestrator.ask("SMEMBERS", &["probes"]).await;
        assert_eq!(probes, if run_probes { vec!["depth".to_owned()] } else { Vec::new() });
    }
}

#[tokio::test]
async fn tests_that_count_from_1_again_run_after_the_store_has_lost_its_data() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker(&driver, &stop).await;
    for _ in 0..2 {
        orchestrator.start_test(&[1, 2]).await;
        orchestrator.until("two users", async || orchestrator.active().await == BTreeSet::from([1, 2])).await;
        orchestrator.stop_test().await;
        orchestrator.until("no user", async || orchestrator.active().await.is_empty()).await;
    }
    // As after a restart of a server without persistence.
    orchestrator.ask::<()>("FLUSHALL", &[]).await;
    orchestrator.until("the worker", async || orchestrator.ask::<u64>("SCARD", &["workers"]).await == 1).await;
    orchestrator.start_test(&[3]).await;
    assert_eq!(orchestrator.epoch, 1);
    orchestrator.until("the user", async || orchestrator.active().await == BTreeSet::from([3])).await;
    orchestrator.stop_test().await;
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn worker_without_a_scenario_says_so_when_vikhrys_orchestrator_starts_a_test() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let mut orchestrator = OldOrchestrator { client: client.clone(), epoch: 0, started: Instant::now() };
    let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
    let task = orchestrator.start_worker_with(WorkerConfig::new("w"), &driver, &stop).await;
    assert_eq!(orchestrator.message().await, "");
    orchestrator.start_test(&[1]).await;
    orchestrator.until("the reason", async || orchestrator.message().await.contains("--scenario FILE")).await;
    orchestrator.stop_test().await;
    orchestrator.until("the end", async || orchestrator.message().await.is_empty()).await;
    stop.cancel();
    task.await.expect("no panic");
}
