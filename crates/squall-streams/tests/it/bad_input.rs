//! Input that is not what it should be: refused or handled by policy, named, never a crash loop.

use squall_streams::{DecodeError, FailurePolicy, PartitionHasher, SendError, StreamOpenError, admin::StreamAdmin};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::Log,
    support::{Order, Running, app, eventually, orders, pending, processed, quick, recorder, send, stream},
};

async fn raw(app: &squall_streams::StreamApp, parts: &[&[u8]]) {
    let mut command = redis::cmd(std::str::from_utf8(parts[0]).unwrap());
    for part in &parts[1..] {
        command.arg(*part);
    }
    let _: redis::Value = command.query_async(&mut app.client().connection()).await.unwrap();
}

const KEY: &[u8] = b"__strm:shop.orders.0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_do_not_decode_follow_the_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, Log::default());
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
        raw(&app, &[&[b"XADD", KEY, b"*"], fields].concat()).await;
    }
    sent.extend(send(&stream, &orders(3)).await);
    let worker = Running::start(&app, recorder(&stream, &log).policy(FailurePolicy::ignore()).settings(quick()));
    processed(&log, 6).await;
    assert_eq!(worker.metrics.given_up(), 6);
    worker.stop().await.unwrap();
    crate::order_checker::check_exactly_once(&log.all(), &sent);
    assert_eq!(pending(&app, &stream, "recorder").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_event_is_not_retried_and_quarantines_once() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, Log::default());
    raw(&app, &[b"XADD", KEY, b"*", b"data", b"nonsense"]).await;
    let policy = FailurePolicy::quarantine().retry(5, std::time::Duration::from_secs(60));
    let worker = Running::start(&app, recorder(&stream, &log).policy(policy).settings(quick()));
    let admin = StreamAdmin::new(app.client().clone(), app.namespace().clone());
    let name = stream.name().processor("recorder").unwrap();
    eventually("marked", || async { !admin.quarantined_partitions(&name).await.unwrap().is_empty() }).await;
    assert_eq!(worker.metrics.failures(), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_deleted_while_pending_follows_the_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, Log::default());
    let sent = send(&stream, &orders(3)).await;
    // Somebody read them and died; somebody else deleted one.
    raw(&app, &[b"XGROUP", b"CREATE", KEY, b"recorder", b"0"]).await;
    raw(&app, &[b"XREADGROUP", b"GROUP", b"recorder", b"1", b"COUNT", b"3", b"STREAMS", KEY, b">"]).await;
    raw(&app, &[b"XDEL", KEY, sent[1].1.to_string().as_bytes()]).await;
    let worker = Running::start(&app, recorder(&stream, &log).policy(FailurePolicy::ignore()).settings(quick()));
    processed(&log, 2).await;
    worker.stop().await.unwrap();
    crate::order_checker::check_exactly_once(&log.all(), &[sent[0], sent[2]]);
    assert_eq!(DecodeError::Deleted.to_string(), "the event was deleted before it was processed");
}

#[tokio::test]
async fn a_changed_partition_count_is_refused_with_the_way_out() {
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
async fn definitions_that_cannot_work_are_refused() {
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
async fn wrong_key_types_are_reported_by_name() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    raw(&app, &[b"LPUSH", KEY, b"x"]).await;
    let error = stream.send(&orders(1)[0]).await.unwrap_err();
    assert!(matches!(error, SendError::WrongType(_)));
    assert!(error.to_string().contains("`__strm:shop.orders.0` holds a list"), "{error}");

    let ended = Running::start(&app, recorder(&stream, &Log::default()).settings(quick())).ended().await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("`__strm:shop.orders.0` holds a list"), "{error}");

    raw(&app, &[b"DEL", KEY]).await;
    raw(&app, &[b"DEL", b"__lock:shop.orders.recorder.0"]).await;
    raw(&app, &[b"SET", b"__lock:shop.orders.recorder.0", b"x"]).await;
    let ended = Running::start(&app, recorder(&stream, &Log::default()).settings(quick())).ended().await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("`__lock:shop.orders.recorder.0` holds a string"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_work_are_refused() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    let with = |settings| Running::start(&app, recorder(&stream, &Log::default()).settings(settings)).ended();
    let error = with(squall_streams::ProcessorSettings { prefetch: 0, ..quick() }).await.unwrap_err();
    assert_eq!(error.to_string(), "`prefetch` must not be zero");
    let error =
        with(squall_streams::ProcessorSettings { lease_ttl: quick().heartbeat_interval, ..quick() }).await.unwrap_err();
    assert_eq!(error.to_string(), "the time to live 100ms is less than three heartbeat intervals of 100ms");
}
