//! A fleet with a leader, fake workers and the API, and a client that sends raw bytes.

use serde_json::Value;
use squall_coord::{FleetStores, MemoryFleetStores, RunStore};
use squall_metrics::{
    Delta, MetricId, MetricKey, MetricKind, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, Sample, SourceId,
    encode_delta,
};
use squall_model::{
    Bundle, EngineLimits, Load, LoadModel, Pause, Plan, Profile, RunSpec, ShareSet, TaskSpec,
    protocol::{WorkerHealth, WorkerReport},
};
use squall_orchestrator::{FleetClient, Orchestrator, OrchestratorConfig};
use squall_web::{StartableScenario, WebConfig, serve};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// A timeout that a busy machine does not reach.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that a fake worker reports per second.
pub(crate) const REQUESTS_PER_SECOND: u64 = 10;

pub(crate) struct World<C = MemoryFleetStores> {
    pub(crate) addr: SocketAddr,
    pub(crate) cell: C,
    pub(crate) stop: CancellationToken,
    _tasks: JoinSet<()>,
}

/// A leader, `workers` fake workers, and the API with a startable scenario.
pub(crate) async fn world(workers: usize) -> World {
    let mut config = WebConfig::local("test");
    config.scenario = Some(startable_scenario());
    world_with(workers, config).await
}

pub(crate) async fn world_with(workers: usize, config: WebConfig) -> World {
    world_on(MemoryFleetStores::default(), workers, config).await
}

/// Like [`world_with`], on the given stores.
pub(crate) async fn world_on<C: FleetStores>(cell: C, workers: usize, config: WebConfig) -> World<C> {
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let leader = Orchestrator::new(cell.clone(), OrchestratorConfig::new("leader"));
    let leaving = stop.clone();
    tasks.spawn(async move { leader.run(leaving).await.unwrap() });
    for number in 1..=workers {
        let held = ShareSet::ALL.part(number - 1, workers);
        tasks.spawn(fake_worker(cell.clone(), format!("w{number}"), number as u64, held));
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = serve(FleetClient::new(cell.clone()), config, listener, stop.clone());
    tasks.spawn(async move { serving.await.unwrap() });
    let world = World { addr, cell, stop, _tasks: tasks };
    world.until(|ready| ready["alive_workers"] == workers, "/readyz").await;
    world
}

impl<C> World<C> {
    pub(crate) async fn get(&self, path: &str) -> RawResponse {
        send(self.addr, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> RawResponse {
        let body = body.as_ref();
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        send(self.addr, &[head.as_bytes(), body].concat()).await
    }

    /// Requests `path` until the response satisfies `wanted`.
    pub(crate) async fn until(&self, wanted: impl Fn(&Value) -> bool, path: &str) -> Value {
        let polling = async {
            loop {
                let response = self.get(path).await;
                if response.status == 200 && wanted(&response.json()) {
                    return response.json();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TEST_TIMEOUT, polling).await.unwrap_or_else(|_| panic!("{path} never had the expected response"))
    }
}

pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[track_caller]
    pub(crate) fn expect_error(&self, status: u16, code: &str) -> Value {
        let error = self.json()["error"].clone();
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{error}");
        assert!(
            error["message"].as_str().is_some_and(|text| !text.is_empty()) && error["details"].is_object(),
            "{error}"
        );
        error
    }
}

/// Sends bytes and reads the whole response.
pub(crate) async fn send(addr: SocketAddr, bytes: &[u8]) -> RawResponse {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // A server that rejects a long body may close the connection before it has read all of it.
        let _ = stream.write_all(bytes).await;
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        parse_response(&all)
    };
    timeout(TEST_TIMEOUT, exchange).await.expect("a response in time")
}

pub(crate) fn parse_response(all: &[u8]) -> RawResponse {
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no response in {all:?}"));
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    RawResponse { status, head, body: all[end + 4..].to_vec() }
}

pub(crate) fn bundle() -> Bundle {
    let users = Profile::constant(5.0, Duration::from_secs(600)).unwrap();
    bundle_with(LoadModel::Closed { users, pause: Pause::NONE })
}

pub(crate) fn bundle_with(model: LoadModel) -> Bundle {
    let plan = Plan {
        name: "shop".into(),
        target: "http://127.0.0.1:1".into(),
        load: Load { model, iterations: None, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new("browse")],
        thresholds: vec![],
        seed: 1,
    };
    let limits = EngineLimits {
        start_users: None,
        threads: None,
        max_users: 100,
        grace: Duration::from_secs(1),
        slack: Duration::ZERO,
        late_after: Duration::from_millis(10),
        phases: false,
    };
    Bundle::new(plan, limits)
}

pub(crate) fn startable_scenario() -> StartableScenario {
    StartableScenario {
        path: "shop.toml".into(),
        bundle: bundle(),
        params: vec![],
        accepts_any_param: false,
        has_target: true,
        resources: vec![],
        probes: vec![],
        resource_factory: None,
    }
}

/// Records a sample of the probe `depth`: 42, but every third sample fails.
fn record_probe(recorder: &mut MetricRecorder, second: u64) {
    let probe = recorder.metric(MetricKey::group("probe/depth"));
    let value = recorder.metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request("depth") });
    let fails = second % 3 == 2;
    let category = if fails { OutcomeCategory::Exception } else { OutcomeCategory::Ok };
    let outcome = Outcome::new(category, if fails { "KeyError" } else { "OK" });
    if fails {
        recorder.note_error(probe, outcome, "no queue");
    } else {
        recorder.record(&sample(value, 42, Outcome::new(OutcomeCategory::Ok, "PROBE_OK")));
    }
    recorder.record(&sample(probe, 3, outcome));
}

fn sample(metric: MetricId, service_ms: u64, outcome: Outcome) -> Sample {
    let service = Duration::from_millis(service_ms);
    Sample { metric, wait: Duration::ZERO, service, outcome, bytes_in: 10, bytes_out: 10, due_in_warm_up: false }
}

/// Follows the run record as a worker does, but reports ten made-up requests per second.
async fn fake_worker<C: FleetStores>(cell: C, id: String, instance: u64, held: ShareSet) {
    let run = cell.run();
    let (mut shipped, mut epoch, mut done) = (0, 0, 0);
    loop {
        let record = run.read_record().await.unwrap();
        if record.epoch != epoch {
            (shipped, epoch) = (0, record.epoch);
        }
        let order: Option<RunSpec> = serde_json::from_str(&record.spec).ok();
        let start = order.and_then(|order| order.start_at_ms).unwrap_or(u64::MAX);
        let seconds = record.now_ms.saturating_sub(start) / 1000;
        let stopping = record.state == "STOPPING" && done != epoch;
        if record.state == "RUNNING" || stopping {
            while shipped < seconds {
                ship(&cell, instance, epoch, shipped, false).await;
                shipped += 1;
            }
        }
        if stopping {
            ship(&cell, instance, epoch, shipped, true).await;
            done = epoch;
        }
        let ready = if record.state == "IDLE" { 0 } else { epoch };
        let report = WorkerReport {
            health: WorkerHealth::Healthy,
            instance,
            revision: record.revision,
            ready,
            done,
            share_count: held.len(),
            held,
            ..WorkerReport::default()
        };
        run.report(&id, &report.encode(), Duration::from_secs(5)).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
}

async fn ship<C: FleetStores>(cell: &C, instance: u64, epoch: u64, second: u64, last: bool) {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("browse"));
    for number in 0..REQUESTS_PER_SECOND {
        recorder.count_begun();
        let status = if number == 0 { 500 } else { 200 };
        recorder.record(&sample(metric, number + 1, Outcome::of_status(status)));
    }
    record_probe(&mut recorder, second);
    let (metrics, errors, engine) = recorder.harvest(5, 1);
    let source = SourceId { instance, thread: 0 };
    let delta = Delta { source, seq: second, second: second as u32, metrics, errors, engine, last };
    cell.run().ship(epoch, &format!("{instance:016x}.0"), second, &encode_delta(&delta)).await.unwrap();
}
