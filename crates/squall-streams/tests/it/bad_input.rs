//! Invalid input: events, definitions, key types and settings. It is rejected with a clear error or
//! handled by the failure policy.

use squall_streams::{DecodeError, FailurePolicy, PartitionHasher, SendError, StreamOpenError, admin::StreamAdmin};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::EventLog,
    support::{
        Order, RunningWorker, app, eventually, fast_settings, orders, pending_count, recording_processor, send, stream,
        wait_processed,
    },
};

async fn run_command(app: &squall_streams::StreamApp, parts: &[&[u8]]) {
    let mut command = redis::cmd(std::str::from_utf8(parts[0]).unwrap());
    for part in &parts[1..] {
        command.arg(*part);
    }
    let _: redis::Value = command.query_async(&mut app.client().connection()).await.unwrap();
}

const EVENTS_KEY: &[u8] = b"__strm:shop.orders.0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_events_are_skipped_by_the_ignore_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, EventLog::default());
    let mut sent = send(&stream, &orders(3)).await;
    let bad: [&[&[u8]]; 6] = [
        &[b"data", b"not json"],
        &[b"data", b"{\"order_id\":\"text\",\"number\":1}"],
        &[b"data", b"\xff\xfe"],
        &[b"data", b"\x1f\x8b broken gzip"],
        &[b"other", b"field"],
        &[b"data", b""],
    ];
    for fields in bad {
        run_command(&app, &[&[b"XADD", EVENTS_KEY, b"*"], fields].concat()).await;
    }
    sent.extend(send(&stream, &orders(3)).await);
    let worker = RunningWorker::start(
        &app,
        recording_processor(&stream, &log).policy(FailurePolicy::ignore()).settings(fast_settings()),
    );
    wait_processed(&log, 6).await;
    assert_eq!(worker.metrics.given_up(), 6);
    worker.stop().await.unwrap();
    crate::order_checker::check_exactly_once(&log.all(), &sent);
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_event_is_quarantined_without_retries() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, EventLog::default());
    run_command(&app, &[b"XADD", EVENTS_KEY, b"*", b"data", b"nonsense"]).await;
    let policy = FailurePolicy::quarantine().retry(5, std::time::Duration::from_secs(60));
    let worker =
        RunningWorker::start(&app, recording_processor(&stream, &log).policy(policy).settings(fast_settings()));
    let admin = StreamAdmin::new(app.client().clone(), app.namespace().clone());
    let name = stream.name().processor("recorder").unwrap();
    eventually("the partition is in quarantine", || async {
        !admin.quarantined_partitions(&name).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(worker.metrics.failures(), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_deleted_while_pending_is_skipped_by_the_ignore_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, EventLog::default());
    let sent = send(&stream, &orders(3)).await;
    // Simulates a worker that died after reading, and the deletion of one event.
    run_command(&app, &[b"XGROUP", b"CREATE", EVENTS_KEY, b"recorder", b"0"]).await;
    run_command(&app, &[b"XREADGROUP", b"GROUP", b"recorder", b"1", b"COUNT", b"3", b"STREAMS", EVENTS_KEY, b">"])
        .await;
    run_command(&app, &[b"XDEL", EVENTS_KEY, sent[1].1.to_string().as_bytes()]).await;
    let worker = RunningWorker::start(
        &app,
        recording_processor(&stream, &log).policy(FailurePolicy::ignore()).settings(fast_settings()),
    );
    wait_processed(&log, 2).await;
    worker.stop().await.unwrap();
    crate::order_checker::check_exactly_once(&log.all(), &[sent[0], sent[2]]);
    assert_eq!(DecodeError::Deleted.to_string(), "the event was deleted before it was processed");
}

#[tokio::test]
async fn changed_partition_count_or_hasher_is_rejected_with_a_remedy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    stream(&app, 4).await;
    let error = app.stream::<Order>("orders").partition_by("order_id").partitions(8).open().await.err().unwrap();
    assert!(
        matches!(&error, StreamOpenError::DefinitionMismatch { stored, wanted, .. } if stored == "4" && wanted == "8")
    );
    let text = error.to_string();
    assert!(text.contains("__meta:shop.orders") && text.contains("another stream name"), "{text}");
    let other =
        app.stream::<Order>("orders").partition_by("order_id").partitions(4).hasher(PartitionHasher::Md5).open().await;
    assert!(matches!(other.err(), Some(StreamOpenError::DefinitionMismatch { what: "as its hasher", .. })));
}

#[tokio::test]
async fn invalid_stream_definitions_are_rejected() {
    let server = RedisServer::start();
    let app = app(&server).await;
    assert!(matches!(
        app.stream::<Order>("orders").open().await.err(),
        Some(StreamOpenError::MissingPartitionKey(_, 16))
    ));
    assert!(matches!(
        app.stream::<Order>("orders").partitions(0).open().await.err(),
        Some(StreamOpenError::ZeroSize(_))
    ));
    assert!(matches!(app.stream::<Order>("or ders").open().await.err(), Some(StreamOpenError::Name(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_key_type_error_names_the_key() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    run_command(&app, &[b"LPUSH", EVENTS_KEY, b"x"]).await;
    let error = stream.send(&orders(1)[0]).await.unwrap_err();
    assert!(matches!(error, SendError::WrongType(_)));
    assert!(error.to_string().contains("`__strm:shop.orders.0` holds a list"), "{error}");

    let outcome =
        RunningWorker::start(&app, recording_processor(&stream, &EventLog::default()).settings(fast_settings()))
            .wait_end()
            .await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("`__strm:shop.orders.0` holds a list"), "{error}");

    run_command(&app, &[b"DEL", EVENTS_KEY]).await;
    run_command(&app, &[b"DEL", b"__lock:shop.orders.recorder.0"]).await;
    run_command(&app, &[b"SET", b"__lock:shop.orders.recorder.0", b"x"]).await;
    let outcome =
        RunningWorker::start(&app, recording_processor(&stream, &EventLog::default()).settings(fast_settings()))
            .wait_end()
            .await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("`__lock:shop.orders.recorder.0` holds a string"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_processor_settings_are_rejected() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    let run_with = |settings| {
        RunningWorker::start(&app, recording_processor(&stream, &EventLog::default()).settings(settings)).wait_end()
    };
    let error = run_with(squall_streams::ProcessorSettings { prefetch: 0, ..fast_settings() }).await.unwrap_err();
    assert_eq!(error.to_string(), "`prefetch` must not be zero");
    let error = run_with(squall_streams::ProcessorSettings {
        lease_ttl: fast_settings().heartbeat_interval,
        ..fast_settings()
    })
    .await
    .unwrap_err();
    assert!(matches!(error, squall_streams::ExecutorError::Timing(_)), "{error}");
}
