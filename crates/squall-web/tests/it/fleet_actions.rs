//! Tests of notes, of the drain of a worker, and of the pages of one metric and of the workers.

use serde_json::{Value, json};
use squall_coord::{FleetStores, RunStore};
use squall_model::{FleetEvent, FleetEventKind, protocol::RunNote};

use crate::{
    support::{REQUESTS_PER_SECOND, World, world},
    websocket::Socket,
};

const NOTES: &str = "/api/v1/tests/current/notes";

async fn start(world: &World) {
    assert_eq!(world.post("/start_test", r#"{"users": 1}"#).await.status, 200);
    world.until(|current| current["live"]["requests_total"].as_u64() > Some(0), "/api/v1/tests/current").await;
}

#[tokio::test]
async fn note_becomes_an_event_of_the_feed_and_of_the_result() {
    let world = world(1).await;
    world.post(NOTES, r#"{"text": "too early"}"#).await.expect_error(409, "invalid_state");
    start(&world).await;
    let mut socket = Socket::open(&world, "/api/v1/live").await;
    socket.message_of("snapshot").await;
    let added = world.post(NOTES, r#"{"text": " cache <b>cleared</b> ", "t_s": 0.04}"#).await;
    assert_eq!((added.status, added.json()), (201, json!({"epoch": 1, "t_s": 0.0, "text": "cache <b>cleared</b>"})));
    let event = socket.message_of("event").await;
    assert_eq!(event["event"], json!([0.0, "cache <b>cleared</b>", "note", null]));
    // A time that has not come is now.
    let later = world.post(NOTES, r#"{"text": "later", "t_s": 1e9}"#).await.json();
    assert!(later["t_s"].as_f64().unwrap() < 1e6, "{later}");
    assert_eq!(world.post("/stop_test", "{}").await.status, 200);
    let result = world.until(|result| result["fleet"]["events"].is_array(), "/api/v1/tests/1").await;
    let texts: Vec<&Value> = result["fleet"]["events"].as_array().unwrap().iter().map(|event| &event["text"]).collect();
    assert!(texts.contains(&&json!("cache <b>cleared</b>")) && texts.contains(&&json!("later")), "{texts:?}");
}

#[tokio::test]
async fn note_without_text_or_with_a_long_one_is_refused() {
    let world = world(1).await;
    let error = world.post(NOTES, r#"{"text": "  "}"#).await.expect_error(400, "validation_error");
    assert_eq!(error["message"], "text: give at least one character");
    let long = format!(r#"{{"text": "{}"}}"#, "x".repeat(501));
    let error = world.post(NOTES, long).await.expect_error(400, "validation_error");
    assert_eq!(error["message"], "the length of text: 501 is more than 500");
}

#[tokio::test]
async fn notes_of_a_run_are_limited() {
    let world = world(1).await;
    start(&world).await;
    let event = FleetEvent::new(0.0, FleetEventKind::Note, "x");
    let notes: Vec<_> =
        (0..1000).map(|id| RunNote::Person { id: id.to_string(), event: event.clone() }.encode()).collect();
    world.cell.run().set_notes(1, &notes).await.unwrap();
    let error = world.post(NOTES, r#"{"text": "one more"}"#).await.expect_error(409, "invalid_state");
    assert_eq!(error["message"], "this run has 1000 notes, and no more are kept");
}

#[tokio::test]
async fn drain_reaches_the_worker_that_it_names() {
    let world = world(2).await;
    world.post("/api/v1/workers/w9/drain", "").await.expect_error(404, "not_found");
    let error = world.post("/api/v1/workers/w1/drain", "").await.expect_error(409, "invalid_state");
    assert!(error["message"].as_str().unwrap().contains("does not listen"), "{error}");
    let mut commands = world.cell.run().subscribe("w2");
    let drained = world.post("/api/v1/workers/w2/drain", "{}").await;
    assert_eq!((drained.status, drained.json()), (202, json!({"worker": "w2", "shares": 128})));
    loop {
        let message = commands.recv().await.expect("a command");
        // The store sends an empty message when messages may have been missed.
        if !message.is_empty() {
            let command: Value = serde_json::from_slice(&message).unwrap();
            assert_eq!((&command["type"], &command["payload"]), (&json!("drain"), &json!({})));
            break;
        }
    }
}

#[tokio::test]
async fn fleet_has_its_leader_and_the_figures_of_each_worker_by_second() {
    let world = world(2).await;
    let before = world.get("/api/v1/fleet").await.json();
    assert_eq!((&before["run"], &before["t"], &before["workers"]), (&Value::Null, &json!([]), &json!([])));
    start(&world).await;
    let enough = |fleet: &Value| fleet["workers"].as_array().is_some_and(|workers| workers.len() == 2);
    let with_lag =
        |fleet: &Value| enough(fleet) && fleet["workers"][1]["lag_p99"].to_string().contains(char::is_numeric);
    let fleet = world.until(with_lag, "/api/v1/fleet").await;
    let points = fleet["t"].as_array().unwrap().len();
    for (worker, id) in fleet["workers"].as_array().unwrap().iter().zip(["w1", "w2"]) {
        assert_eq!(worker["id"], id);
        for column in ["cpu_percent", "lag_p99"] {
            assert_eq!(worker[column].as_array().unwrap().len(), points, "{column} of {worker}");
        }
    }
    assert_eq!(fleet["t"][0], 1);
    assert_eq!(
        (&fleet["leader"], &fleet["orchestrators"]),
        (&json!("leader"), &json!(1)),
        "the name without its unique part"
    );
    assert_eq!(world.post("/stop_test", "{}").await.status, 200);
    let over = world.until(|state| state["state"] == "IDLE", "/api/v1/tests/current").await;
    assert_eq!(over["epoch"], 1);
    let kept = world.get("/api/v1/fleet").await.json();
    assert_eq!(kept["workers"].as_array().unwrap().len(), 2, "the figures stay when the run is over");
}

#[tokio::test]
async fn metric_has_its_seconds_its_distribution_and_its_outcomes() {
    let world = world(1).await;
    world.get("/api/v1/tests/current/metrics/0").await.expect_error(404, "not_found");
    start(&world).await;
    let enough = |metric: &Value| metric["seconds"]["t"].as_array().is_some_and(|seconds| seconds.len() >= 2);
    let metric = world.until(enough, "/api/v1/tests/current/metrics/0").await;
    let seconds = &metric["seconds"];
    assert_eq!(seconds["requests"][1], REQUESTS_PER_SECOND, "{metric}");
    let buckets = metric["response"]["buckets"].as_array().unwrap();
    let counted: u64 = buckets.iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
    assert_eq!(metric["requests"], counted);
    assert!(buckets.iter().all(|bucket| bucket[0].as_u64() < bucket[1].as_u64()), "{buckets:?}");
    let ended: u64 =
        metric["outcomes"].as_array().unwrap().iter().map(|outcome| outcome["count"].as_u64().unwrap()).sum();
    assert_eq!(metric["requests"], ended);
    world.get("/api/v1/tests/current/metrics/99").await.expect_error(404, "not_found");
    world.get("/api/v1/tests/current/metrics/x").await.expect_error(400, "validation_error");
}
