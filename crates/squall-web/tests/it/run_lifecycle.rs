//! Tests of a run from its start to its result, with vikhry's routes and with `/api/v1`.

use serde_json::json;
use squall_coord::{FleetStores, LeaseStore, MemberId, MemoryFleetStores};
use squall_model::{Arrivals, LoadModel, Profile};
use squall_orchestrator::FleetClient;
use squall_web::{WebConfig, serve};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{REQUESTS_PER_SECOND, bundle, bundle_with, send, startable_scenario, world, world_with};

#[tokio::test]
async fn vikhry_routes_run_a_whole_test() {
    let world = world(2).await;
    let ready = world.get("/ready").await.json();
    assert_eq!((&ready["ready"], &ready["state"], &ready["alive_workers"]), (&json!(true), &json!("IDLE"), &json!(2)));
    assert_eq!(ready["workers"], json!(["w1", "w2"]));
    assert_eq!(ready["workers_status"][0]["worker_id"], "w1");

    let started = world.post("/start_test", r#"{"users": 3, "spawn_interval_ms": 1}"#).await;
    assert_eq!(started.status, 200, "{}", started.json());
    let started = started.json();
    assert_eq!((&started["epoch"], &started["target_users"]), (&json!(1), &json!(3)));
    let user = |user: &str, worker: &str| json!({"user_id": user, "worker_id": worker});
    assert_eq!(started["add_result"]["added"], json!([user("1", "w1"), user("2", "w2"), user("3", "w1")]));
    assert_eq!(started["start_result"], json!({"workers": ["w1", "w2"], "delivered": 2}));

    let again = world.post("/start_test", r#"{"target_users": 1}"#).await.expect_error(409, "invalid_state");
    assert_eq!(again["details"], json!({"action": "start_test", "current": "RUNNING", "expected": ["IDLE"]}));

    let metrics =
        world.until(|metrics| metrics["metrics"][0]["aggregate"]["requests"].as_u64() > Some(0), "/metrics").await;
    let browse = &metrics["metrics"][0];
    assert_eq!((&browse["metric_id"], metrics["include_events"].as_bool()), (&json!("browse"), Some(true)));
    assert_eq!(browse["aggregate"]["error_rate"], 0.1);
    assert_eq!(browse["aggregate"]["latency_median_ms"].as_f64().map(f64::round), Some(5.0));
    assert!(browse["aggregate"]["result_code_counts"]["HTTP_500"].as_u64() > Some(0), "{browse}");
    assert!(browse["events"][0]["data"]["requests"].as_u64() >= Some(REQUESTS_PER_SECOND), "{browse}");
    let history = world.get("/metrics/history?range=all").await.json();
    assert!(history["points"][0]["metrics"]["browse"]["latency_p99_ms"].as_f64() > Some(1.0), "{history}");

    let changed = world.post("/change_users", r#"{"target_users": 5}"#).await.json();
    assert_eq!((&changed["action"], &changed["current_users"]), (&json!("add"), &json!(3)));
    assert_eq!(changed["result"]["added"], json!([user("4", "w2"), user("5", "w1")]));
    world.until(|current| current["level"] == 5.0, "/api/v1/tests/current").await;
    assert_eq!(world.post("/change_users", r#"{"users": 5}"#).await.json()["action"], "noop");
    let workers = world.get("/workers").await.json();
    let counts =
        |worker: usize| [&workers["workers"][worker]["users_count"], &workers["workers"][worker]["active_users_count"]];
    assert_eq!((counts(0), counts(1)), ([&json!(3), &json!(3)], [&json!(2), &json!(2)]), "{workers}");

    // Each change is relative to the last requested level, even if that is not reached yet.
    assert_eq!(world.post("/change_users", r#"{"users": 9}"#).await.json()["action"], "add");
    assert_eq!(world.post("/change_users", r#"{"users": 5}"#).await.json()["action"], "remove");

    let stopped = world.post("/stop_test", "{}").await.json();
    assert_eq!(stopped, json!({"epoch": 1, "stop_result": {"workers": ["w1", "w2"], "delivered": 2}}));
    world.until(|ready| ready["state"] == "IDLE", "/ready").await;
    let again = world.post("/stop_test", "").await.expect_error(409, "invalid_state");
    assert_eq!(
        again["details"],
        json!({"action": "stop_test", "current": "IDLE", "expected": ["PREPARING", "RUNNING"]})
    );
    let result = world.get("/api/v1/tests/1").await.json();
    assert_eq!(result["schema"], "squall.result/1");
    // The live view changes to the result that the leader stored.
    let total = result["totals"]["requests"].clone();
    world.until(|metrics| metrics["metrics"][0]["aggregate_total"]["requests"] == total, "/metrics").await;
}

/// `/start_test` responds before the instant at which all workers start. A change before that
/// instant applies from the start.
#[tokio::test]
async fn users_can_be_changed_right_after_the_start_response() {
    let world = world(1).await;
    assert_eq!(world.post("/start_test", r#"{"target_users": 2}"#).await.status, 200);
    let changed = world.post("/change_users", r#"{"target_users": 6}"#).await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    let changed = changed.json();
    assert_eq!((&changed["action"], &changed["current_users"]), (&json!("add"), &json!(2)), "{changed}");
    world.until(|current| current["level"] == 6.0, "/api/v1/tests/current").await;
}

#[tokio::test]
async fn bundle_is_started_controlled_and_reported() {
    let world = world(1).await;
    let rate = Profile::constant(100.0, Duration::from_secs(600)).unwrap();
    let bundle = bundle_with(LoadModel::Open { rate, arrivals: Arrivals::Even });
    let started = world.post("/api/v1/tests", json!({"bundle": bundle}).to_string()).await;
    assert_eq!((started.status, started.json()), (201, json!({"epoch": 1})));
    let current = world.get("/api/v1/tests/current").await.json();
    assert_eq!((&current["name"], &current["verdict"]), (&json!("shop"), &json!(null)), "available from the start");
    assert!(started.head.to_ascii_lowercase().contains("location: /api/v1/tests/1"), "{}", started.head);
    let running = |current: &serde_json::Value| current["elapsed_s"].as_f64() > Some(0.0) && !current["live"].is_null();
    let current = world.until(running, "/api/v1/tests/current").await;
    assert_eq!(
        (&current["driven_by"], &current["level"], &current["name"]),
        (&json!("rate"), &json!(100.0), &json!("shop"))
    );

    let rate = world.post("/api/v1/tests/current/rate", r#"{"rate": 250.5}"#).await.json();
    assert_eq!((&rate["epoch"], &rate["before"], &rate["rate"]), (&json!(1), &json!(100.0), &json!(250.5)));
    world.post("/api/v1/tests/current/scale", r#"{"users": 7}"#).await.expect_error(400, "bad_request");
    world.until(|current| current["level"] == 250.5, "/api/v1/tests/current").await;
    let paused = world.post("/api/v1/tests/current/pause", "").await.json();
    assert_eq!(paused["epoch"], 1);
    assert!(paused["revision"].as_u64() > rate["revision"].as_u64(), "{paused} after {rate}");
    world.post("/api/v1/tests/current/pause", "").await.expect_error(409, "invalid_state");
    let paused =
        world.until(|current| current["paused"] == true && current["level"] == 0.0, "/api/v1/tests/current").await;
    assert_eq!(paused["resumes_at"], 250.5);
    assert_eq!(world.post("/api/v1/tests/current/resume", "{}").await.status, 200);
    world.until(|current| current["paused"] == false && current["level"] == 250.5, "/api/v1/tests/current").await;
    world.get("/api/v1/tests/1").await.expect_error(409, "invalid_state");
    let shown = |live: &serde_json::Value| live["run"]["seconds"].as_array().is_some_and(|seconds| seconds.len() == 2);
    let live = world.until(shown, "/api/v1/tests/current/dashboard?seconds=2").await;
    assert_eq!((&live["state"], &live["scheduled_level"]), (&json!("RUNNING"), &json!(250.5)));
    let state = &live["run"]["state"];
    assert_eq!((&state["phase"], &state["level"]), (&json!("running"), &json!(250.5)), "{live:#}");
    assert_eq!(live["run"]["all"]["name"], "all");
    serde_json::from_value::<squall_report::LiveRun>(live["run"].clone()).expect("a client can read it");
    world.get("/api/v1/tests/current/dashboard?seconds=3601").await.expect_error(400, "validation_error");

    assert_eq!(world.post("/api/v1/tests/current/stop", r#"{"abort": true}"#).await.status, 200);
    let over = world.until(|current| current["state"] == "IDLE", "/api/v1/tests/current").await;
    let result = world.get("/api/v1/tests/1").await.json();
    assert_eq!(result["schema"], "squall.result/1");
    // The first response after the end has the result, so a client need not ask again.
    for field in ["verdict", "exit_code", "thresholds", "accounting", "fleet"] {
        assert!(!result[field].is_null() && over[field] == result[field], "{field}: {over:#}");
    }
    let live = world.get("/api/v1/tests/current/dashboard").await.json();
    assert_eq!((&live["run"]["state"]["phase"], &live["scheduled_level"]), (&json!("done"), &json!(null)));
    assert_eq!(live["run"]["all"]["requests"], result["totals"]["requests"]);
    world.get("/api/v1/tests/2").await.expect_error(404, "not_found");
    world.get("/api/v1/tests/x").await.expect_error(400, "validation_error");
}

#[tokio::test]
async fn test_with_zero_users_starts_and_scales_up() {
    let world = world(1).await;
    let started = world.post("/start_test", r#"{"users": 0}"#).await.json();
    assert_eq!(started["add_result"]["added"], json!([]));
    world.until(|current| current["elapsed_s"].as_f64() > Some(0.0), "/api/v1/tests/current").await;
    let user = |user: &str| json!({"user_id": user, "worker_id": "w1"});
    let changed = world.post("/change_users", r#"{"users": 2, "spawn_interval_ms": 5}"#).await.json();
    assert_eq!((&changed["action"], &changed["result"]["added"]), (&json!("add"), &json!([user("1"), user("2")])));
    world.until(|current| current["level"] == 2.0, "/api/v1/tests/current").await;
    let changed = world.post("/change_users", r#"{"users": 0}"#).await.json();
    assert_eq!((&changed["action"], &changed["result"]["removed"]), (&json!("remove"), &json!([user("1"), user("2")])));
}

#[tokio::test]
async fn start_without_workers_is_rejected() {
    let world = world(0).await;
    assert_eq!(world.get("/ready").await.json()["ready"], false);
    world.post("/start_test", r#"{"users": 1}"#).await.expect_error(409, "no_alive_workers");
    let body = json!({"bundle": bundle(), "params": {}}).to_string();
    world.post("/api/v1/tests", body).await.expect_error(409, "no_alive_workers");
    let error = world.post("/change_users", r#"{"users": 1}"#).await.expect_error(409, "invalid_state");
    assert_eq!(error["details"], json!({"action": "change_users", "current": "IDLE", "expected": ["RUNNING"]}));
}

#[tokio::test]
async fn start_test_without_a_scenario_suggests_the_scenario_flag() {
    let world = world_with(1, squall_web::WebConfig::local("test")).await;
    let error = world.post("/start_test", r#"{"users": 1}"#).await.expect_error(400, "bad_request");
    assert!(error["message"].as_str().unwrap().contains("--scenario"), "{error}");
    let params = world.get("/scenario/on_init_params").await.json();
    assert_eq!(params["configured"], false);
}

/// Parameters are passed as `--param`; only strings, numbers and booleans are accepted.
#[tokio::test]
async fn init_params_set_the_variables_of_a_scenario_file() {
    let mut config = squall_web::WebConfig::local("test");
    let variable = squall_web::StartableParam {
        name: "region".into(),
        kind: squall_web::StartableParam::KIND_VARIABLE.into(),
        required: false,
        annotation: None,
        default: Some(json!("eu")),
    };
    config.scenario = Some(squall_web::StartableScenario { params: vec![variable], ..startable_scenario() });
    let world = world_with(1, config).await;
    let described = world.get("/scenario/on_init_params").await.json();
    assert_eq!((&described["params"][0]["name"], &described["params"][0]["default"]), (&json!("region"), &json!("eu")));
    for wrong in [r#"{"regoin": "us"}"#, r#"{"region": null}"#, r#"{"region": {"a": 1}}"#] {
        let body = format!(r#"{{"users": 1, "init_params": {wrong}}}"#);
        world.post("/start_test", body).await.expect_error(400, "validation_error");
    }
    assert_eq!(world.post("/start_test", r#"{"users": 1, "init_params": {"region": "us"}}"#).await.status, 200);
    let fleet = squall_orchestrator::FleetClient::new(world.cell.clone());
    let name = fleet.status().await.unwrap().spec.unwrap().bundle;
    let bundle = fleet.load_bundle(&name).await.unwrap().unwrap();
    assert_eq!(bundle.params, [("region".to_owned(), "us".to_owned())].into());
}

#[tokio::test]
async fn health_prometheus_and_worker_routes_respond() {
    let world = world(1).await;
    assert_eq!(world.get("/health").await.json(), json!({"status": "ok"}));
    assert_eq!(world.get("/healthz").await.json(), json!({"status": "ok"}));
    let text = String::from_utf8(world.get("/prometheus").await.body).unwrap();
    assert!(text.contains("squall_store_up 1\n") && text.contains("squall_fleet_workers 1\n"), "{text}");
    assert!(text.contains("squall_fleet_state{state=\"IDLE\"} 1\n"), "{text}");
    let params = world.get("/scenario/on_init_params").await.json();
    assert_eq!((&params["configured"], &params["scenario_path"]), (&json!(true), &json!("shop.toml")));
    assert_eq!(world.get("/api/v1/workers").await.json()["workers"][0]["id"], "w1");
    assert_eq!(world.get("/workers").await.json()["workers"][0]["worker_id"], "w1");
}

/// vikhry's clients, curl and browsers name no Prometheus format.
#[tokio::test]
async fn metrics_route_serves_prometheus_to_scrapers_and_json_to_others() {
    let world = world(1).await;
    let metrics = async |query: &str, accept: &str| {
        let head = format!("GET /metrics{query} HTTP/1.1\r\nHost: localhost\r\n{accept}Connection: close\r\n\r\n");
        send(world.addr, head.as_bytes()).await
    };
    for accept in [
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.1",
        "text/plain;version=0.0.4;q=1,*/*;q=0.1",
    ] {
        let scraped = metrics("", &format!("Accept: {accept}\r\n")).await;
        let head = scraped.head.to_ascii_lowercase();
        assert!(scraped.status == 200 && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains("vary: accept"), "{head}");
        let text = String::from_utf8(scraped.body).unwrap();
        assert!(text.contains("squall_fleet_workers 1\n") && text.contains("# TYPE squall_store_up gauge"), "{text}");
    }
    for accept in
        ["", "Accept: */*\r\n", "Accept: application/json, text/plain, */*\r\n", "Accept: text/html,*/*;q=0.8\r\n"]
    {
        let json = metrics("?include_events=false", accept).await;
        assert_eq!((json.status, &json.json()["include_events"]), (200, &json!(false)), "{accept}");
        assert!(json.head.to_ascii_lowercase().contains("vary: accept"), "{}", json.head);
    }
}

#[test]
fn openapi_paths_match_the_router() {
    let document: serde_json::Value = serde_json::from_str(squall_web::OPENAPI).unwrap();
    let mut described = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        described.extend(methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())));
    }
    let mut served: Vec<(String, String)> =
        squall_web::router_paths().iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    described.sort();
    served.sort();
    assert_eq!(described, served);
}

/// A Redis that is out of memory responds to reads, but the leases of all members expire.
#[tokio::test]
async fn store_without_orchestrator_members_is_not_ready() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(FleetClient::new(cell.clone()), WebConfig::local("test"), listener, stop.clone()));
    let ask = || send(addr, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let response = ask().await;
    assert_eq!((response.status, &response.json()["ready"]), (503, &json!(false)));
    cell.orchestrators().join(&MemberId::new("heard"), Duration::from_secs(3600)).await.unwrap();
    let response = ask().await;
    assert_eq!((response.status, &response.json()["ready"]), (200, &json!(true)));
    stop.cancel();
}
