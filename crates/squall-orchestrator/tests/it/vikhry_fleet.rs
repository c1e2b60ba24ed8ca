//! vikhry's workers under Squall's orchestrator. A stand-in speaks their protocol: it decodes commands
//! as strictly as vikhry does, follows its rules for epochs, and writes the same keys.

use serde::Deserialize;
use squall_coord::{
    FleetStores, LeaseEvent, MemberId, Membership, MembershipConfig, RedisFleetStores, RunStore, UnitId,
};
use squall_model::{RunPhase, SHARE_COUNT, ShareSet, StopReason, WorkerState};
use squall_orchestrator::{FleetClient, FleetError};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio_util::sync::CancellationToken;

use crate::fleet_fixture::{FleetFixture, ReportedShares, bundle, bundle_of};

/// The envelope as vikhry declares it: every field is required, others are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "type")]
    kind: Kind,
    command_id: String,
    epoch: u64,
    /// A fraction is refused.
    #[serde(rename = "sent_at")]
    _sent_at: u64,
    payload: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    StartTest,
    StopTest,
    AddUser,
    RemoveUser,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartPayload {
    #[serde(rename = "target_users")]
    _target_users: u64,
    #[serde(rename = "init_params")]
    _init_params: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopPayload {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserPayload {
    user_id: UserId,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UserId {
    Number(u64),
    Text(String),
}

/// What the stand-in has done.
#[derive(Default, Debug)]
struct StandIn {
    epoch: u64,
    running: bool,
    users: BTreeSet<String>,
    /// Messages that the decoder refused, and why.
    refused: Vec<String>,
    /// Requests that its users have sent, each written as one event.
    requests: u64,
    /// The process was killed; its keys stay.
    killed: bool,
}

impl StandIn {
    /// Handles one message by vikhry's rules. Returns the error of the decoder.
    fn handle(&mut self, message: &[u8]) -> Result<(), serde_json::Error> {
        let envelope: Envelope = serde_json::from_slice(message)?;
        assert!(!envelope.command_id.is_empty());
        match envelope.kind {
            Kind::StartTest => {
                let _: StartPayload = serde_json::from_value(envelope.payload)?;
                if envelope.epoch > self.epoch {
                    (self.epoch, self.users) = (envelope.epoch, BTreeSet::new());
                }
                self.running |= envelope.epoch == self.epoch;
            }
            Kind::StopTest => {
                let _: StopPayload = serde_json::from_value(envelope.payload)?;
                if envelope.epoch == self.epoch {
                    (self.running, self.users) = (false, BTreeSet::new());
                }
            }
            Kind::AddUser | Kind::RemoveUser => {
                let adds = matches!(envelope.kind, Kind::AddUser);
                let user = match serde_json::from_value::<UserPayload>(envelope.payload)?.user_id {
                    UserId::Number(number) => number.to_string(),
                    UserId::Text(text) => text,
                };
                match (envelope.epoch == self.epoch && self.running, adds) {
                    (true, true) => drop(self.users.insert(user)),
                    (true, false) => drop(self.users.remove(&user)),
                    (false, _) => {}
                }
            }
        }
        Ok(())
    }
}

type SharedStandIn = Arc<Mutex<StandIn>>;

/// How a stand-in takes commands.
#[derive(Clone, Copy, PartialEq)]
enum Obedience {
    Obeys,
    RefusesAll,
}

/// Starts a stand-in named `id` and waits until it is subscribed.
async fn join_vikhry(fixture: &mut FleetFixture, id: &str, obedience: Obedience) -> SharedStandIn {
    let state = SharedStandIn::default();
    let mut commands = fixture.stores.run().subscribe(id);
    // The store's own message after the subscription.
    assert_eq!(commands.recv().await.expect("a message"), b"");
    let (id, client, shared) = (id.to_owned(), fixture.redis_client(), state.clone());
    let keys = fixture.key_prefix();
    fixture.spawn(async move |stop: CancellationToken| {
        let mut writes = tokio::time::interval(Duration::from_millis(50));
        let mut shown = BTreeSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(message) = commands.recv() => {
                    let mut state = shared.lock().expect("no panic");
                    if obedience == Obedience::Obeys && let Err(error) = state.handle(&message) {
                        state.refused.push(format!("{error}: {}", String::from_utf8_lossy(&message)));
                    }
                    continue;
                }
                _ = writes.tick() => {}
            }
            let users = match &*shared.lock().expect("no panic") {
                state if state.killed => break,
                state => state.users.clone(),
            };
            let mut pipeline = redis::pipe();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            pipeline.cmd("SADD").arg(format!("{keys}workers")).arg(&id);
            pipeline.cmd("HSET").arg(format!("{keys}worker:{id}:status"));
            pipeline.arg("status").arg("healthy").arg("last_heartbeat").arg(now.as_secs());
            pipeline.arg("cpu_percent").arg(1.5).arg("rss_bytes").arg(1 << 20).arg("total_ram_bytes").arg(1u64 << 30);
            let active = format!("{keys}worker:{id}:active_users");
            for user in users.difference(&shown) {
                pipeline.cmd("SADD").arg(&active).arg(user);
            }
            for user in shown.difference(&users) {
                pipeline.cmd("SREM").arg(&active).arg(user);
            }
            for (number, user) in users.iter().enumerate() {
                let failed = number == 0;
                for (metric, source, code) in [("look", "step", "STEP_OK"), ("look//health", "http", "HTTP_200")] {
                    let code = if failed && source == "http" { "HTTP_500" } else { code };
                    let event = serde_json::json!({
                        "ts_ms": now.as_millis() as u64, "worker_id": id, "user_id": user, "name": metric, "step": "look",
                        "status": code != "HTTP_500", "time": 20.5, "source": source, "stage": "execute",
                        "result_code": code, "fatal": false,
                        "result_category": if code == "HTTP_500" { "protocol_error" } else { "ok" },
                    });
                    pipeline.cmd("SADD").arg(format!("{keys}metrics")).arg(metric);
                    pipeline.cmd("XADD").arg(format!("{keys}metric:{metric}")).arg("*").arg("data").arg(event.to_string());
                }
            }
            let answer: redis::Value = pipeline.query_async(&mut client.connection()).await.expect("Redis answers");
            drop(answer);
            shared.lock().expect("no panic").requests += users.len() as u64;
            shown = users;
        }
    });
    fixture.until_workers_at_least(1).await;
    state
}

fn users_of(stand_in: &SharedStandIn) -> Vec<u64> {
    let mut users: Vec<u64> = stand_in.lock().unwrap().users.iter().map(|user| user.parse().unwrap()).collect();
    users.sort_unstable();
    users
}

#[tokio::test]
async fn vikhry_worker_runs_the_users_of_a_run_and_its_requests_are_in_the_result() {
    let mut fixture = FleetFixture::on_redis().await;
    let worker = join_vikhry(&mut fixture, "v1", Obedience::Obeys).await;
    fixture.lead();
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(5.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_true("five users", async || users_of(&worker) == [1, 2, 3, 4, 5]).await;
    fixture.until_phase(RunPhase::Running).await;
    fixture.until("SCARD", "worker:v1:users", 5).await;
    fleet.set_level(3.0).await.expect("a run is active");
    fixture.until_true("three users", async || users_of(&worker) == [1, 2, 3]).await;
    fixture.until_true("requests", async || worker.lock().unwrap().requests > 100).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    assert_eq!(users_of(&worker), Vec::<u64>::new());
    let result = fleet.stored_result(epoch).await.unwrap().expect("a result");
    let (sent, refused) = {
        let worker = worker.lock().unwrap();
        (worker.requests, worker.refused.clone())
    };
    assert_eq!(refused, Vec::<String>::new(), "the decoder refuses nothing");
    let requests = result.view.metric("look//health").expect("the metric of the requests");
    assert_eq!((result.view.all.requests, requests.requests), (sent, sent));
    assert!(requests.errors > 0 && requests.errors < requests.requests, "{requests:?}");
    let workers = result.facts.fleet.expect("a fleet").workers;
    assert_eq!(workers.iter().map(|worker| (worker.id.as_str(), worker.requests)).collect::<Vec<_>>(), [("v1", sent)]);
    fixture.end().await;
}

/// A worker that holds leases, as a Squall worker does, and reports them.
async fn join_member(fixture: &mut FleetFixture<RedisFleetStores>, id: &str) -> ReportedShares {
    let reported = fixture.join(id, ShareSet::NONE);
    let units = (0..SHARE_COUNT).map(UnitId::from).collect();
    let config = MembershipConfig::new(MemberId::new(format!("{id}.1")), units);
    let (membership, mut handle) = Membership::new(fixture.stores.workers(), config).expect("valid timings");
    let shares = reported.clone();
    fixture.spawn(async move |stop: CancellationToken| {
        let holding = async {
            while let Some(event) = handle.events.recv().await {
                let change = |lease: &squall_coord::Lease, held: bool| {
                    let share: u32 = lease.unit.as_str().parse().expect("a share");
                    let mut shares = shares.lock().expect("no panic");
                    let mut set = shares.expect("the worker reports");
                    set = if held {
                        set.iter().chain([share]).collect()
                    } else {
                        set.iter().filter(|one| *one != share).collect()
                    };
                    *shares = Some(set);
                };
                match event {
                    LeaseEvent::Granted(lease) => change(&lease, true),
                    LeaseEvent::ReturnRequested(lease) => {
                        change(&lease, false);
                        handle.release(lease);
                    }
                    LeaseEvent::Lost(lease) => change(&lease, false),
                }
            }
        };
        tokio::join!(membership.run(stop), holding);
    });
    reported
}

#[tokio::test]
async fn mixed_fleet_divides_the_users_between_squall_and_vikhry_workers() {
    let mut fixture = FleetFixture::on_redis().await;
    let vikhry = join_vikhry(&mut fixture, "v1", Obedience::Obeys).await;
    let squall = join_member(&mut fixture, "w0").await;
    fixture.until_workers(2).await;
    fixture.lead();
    let fleet = FleetClient::new(fixture.stores.clone());
    fleet.start(&bundle(10.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_true("half of the users", async || users_of(&vikhry).len() == 5).await;
    fixture.until("SCARD", "worker:w0:users", 5).await;
    fixture.until("SCARD", "worker:v1:users", 5).await;
    // The shares of both are disjoint, and every user has one worker.
    assert_eq!(squall.lock().unwrap().map(|shares| shares.len()), Some(SHARE_COUNT / 2));
    let of_squall: BTreeSet<u64> = fixture.ask("SMEMBERS", "worker:w0:users", &[]).await;
    assert!(users_of(&vikhry).iter().all(|user| !of_squall.contains(user)));
    let users: Vec<u64> = users_of(&vikhry).into_iter().chain(of_squall).collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(users, (1..=10).collect::<Vec<_>>());
    assert_eq!(vikhry.lock().unwrap().refused, Vec::<String>::new());
    fixture.end().await;
}

#[tokio::test]
async fn dead_vikhry_worker_is_named_as_lost_and_a_stop_does_not_wait_for_it() {
    let mut fixture = FleetFixture::on_redis().await;
    let vikhry = join_vikhry(&mut fixture, "v1", Obedience::Obeys).await;
    let _squall = join_member(&mut fixture, "w0").await;
    fixture.until_workers(2).await;
    fixture.lead();
    let fleet = FleetClient::new(fixture.stores.clone());
    // A stop that waits for the dead worker takes longer than this test waits.
    let mut patient = bundle(10.0);
    patient.limits.grace = Duration::from_secs(600);
    let epoch = fleet.start(&patient, BTreeMap::new()).await.expect("the run starts");
    fixture.until("SCARD", "worker:v1:active_users", 5).await;
    vikhry.lock().unwrap().killed = true;
    fixture.until_true("its end", async || Arc::strong_count(&vikhry) == 1).await;
    // Instead of waiting until its last heartbeat is old enough.
    let _: u64 = fixture.ask("HSET", "worker:v1:status", &["last_heartbeat", "1773180000"]).await;
    fixture.until_saved(epoch, "worker v1 was lost; its load moves to the other workers").await;
    fixture.until("SCARD", "worker:w0:users", 10).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let spec = fixture.run_spec().await;
    let result = fleet.stored_result(epoch).await.unwrap().expect("a result");
    let stopped = spec.stop.expect("a stop").asked_at_ms - spec.start_at_ms.expect("a start");
    let workers = result.facts.fleet.expect("a fleet").workers;
    let lost = workers.iter().find(|worker| worker.id == "v1").expect("the lost worker");
    assert_eq!(lost.state, WorkerState::Lost);
    assert!(lost.ended_s.is_some_and(|at_s| at_s * 1e3 < stopped as f64), "{lost:?}, stopped at {stopped} ms");
    fixture.end().await;
}

#[tokio::test]
async fn worker_that_refuses_every_command_is_named_within_seconds() {
    let mut fixture = FleetFixture::on_redis().await;
    let deaf = join_vikhry(&mut fixture, "deaf", Obedience::RefusesAll).await;
    let _squall = join_member(&mut fixture, "w0").await;
    fixture.until_workers(2).await;
    fixture.lead();
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(10.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_saved(epoch, "worker deaf ended its part early").await;
    fixture.until_saved(epoch, "it has started none of its users for 5 s").await;
    // Its users move to the other worker.
    fixture.until("SCARD", "worker:w0:users", 10).await;
    assert_eq!(users_of(&deaf), Vec::<u64>::new());
    fixture.end().await;
}

#[tokio::test]
async fn run_whose_only_worker_refuses_every_command_ends_with_that_reason() {
    let mut fixture = FleetFixture::on_redis().await;
    let _deaf = join_vikhry(&mut fixture, "deaf", Obedience::RefusesAll).await;
    fixture.lead();
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(10.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    // It is named long before the run ends.
    fixture.until_saved(epoch, "worker deaf: it has started none of its users for 5 s").await;
    assert_eq!(fleet.status().await.unwrap().phase, RunPhase::Running);
    fixture.until_saved(epoch, "no other worker can take its load: it has started none of its users for 15 s").await;
    fixture.until_phase(RunPhase::Idle).await;
    let stop = fixture.run_spec().await.stop.expect("the run was stopped");
    let message = stop.message.expect("a reason");
    assert!(
        message.starts_with("no worker is left that can carry out the run; worker deaf: it has started none"),
        "{message}"
    );
    assert_eq!(stop.reason, StopReason::Aborted);
    fixture.end().await;
}

#[tokio::test]
async fn run_by_rate_needs_a_squall_worker() {
    let mut fixture = FleetFixture::on_redis().await;
    let worker = join_vikhry(&mut fixture, "v1", Obedience::Obeys).await;
    let rate = squall_model::Profile::constant(20.0, Duration::from_secs(60)).expect("a load");
    let open = bundle_of(squall_model::LoadModel::Open { rate, arrivals: squall_model::Arrivals::Even });
    let refused = fixture.fleet.start(&open, BTreeMap::new()).await;
    assert!(matches!(&refused, Err(FleetError::OnlyVikhryWorkers { workers }) if workers == "v1"), "{refused:?}");
    // With a Squall worker the run starts, and the vikhry worker gets no command that it cannot decode.
    let _squall = join_member(&mut fixture, "w0").await;
    fixture.until_workers(2).await;
    fixture.lead();
    fixture.fleet.start(&open, BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    assert_eq!(worker.lock().unwrap().refused, Vec::<String>::new());
    fixture.end().await;
}
