//! Keys that workers of runnel have left: memberships, locks and control messages in its own form.

use squall_streams::StreamApp;
use squall_testkit::redis::RedisServer;

use crate::{
    cli::squall,
    order_checker::{EventLog, check_exactly_once},
    support::{
        RunningWorker, app, eventually, fast_settings, orders, pending_count, recording_processor, send, stream,
        wait_processed, with_timeout,
    },
};

/// An executor id as runnel makes it: a UUID in base64 for URLs.
const DEAD: &str = "3q2-7wAAQACAAAAAAAAAAA==";
const MEMBERS: &str = "__memb:shop.orders.recorder";

async fn redis<T: redis::FromRedisValue>(app: &StreamApp, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut app.client().connection()).await.unwrap()
}

/// Leaves what a killed worker of runnel with four partitions leaves: it has read two events, and its
/// locks on partitions 0 and 1 have not expired yet.
async fn leave_runnel_keys(app: &StreamApp) {
    let record =
        format!(r#"{{"{DEAD}": {{"joined_at": "2026-03-01T12:00:00.123456+00:00", "partitions": [0, 1, 2, 3]}}}}"#);
    let () = redis(app, &["SET", MEMBERS, &record]).await;
    let () = redis(app, &["SET", &format!("__beat:shop.orders.recorder.{DEAD}"), "beat", "PX", "120000"]).await;
    for partition in 0..2 {
        let lock = format!("__lock:shop.orders.recorder.{partition}");
        let () = redis(app, &["SET", &lock, DEAD, "PX", "120000"]).await;
    }
    let ids = format!(r#"["{DEAD}"]"#);
    let control = ["XADD", "__ctrl:shop.orders.recorder", "*", "reason", "join", "executor_ids", &ids];
    let _: String = redis(app, &control).await;
    for partition in 0..4 {
        let events = format!("__strm:shop.orders.{partition}");
        let () = redis(app, &["XGROUP", "CREATE", &events, "recorder", "0"]).await;
        let read = ["XREADGROUP", "GROUP", "recorder", "1", "COUNT", "2", "STREAMS", &events, ">"];
        let _: redis::Value = redis(app, &read).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_of_a_killed_runnel_worker_are_taken_over_when_its_locks_expire() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    let sent = send(&stream, &orders(200)).await;
    leave_runnel_keys(&app).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));

    let free = sent.iter().filter(|(partition, _)| *partition >= 2).count();
    wait_processed(&log, free).await;
    assert!(log.all().iter().all(|seen| seen.partition >= 2), "runnel still holds partitions 0 and 1");
    let record: String = redis(&app, &["GET", MEMBERS]).await;
    assert!(record.contains(&format!(r#""{DEAD}":{{"joined_at":"2026-03-01T12:00:00.123456+00:00""#)), "{record}");

    // Deleting stands for expiry.
    let _: u64 = redis(&app, &["DEL", "__lock:shop.orders.recorder.0", "__lock:shop.orders.recorder.1"]).await;
    wait_processed(&log, sent.len()).await;
    let _: u64 = redis(&app, &["DEL", &format!("__beat:shop.orders.recorder.{DEAD}")]).await;
    eventually("the membership of the killed worker has expired", || async {
        !redis::<String>(&app, &["GET", MEMBERS]).await.contains(DEAD)
    })
    .await;
    worker.stop().await.unwrap();
    check_exactly_once(&log.all(), &sent);
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

#[tokio::test]
async fn members_lists_a_live_worker_of_runnel_and_reset_refuses() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 4).await;
    send(&stream, &orders(40)).await;
    leave_runnel_keys(&app).await;
    let out = squall(&server, &["members", "shop.orders.recorder"]).await.unwrap();
    let listed = format!("{DEAD}  runnel  since 2026-03-01T12:00:00.123456+00:00  assigned [0, 1, 2, 3]\n");
    assert_eq!(out, format!("1 worker runs shop.orders.recorder\n{listed}"));
    let out = squall(&server, &["members", "shop.orders.recorder", "--json"]).await.unwrap();
    assert!(out.contains(r#""runnel":true"#) && out.contains(r#""partitions":[0,1,2,3]"#), "{out}");
    let error = squall(&server, &["reset", "shop.orders.recorder"]).await.unwrap_err().to_string();
    assert!(error.contains("has 1 running workers; stop them first"), "{error}");

    let _: u64 = redis(&app, &["DEL", &format!("__beat:shop.orders.recorder.{DEAD}")]).await;
    let out = squall(&server, &["members", "shop.orders.recorder"]).await.unwrap();
    assert_eq!(out, "0 workers run shop.orders.recorder\n", "its heartbeat has expired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_waits_for_a_runnel_lock_can_be_stopped() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    let sent = send(&stream, &orders(40)).await;
    leave_runnel_keys(&app).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, sent.iter().filter(|(partition, _)| *partition >= 2).count()).await;
    with_timeout(worker.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_membership_ends_the_worker_and_names_key_and_remedy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    let unreadable =
        ["nonsense", "{nonsense}", "[]", "7", r#"{"x": 5}"#, r#"{"x": {"joined_at": true, "partitions": []}}"#];
    for text in unreadable {
        let _: u64 = redis(&app, &["DEL", MEMBERS, "__live:shop.orders.recorder"]).await;
        let () = redis(&app, &["SET", MEMBERS, text]).await;
        let worker =
            RunningWorker::start(&app, recording_processor(&stream, &EventLog::default()).settings(fast_settings()));
        let error = worker.wait_end().await.expect_err(text).to_string();
        assert!(error.contains(&format!("key `{MEMBERS}` holds a text of another kind")), "{text}: {error}");
        assert!(error.contains("--namespace") && error.contains("remove the key"), "{text}: {error}");
    }
    let _: u64 = redis(&app, &["DEL", MEMBERS, "__ctrl:shop.orders.recorder"]).await;
    let () = redis(&app, &["SET", "__ctrl:shop.orders.recorder", "x"]).await;
    let worker =
        RunningWorker::start(&app, recording_processor(&stream, &EventLog::default()).settings(fast_settings()));
    let error = worker.wait_end().await.unwrap_err().to_string();
    assert!(error.contains("key `__ctrl:shop.orders.recorder` holds a string"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_control_message_lists_its_executors() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 2).await, EventLog::default());
    send(&stream, &orders(4)).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, 4).await;
    worker.stop().await.unwrap();
    let entries: Vec<(String, Vec<String>)> = redis(&app, &["XRANGE", "__ctrl:shop.orders.recorder", "-", "+"]).await;
    let mut reasons = Vec::new();
    for (_, fields) in entries {
        assert_eq!((fields[0].as_str(), fields[2].as_str()), ("reason", "executor_ids"), "{fields:?}");
        assert!(serde_json::from_str::<Vec<String>>(&fields[3]).is_ok(), "{fields:?}");
        reasons.push(fields[1].clone());
    }
    assert!(["join", "assign", "leave"].iter().all(|reason| reasons.iter().any(|seen| seen == reason)), "{reasons:?}");
}
