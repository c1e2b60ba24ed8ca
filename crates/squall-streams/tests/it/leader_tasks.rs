//! Leader election against a real server: one worker runs the tasks of the leader, and another one
//! after it has stopped.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use squall_streams::{BackgroundTask, BoxError};
use squall_testkit::redis::RedisServer;
use tokio_util::sync::CancellationToken;

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
