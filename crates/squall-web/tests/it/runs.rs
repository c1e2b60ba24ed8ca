//! Tests of the history: runs of the fleet are saved, and the API lists, annotates, serves, compares and
//! deletes them.

use serde_json::{Value, json};
use squall_coord::MemoryFleetStores;
use squall_history::{RunFolder, RunId};
use squall_model::{Bundle, ScheduleRule, StopReason};
use squall_orchestrator::FleetClient;
use squall_report::{ResultFile, compare};
use squall_web::{RunHistory, ServerMode, WebConfig, serve};
use std::{collections::BTreeMap, fs, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{RawResponse, World, bundle, send, world_with};

struct Fixture {
    world: World,
    folder: Arc<RunFolder>,
    parent: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let parent = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::new(parent.path().join("runs"), 1 << 30));
    let history =
        Some(RunHistory { folder: folder.clone(), baseline: parent.path().join("baseline.json"), saves_runs: true });
    let world = world_with(2, WebConfig { history, ..WebConfig::local("test") }).await;
    Fixture { world, folder, parent }
}

impl Fixture {
    /// Runs a test to its end and returns its entry in the history.
    async fn run(&self, saved_before: usize) -> Value {
        let body = serde_json::to_vec(&json!({"bundle": bundle()})).unwrap();
        let started = self.world.post("/api/v1/tests", body).await;
        assert_eq!(started.status, 201, "{}", started.json());
        let path = "/api/v1/tests/current";
        self.world.until(|current| current["live"]["requests_total"].as_u64() > Some(0), path).await;
        assert_eq!(self.world.post("/api/v1/tests/current/stop", "{}").await.status, 200);
        let list = self.world.until(|list| list["total"] == saved_before + 1, "/api/v1/runs").await;
        list["runs"][0].clone()
    }

    async fn delete(&self, path: &str) -> RawResponse {
        let head = format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        send(self.world.addr, head.as_bytes()).await
    }
}

#[tokio::test]
async fn ended_run_is_in_the_history_with_the_numbers_of_its_result() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let empty = world.get("/api/v1/runs").await.json();
    assert_eq!((&empty["total"], &empty["runs"]), (&json!(0), &json!([])));
    let run = fixture.run(0).await;
    let id = run["id"].as_str().unwrap();
    assert_eq!((&run["name"], &run["verdict"], &run["workers"]), (&json!("shop"), &json!("interrupted"), &json!(2)));
    let result = world.get("/api/v1/tests/1").await.json();
    assert_eq!(run["requests"], result["totals"]["requests"]);
    assert_eq!(run["p99_ms"], result["latency_ms"]["response"]["p99"]);
    assert_eq!(world.get(&format!("/api/v1/runs/{id}")).await.json(), run);
    let saved = world.get(&format!("/api/v1/runs/{id}/result")).await;
    assert!(saved.head.contains(&format!("attachment; filename=\"{id}.json\"")), "{}", saved.head);
    assert_eq!(saved.json(), result);
    let report = world.get(&format!("/api/v1/runs/{id}/report")).await;
    assert!(report.status == 200 && String::from_utf8(report.body).unwrap().starts_with("<!doctype html>"));
    let page = world.get(&format!("/api/v1/runs/{id}/report?view=true")).await;
    assert!(page.head.contains("content-security-policy: sandbox allow-scripts;"), "{}", page.head);
    assert!(!page.head.contains("content-disposition"), "{}", page.head);
    let log = String::from_utf8(world.get(&format!("/api/v1/runs/{id}/histograms")).await.body).unwrap();
    assert!(log.starts_with("#[Histogram log format version 1.3]") && log.contains("Tag=browse-rt,0.000,"), "{log}");
}

#[tokio::test]
async fn runs_are_searched_annotated_and_deleted() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let id = fixture.run(0).await["id"].as_str().unwrap().to_owned();
    fixture.run(1).await;
    let noted = world.post(&format!("/api/v1/runs/{id}/note"), r#"{"note": "before the <b>fix</b>"}"#).await;
    assert_eq!((noted.status, &noted.json()["note"]), (200, &json!("before the <b>fix</b>")));
    for (query, matching) in [
        ("", 2),
        ("?search=SHOP", 2),
        ("?search=fix%20shop", 1),
        ("?search=basket", 0),
        ("?verdict=interrupted", 2),
        ("?verdict=passed", 0),
    ] {
        let list = world.get(&format!("/api/v1/runs{query}")).await.json();
        assert_eq!((&list["matching"], &list["total"]), (&json!(matching), &json!(2)), "{query}");
    }
    assert_eq!(world.get("/api/v1/runs?count=1").await.json()["runs"].as_array().unwrap().len(), 1);
    fs::write(fixture.folder.path().join("junk.json"), "{}").unwrap();
    let list = world.get("/api/v1/runs").await.json();
    assert_eq!(list["skipped"][0]["file"], "junk.json");
    assert_eq!(fixture.delete(&format!("/api/v1/runs/{id}")).await.status, 200);
    fixture.delete(&format!("/api/v1/runs/{id}")).await.expect_error(404, "not_found");
    world.get(&format!("/api/v1/runs/{id}")).await.expect_error(404, "not_found");
    assert!(fixture.folder.get(&RunId::new(&id).unwrap()).is_err());
}

#[tokio::test]
async fn comparison_has_the_numbers_of_the_command_line() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let ids = [fixture.run(0).await, fixture.run(1).await].map(|run| run["id"].as_str().unwrap().to_owned());
    let [base, new] = &ids.clone().map(|id| fixture.folder.read(&RunId::new(&id).unwrap()).unwrap());
    let expected = compare(base, new, 0.1);
    let query = format!("base={}&new={}&tolerance=0.1", ids[0], ids[1]);
    let answer = world.get(&format!("/api/v1/compare?{query}")).await.json();
    assert_eq!(answer["comparison"], serde_json::to_value(&expected).unwrap());
    assert_eq!(answer["view"], serde_json::to_value(expected.view(base, new)).unwrap());
    assert_eq!(answer["base"]["id"], ids[0]);
    let page = world.get(&format!("/api/v1/compare/report?{query}")).await;
    assert!(page.head.contains("content-disposition: attachment"), "{}", page.head);
    assert!(String::from_utf8(page.body).unwrap().contains("Squall comparison"));
    let with_baseline = format!("/api/v1/compare?base=.baseline&new={}", ids[1]);
    let error = world.get(&with_baseline).await.expect_error(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("--save-baseline"), "{error}");
    fs::write(fixture.parent.path().join("baseline.json"), base.to_json()).unwrap();
    let answer = world.get(&with_baseline).await.json();
    assert_eq!(answer["comparison"], serde_json::to_value(compare(base, new, 0.05)).unwrap());
}

#[tokio::test]
async fn ids_that_leave_the_folder_and_wrong_queries_are_refused() {
    let fixture = fixture().await;
    let world = &fixture.world;
    fs::write(fixture.parent.path().join("secret.json"), "{}").unwrap();
    for id in ["..%2Fsecret", "%2Fetc%2Fpasswd", ".hidden", "a%00b", "..%5Csecret"] {
        world.get(&format!("/api/v1/runs/{id}")).await.expect_error(400, "validation_error");
        world.get(&format!("/api/v1/compare?base={id}&new=x")).await.expect_error(400, "validation_error");
        fixture.delete(&format!("/api/v1/runs/{id}")).await.expect_error(400, "validation_error");
    }
    world.get("/api/v1/runs/unknown/report").await.expect_error(404, "not_found");
    for query in ["verdict=good", "count=0", "count=x", "page=2"] {
        world.get(&format!("/api/v1/runs?{query}")).await.expect_error(400, "validation_error");
    }
    for query in ["", "base=x", "base=x&new=y&tolerance=-1", "base=x&new=y&tolerance=NaN", "base=x&new=y&z=1"] {
        world.get(&format!("/api/v1/compare?{query}")).await.expect_error(400, "validation_error");
    }
    let long = json!({"note": "x".repeat(5000)}).to_string();
    world.post("/api/v1/runs/unknown/note", long).await.expect_error(400, "validation_error");
}

#[tokio::test]
async fn server_without_a_folder_says_how_to_keep_runs() {
    let world = world_with(1, WebConfig::local("test")).await;
    assert_eq!(world.get("/api/v1/runs").await.json()["folder"], Value::Null);
    let error = world.get("/api/v1/runs/x").await.expect_error(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("--history"), "{error}");
}

#[tokio::test]
async fn folder_of_results_is_served_without_a_fleet() {
    let fixture = fixture().await;
    let id = fixture.run(0).await["id"].as_str().unwrap().to_owned();
    let history = Some(RunHistory { folder: fixture.folder.clone(), baseline: "none.json".into(), saves_runs: false });
    let config = WebConfig { history, mode: ServerMode::Results, ..WebConfig::local("test") };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(serve(FleetClient::new(MemoryFleetStores::default()), config, listener, stop.clone()));
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        async move { send(addr, head.as_bytes()).await.json() }
    };
    assert_eq!(get("/api/v1/session").await["results_only"], true);
    assert_eq!(get("/api/v1/runs").await["runs"][0]["id"], id);
    let text = fs::read_to_string(fixture.folder.path().join(format!("{id}.json"))).unwrap();
    assert_eq!(ResultFile::parse(&text).unwrap().run.name, "shop");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn run_is_in_the_history_although_the_next_one_started_at_once() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let fleet = FleetClient::new(world.cell.clone());
    fleet.start(&bundle(), BTreeMap::new()).await.unwrap();
    world.until(|current| current["live"]["requests_total"].as_u64() > Some(0), "/api/v1/tests/current").await;
    fleet.stop(StopReason::Interrupted, false, None).await.unwrap();
    // The watcher polls too rarely to see the fleet between the two runs.
    while fleet.start(&bundle(), BTreeMap::new()).await.is_err() {
        tokio::task::yield_now().await;
    }
    let list = world.until(|list| list["total"] == 1, "/api/v1/runs").await;
    let result = world.get("/api/v1/tests/1").await.json();
    assert_eq!(list["runs"][0]["started_unix_ms"], result["run"]["started_unix_ms"]);
    assert_eq!(list["runs"][0]["can_start"], true);
}

#[tokio::test]
async fn changed_run_has_one_result_and_starts_again_as_it_was() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let given = Bundle { schedule_rule: ScheduleRule::AllowMissing, ..bundle() };
    let given = serde_json::to_value(&given).unwrap();
    let body = serde_json::to_vec(&json!({"bundle": given})).unwrap();
    assert_eq!(world.post("/api/v1/tests", body).await.status, 201);
    let current = "/api/v1/tests/current";
    world.until(|test| test["live"]["requests_total"].as_u64() > Some(0), current).await;
    for (action, body) in [("scale", r#"{"users": 7}"#), ("pause", "{}"), ("stop", "{}")] {
        assert_eq!(world.post(&format!("{current}/{action}"), body).await.status, 200, "{action}");
    }
    let run = world.until(|list| list["total"] == 1, "/api/v1/runs").await["runs"][0].clone();
    let id = run["id"].as_str().unwrap();
    let result = world.get("/api/v1/tests/1").await.json();
    assert_eq!(world.get(&format!("/api/v1/runs/{id}/result")).await.json(), result);
    let load = &result["run"]["load"];
    assert_eq!((&load["peak"], &result["run"]["allow_missing"]), (&json!(7.0), &json!(true)));
    let length = load["duration_s"].as_f64().unwrap();
    assert!((length - 600.0).abs() < 100.0, "without the rest of the pause: {length}");
    assert_eq!(world.get(current).await.json()["verdict"], result["verdict"]);
    let saved = fixture.folder.read_bundle(&RunId::new(id).unwrap()).unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&saved).unwrap(), given);
}

#[tokio::test]
async fn run_with_the_name_baseline_is_compared_in_place_of_the_baseline() {
    let fixture = fixture().await;
    let world = &fixture.world;
    let id = RunId::new(fixture.run(0).await["id"].as_str().unwrap()).unwrap();
    let mut result = fixture.folder.read(&id).unwrap();
    fs::write(fixture.folder.path().join("baseline.json"), result.to_json()).unwrap();
    result.run.name = "another".to_owned();
    fs::write(fixture.parent.path().join("baseline.json"), result.to_json()).unwrap();
    for (base, name) in [("baseline", "shop"), (".baseline", "another")] {
        let answer = world.get(&format!("/api/v1/compare?base={base}&new={id}")).await.json();
        assert_eq!(answer["base"]["name"], name);
    }
}
