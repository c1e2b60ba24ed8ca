//! Streams on a cluster: a node that owns every slot rejects a command or script whose keys do not
//! share a slot.

use squall_streams::{
    BackgroundTask, BoxError, ConnectError, FailurePolicy, Namespace, PartitionEvents, Processor, ProcessorName,
    StreamApp, admin::StreamAdmin,
};
use squall_testkit::redis::{RedisCluster, RedisServer};
use tokio_util::sync::CancellationToken;

use crate::support::{Order, eventually, fast_settings, orders};

/// A cluster of one node.
async fn single_cluster_node() -> (RedisServer, StreamApp) {
    let server = RedisServer::start_with(&["--save", "", "--cluster-enabled", "yes"]);
    let app = StreamApp::connect("shop", &server.url()).await.unwrap();
    // Adds slots one by one, because Redis 6 has no ADDSLOTSRANGE.
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTS");
    (0..16384).for_each(|slot| {
        slots.arg(slot);
    });
    let _: redis::Value = slots.query_async(&mut app.client().connection()).await.unwrap();
    eventually("the cluster is up", || async {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut app.client().connection()).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    (server, app)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_keys_share_one_cluster_slot() {
    let (_server, app) = single_cluster_node().await;
    check_all_operations(app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_operations_succeed_on_a_three_node_cluster() {
    let cluster = RedisCluster::start();
    let rejected = StreamApp::connect_in("shop", &cluster.url(), Namespace::new("").unwrap()).await;
    assert!(
        matches!(rejected, Err(ConnectError::ClusterNeedsNamespace)),
        "keys without hash tags lie in different slots"
    );
    check_all_operations(StreamApp::connect("shop", &cluster.url()).await.unwrap()).await;
}

/// Sends, processes, quarantines, clears, elects a leader, resets and tails.
async fn check_all_operations(app: StreamApp) {
    let stream = app.stream::<Order>("orders").partition_by("order_id").partitions(4).open().await.unwrap();
    let bad_partition = stream.route(&orders(8)[7]).unwrap();
    let failing_processor = || {
        Processor::new("failing", &stream, |mut events: PartitionEvents<Order>| async move {
            while let Some(event) = events.next().await {
                if event.record.number == 7 {
                    return Err(BoxError::from("seven"));
                }
            }
            Ok(())
        })
        .policy(FailurePolicy::quarantine())
        .settings(fast_settings())
    };
    let leader_task = || BackgroundTask::once("lead", || async { Ok::<(), BoxError>(()) }).on_leader();
    let admin = StreamAdmin::new(app.client().clone(), app.namespace().clone());
    let name = ProcessorName::parse("shop.orders.failing").unwrap();
    let stops = [CancellationToken::new(), CancellationToken::new()];
    let workers = stops
        .clone()
        .map(|stop| tokio::spawn(app.worker().processor(failing_processor()).task(leader_task()).run(stop)));
    stream.send_many(&orders(97)).await.unwrap();
    eventually("the partition is in quarantine", || async {
        admin.quarantined_partitions(&name).await.unwrap().contains_key(&bad_partition)
    })
    .await;
    assert!(admin.clear_quarantine(&name, bad_partition, true).await.unwrap());
    eventually("all events are acknowledged", || async {
        let lag = admin.lag(&name).await.unwrap();
        lag.iter().all(|partition| partition.waiting + partition.pending == 0)
    })
    .await;
    for (stop, worker) in stops.iter().zip(workers) {
        stop.cancel();
        worker.await.unwrap().unwrap();
    }
    assert_eq!(admin.reset_processor(&name, "$").await.unwrap(), 4);
    let mut tail = admin.tail(stream.name(), true).await.unwrap();
    assert_eq!(tail.next().await.unwrap().len(), 97);
}
