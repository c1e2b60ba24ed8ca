//! Leader election against a real server: one worker runs the tasks of the leader, and another one
//! after it has stopped.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use squall_streams::{BackgroundTask, BoxError};
use squall_testkit::{redis::RedisServer, tracing_capture};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::support::{app, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_task_moves_to_another_worker_when_the_leader_stops() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let ticks: Arc<Mutex<Vec<usize>>> = Arc::default();
    let start = |name: usize| {
        let ticks = ticks.clone();
        let action = move || {
            ticks.lock().unwrap().push(name);
            async { Ok::<(), BoxError>(()) }
        };
        let task = BackgroundTask::timer("tick", Duration::from_millis(20), action).unwrap().on_leader();
        let stop = CancellationToken::new();
        // So long that it does not expire on a busy machine.
        let worker = app.worker().task(task).leader_ttl(Duration::from_secs(600));
        (stop.clone(), tokio::spawn(worker.run(stop)))
    };
    let (first_stop, first) = start(1);
    eventually("the first worker leads", || async { ticks.lock().unwrap().len() > 5 }).await;
    let (second_stop, second) = start(2);
    eventually("the first worker still leads", || async { ticks.lock().unwrap().len() > 30 }).await;
    assert!(ticks.lock().unwrap().iter().all(|name| *name == 1));
    first_stop.cancel();
    first.await.unwrap().unwrap();
    eventually("the second worker leads", || async { ticks.lock().unwrap().contains(&2) }).await;
    second_stop.cancel();
    second.await.unwrap().unwrap();
    let ticks = ticks.lock().unwrap().clone();
    let switch = ticks.iter().position(|name| *name == 2).unwrap();
    assert!(
        ticks[switch..].iter().all(|name| *name == 2),
        "the first worker runs no task after the second has started"
    );
    let leader: Option<String> =
        redis::cmd("GET").arg("__lead:shop").query_async(&mut app.client().connection()).await.unwrap();
    assert_eq!(leader, None, "the last leader deletes its key");
}

/// Someone writes the key while the worker runs.
#[tokio::test]
async fn leader_key_that_changes_its_type_is_named_once_and_the_tasks_return_without_it() {
    tracing_capture::start_capture();
    let server = RedisServer::start();
    let app = app(&server).await;
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = ticks.clone();
    let action = move || {
        counted.fetch_add(1, Relaxed);
        async { Ok::<(), BoxError>(()) }
    };
    let task = BackgroundTask::timer("tick", Duration::from_millis(20), action).unwrap().on_leader();
    let stop = CancellationToken::new();
    let worker = app.worker().task(task).leader_ttl(Duration::from_millis(350));
    let worker = tokio::spawn(worker.run(stop.clone()));
    eventually("the worker leads", || async { ticks.load(Relaxed) > 0 }).await;

    let mut change = redis::pipe();
    change.atomic().cmd("DEL").arg("__lead:shop").cmd("HSET").arg(&["__lead:shop", "a", "b"]);
    let () = change.query_async(&mut app.client().connection()).await.unwrap();
    eventually("several attempts have failed", || async {
        let stats: String =
            redis::cmd("INFO").arg("errorstats").query_async(&mut app.client().connection()).await.unwrap();
        let count = stats.lines().find_map(|line| line.strip_prefix("errorstat_WRONGTYPE:count="));
        count.is_some_and(|count| count.trim().parse::<u64>().unwrap() >= 4)
    })
    .await;
    let warnings = tracing_capture::take_thread_events(Level::WARN);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let error = &warning.fields["error"];
    assert!(error.contains("key `__lead:shop` holds a hash") && error.contains("remove the key"), "{error}");

    let () = redis::cmd("DEL").arg("__lead:shop").query_async(&mut app.client().connection()).await.unwrap();
    let before = ticks.load(Relaxed);
    eventually("the worker leads again", || async { ticks.load(Relaxed) > before }).await;
    stop.cancel();
    worker.await.unwrap().unwrap();
}

#[tokio::test]
async fn leader_key_of_another_type_ends_the_worker_and_is_named() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let () =
        redis::cmd("HSET").arg(&["__lead:shop", "a", "b"]).query_async(&mut app.client().connection()).await.unwrap();
    let action = || async { Ok::<(), BoxError>(()) };
    let task = BackgroundTask::timer("tick", Duration::from_secs(1), action).unwrap().on_leader();
    let error = app.worker().task(task).run(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains("key `__lead:shop` holds a hash") && error.contains("remove the key"), "{error}");
}
