//! The users, metrics and probes of a run in Redis, under the key names of vikhry.

use crate::fleet_fixture::{FleetFixture, bundle, bundle_of};
use squall_coord::{FleetStores, RunStore};
use squall_metrics::{
    Delta, MetricKey, MetricKind, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, Sample, SourceId,
    encode_delta,
};
use squall_model::{Arrivals, CommandEnvelope, CommandType, LoadModel, Profile, RunPhase, ShareSet, StopReason};
use squall_orchestrator::FleetClient;
use std::{collections::BTreeMap, time::Duration};

/// The shares of one of two workers.
fn half(of: u32) -> ShareSet {
    ShareSet::ALL.part(of as usize, 2)
}

#[tokio::test]
async fn start_command_of_an_open_load_gives_its_rate() {
    let mut fixture = FleetFixture::on_redis().await;
    let mut commands = fixture.stores.run().subscribe("w0");
    let _ = commands.recv().await.expect("a message");
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let rate = Profile::constant(20.5, Duration::from_secs(60)).expect("a load");
    let bundle = bundle_of(LoadModel::Open { rate, arrivals: Arrivals::Even });
    FleetClient::new(fixture.stores.clone()).start(&bundle, BTreeMap::new()).await.expect("the run starts");
    let message = commands.recv().await.expect("a message");
    let envelope = CommandEnvelope::decode(&message).expect("a command");
    let payload = serde_json::Value::from(envelope.payload);
    assert_eq!(
        (envelope.kind, payload),
        (CommandType::StartTest, serde_json::json!({"rate": 20.5, "init_params": {}}))
    );
    fixture.end().await;
}

#[tokio::test]
async fn users_are_shown_at_the_workers_that_hold_their_shares() {
    let mut fixture = FleetFixture::on_redis().await;
    let mut commands = fixture.stores.run().subscribe("w1");
    let _ = commands.recv().await.expect("a message");
    let (first, second) = (fixture.join("w0", half(0)), fixture.join("w1", half(1)));
    fixture.lead();
    fixture.until_workers(2).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(601.0), BTreeMap::new()).await.expect("the run starts");
    // Users alternate between the workers.
    fixture.until("SCARD", "users", 601).await;
    fixture.until("SCARD", "worker:w0:users", 301).await;
    fixture.until("SCARD", "worker:w1:users", 300).await;
    fixture.until_phase(RunPhase::Running).await;
    fixture.until_field("user:8", "status", "running").await;
    let user: BTreeMap<String, String> = fixture.ask("HGETALL", "user:8", &[]).await;
    assert_eq!((user["worker_id"].as_str(), user["status"].as_str()), ("w1", "running"));
    assert!(user["updated_at"].parse::<u64>().is_ok_and(|at| at > 1_600_000_000), "{user:?}");
    assert!(fixture.ask::<i64>("PTTL", "user:8", &[]).await > 0, "it expires");
    // Only the worker itself says which users it has started.
    assert_eq!(fixture.ask::<u64>("EXISTS", "worker:w1:active_users", &[]).await, 0);
    // A subscribed worker gets the numbers of its users, in batches.
    let mut named = 0;
    while named < 300 {
        let message = commands.recv().await.expect("a message");
        let Ok(envelope) = CommandEnvelope::decode(&message) else { panic!("{message:?}") };
        if envelope.kind == CommandType::StartTest {
            let payload = serde_json::Value::from(envelope.payload);
            assert_eq!(payload, serde_json::json!({"target_users": 601, "init_params": {}}), "the payload of vikhry");
        } else if envelope.kind == CommandType::AddUser {
            assert_eq!(envelope.epoch, epoch);
            named += envelope.payload["user_ids"].as_array().map_or(0, Vec::len);
        }
    }
    assert_eq!(named, 300);
    // All shares move to w1.
    *first.lock().unwrap() = Some(ShareSet::NONE);
    *second.lock().unwrap() = Some(ShareSet::ALL);
    fixture.until("SCARD", "worker:w1:users", 601).await;
    fixture.until("EXISTS", "worker:w0:users", 0).await;
    fleet.set_level(10.0).await.expect("a run is active");
    fixture.until("SCARD", "users", 10).await;
    fixture.until("EXISTS", "user:11", 0).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    fixture.until("EXISTS", "users", 0).await;
    type Points = Vec<(String, BTreeMap<String, String>)>;
    let points: Points = fixture.ask("XRANGE", "users:timeline", &["-", "+"]).await;
    let points: Vec<_> = points.iter().map(|(_, p)| (p["users_count"].as_str(), p["source"].as_str())).collect();
    assert_eq!(points, [("601", "start_test"), ("10", "change_users"), ("0", "stop_test")]);
    fixture.end().await;
}

#[tokio::test]
async fn users_are_shown_once_after_a_new_leader_and_a_lost_worker() {
    let mut fixture = FleetFixture::on_redis().await;
    let (first, second) = (fixture.join("w0", half(0)), fixture.join("w1", half(1)));
    let leader = fixture.lead();
    fixture.until_workers(2).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    fleet.start(&bundle(100.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until("SCARD", "worker:w0:users", 50).await;
    leader.cancel();
    // Without a leader, w0 is lost and w1 takes over its shares.
    *first.lock().unwrap() = None;
    *second.lock().unwrap() = Some(ShareSet::ALL);
    fixture.until("EXISTS", "worker:w0:status", 0).await;
    fixture.lead();
    fixture.until("SCARD", "worker:w1:users", 100).await;
    fixture.until("EXISTS", "worker:w0:users", 0).await;
    fixture.until("SCARD", "users", 100).await;
    fixture.end().await;
}

pub(crate) fn delta(instance: u64, seq: u64, requests: u64) -> Vec<u8> {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    for _ in 0..requests {
        recorder.count_begun();
        sample(&mut recorder, MetricKey::request("browse"), 20, Outcome::of_status(200));
    }
    shipped(recorder, instance, seq)
}

fn sample(recorder: &mut MetricRecorder, key: MetricKey, service_ms: u64, outcome: Outcome) {
    let metric = recorder.metric(key);
    let (wait, service) = (Duration::ZERO, Duration::from_millis(service_ms));
    recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 1, bytes_out: 1, due_in_warm_up: false });
}

fn shipped(mut recorder: MetricRecorder, instance: u64, seq: u64) -> Vec<u8> {
    let (metrics, errors, engine) = recorder.harvest(1, 0);
    let source = SourceId { instance, thread: 0 };
    let delta = Delta { source, seq, second: seq as u32, metrics, errors, engine, last: false };
    encode_delta(&delta)
}

#[tokio::test]
async fn merged_seconds_are_shown_once_after_a_change_of_leader() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    let leader = fixture.lead();
    fixture.until_workers(1).await;
    let run = fixture.stores.run();
    let instance = run.reports().await.unwrap()["w0"]["instance"].clone();
    let number = u64::from_str_radix(&instance, 16).unwrap();
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    run.ship(epoch, "s", 0, &delta(number, 0, 5)).await.unwrap();
    fixture.until("XLEN", "metric:browse", 1).await;
    leader.cancel();
    fixture.lead();
    run.ship(epoch, "s", 1, &delta(number, 1, 7)).await.unwrap();
    fixture.until("XLEN", "metric:browse", 2).await;
    let rows: Vec<(String, BTreeMap<String, String>)> = fixture.ask("XRANGE", "metric:browse", &["-", "+"]).await;
    let rows: Vec<serde_json::Value> =
        rows.iter().map(|(_, fields)| serde_json::from_str(&fields["data"]).unwrap()).collect();
    let seen: Vec<_> = rows.iter().map(|row| (row["t_s"].as_u64(), row["requests"].as_u64())).collect();
    assert_eq!(seen, [(Some(1), Some(5)), (Some(2), Some(7))]);
    assert_eq!(rows[0]["latency_p99_ms"].as_f64().map(f64::round), Some(20.0));
    assert_eq!(fixture.ask::<Vec<String>>("SMEMBERS", "metrics", &[]).await, ["browse"]);
    fixture.end().await;
}

#[tokio::test]
async fn step_that_raises_is_one_error_and_no_request_for_vikhrys_readers() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    let run = fixture.stores.run();
    let number = u64::from_str_radix(&run.reports().await.unwrap()["w0"]["instance"], 16).unwrap();
    let epoch = fixture.fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let raised = Outcome::new(OutcomeCategory::Exception, "RuntimeError");
    sample(&mut recorder, MetricKey::group("broken"), 1, raised);
    sample(&mut recorder, MetricKey::request("broken (failed)"), 1, raised);
    // A request that has such a name and no step.
    sample(&mut recorder, MetricKey::request("login (failed)"), 1, Outcome::of_status(200));
    run.ship(epoch, "s", 0, &shipped(recorder, number, 0)).await.unwrap();
    fixture.until("XLEN", "metric:broken", 1).await;
    let mut metrics: Vec<String> = fixture.ask("SMEMBERS", "metrics", &[]).await;
    metrics.sort_unstable();
    assert_eq!(metrics, ["broken", "login (failed)"]);
    let entries: Vec<(String, BTreeMap<String, String>)> = fixture.ask("XRANGE", "metric:broken", &["-", "+"]).await;
    let event: serde_json::Value = serde_json::from_str(&entries[0].1["data"]).unwrap();
    assert_eq!((event["source"].as_str(), event["status"].as_bool()), (Some("step"), Some(false)));
    fixture.end().await;
}

#[tokio::test]
async fn probe_results_are_shown_but_not_as_requests_and_those_of_an_earlier_run_removed() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    // A probe of an earlier run.
    fixture.ask::<String>("XADD", "probe:old", &["*", "data", "{}"]).await;
    fixture.ask::<i64>("SADD", "probes", &["old"]).await;
    let run = fixture.stores.run();
    let number = u64::from_str_radix(&run.reports().await.unwrap()["w0"]["instance"], 16).unwrap();
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    for seq in 0..2 {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let (code, category) =
            if seq == 0 { ("OK", OutcomeCategory::Ok) } else { ("KeyError", OutcomeCategory::Exception) };
        sample(&mut recorder, MetricKey::group("probe/depth"), 3, Outcome::new(category, code));
        if seq == 0 {
            let value = MetricKey { kind: MetricKind::Custom, ..MetricKey::request("depth") };
            sample(&mut recorder, value, 42, Outcome::new(OutcomeCategory::Ok, "PROBE_OK"));
        }
        let request = MetricKey { kind: MetricKind::Custom, ..MetricKey::request("probe/GET /health") };
        sample(&mut recorder, request, 2, Outcome::of_status(200));
        let own = MetricKey { kind: MetricKind::Custom, ..MetricKey::request("basket") };
        sample(&mut recorder, own, 2, Outcome::of_status(200));
        run.ship(epoch, "s", seq, &shipped(recorder, number, seq)).await.unwrap();
    }
    fixture.until("XLEN", "probe:depth", 2).await;
    assert_eq!(fixture.ask::<Vec<String>>("SMEMBERS", "probes", &[]).await, ["depth"]);
    assert_eq!(fixture.ask::<i64>("EXISTS", "probe:old", &[]).await, 0);
    let rows: Vec<(String, BTreeMap<String, String>)> = fixture.ask("XRANGE", "probe:depth", &["-", "+"]).await;
    let rows: Vec<serde_json::Value> =
        rows.iter().map(|(_, fields)| serde_json::from_str(&fields["data"]).unwrap()).collect();
    assert_eq!((rows[0]["name"].as_str(), rows[0]["status"].as_bool()), (Some("depth"), Some(true)));
    assert_eq!(rows[0]["value"].as_f64().map(f64::round), Some(42.0));
    assert_eq!((rows[1]["status"].as_bool(), rows[1]["value"].as_f64()), (Some(false), None));
    // vikhry's UI counts every source but `step` as requests.
    for (metric, source) in [("depth", "step"), ("probe/GET /health", "step"), ("basket", "custom")] {
        let key = format!("metric:{metric}");
        fixture.until("EXISTS", &key, 1).await;
        let entries: Vec<(String, BTreeMap<String, String>)> = fixture.ask("XRANGE", &key, &["-", "+"]).await;
        let event: serde_json::Value = serde_json::from_str(&entries[0].1["data"]).unwrap();
        assert_eq!(event["source"], source, "{metric}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn foreign_keys_do_not_stop_a_run_and_are_kept() {
    let mut fixture = FleetFixture::on_redis().await;
    for key in ["users", "metric:browse", "users:timeline", "worker:w0:users", "probes", "probe:depth"] {
        fixture.ask::<()>("SET", key, &["mine"]).await;
    }
    fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    fleet.start(&bundle(5.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    assert_eq!(fixture.ask::<String>("GET", "users", &[]).await, "mine", "the foreign key is kept");
    fixture.end().await;
}
