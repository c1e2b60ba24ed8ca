//! A worker with fenced side effects: one script checks that the worker still owns the partition
//! and books the order in a Redis list. Run several workers, kill some, stop some: the ledger stays
//! in order and complete.
//!
//! cargo run -p squall-streams --example ledger -- redis://127.0.0.1:6379 [partitions] [lease in ms]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use squall_streams::{BoxError, FailurePolicy, Namespace, PartitionEvents, Processor, ProcessorSettings, StreamApp};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize)]
struct Order {
    order_id: u64,
    number: u64,
}

/// Books a line if the lock still has the epoch. Keys: 1 lock of the partition, 2 ledger. Args: 1
/// epoch, 2 line.
const BOOK: &str = "if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
                    return redis.call('RPUSH', KEYS[2], ARGV[2])";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let partitions = arguments.next().map_or(Ok(16), |count| count.parse())?;
    let lease_ttl = Duration::from_millis(arguments.next().map_or(Ok(3500), |ms| ms.parse())?);

    let mut terminate = signal(SignalKind::terminate())?;
    let app = StreamApp::connect_in("shop", &url, Namespace::new("")?).await?;
    let orders = app.stream::<Order>("orders").partition_by("order_id").partitions(partitions).open().await?;
    let client = app.client().clone();
    let booker = Processor::new("booker", &orders, move |events| book(events, client.clone()));
    let settings = ProcessorSettings {
        lease_ttl,
        heartbeat_interval: lease_ttl / 4,
        join_delay: lease_ttl / 8,
        ..ProcessorSettings::default()
    };

    let stop = CancellationToken::new();
    let worker = app.worker().processor(booker.policy(FailurePolicy::halt()).settings(settings)).run(stop.clone());
    tokio::pin!(worker);
    tokio::select! {
        outcome = &mut worker => return Ok(outcome?),
        _ = terminate.recv() => stop.cancel(),
        _ = tokio::signal::ctrl_c() => stop.cancel(),
    }
    Ok(worker.await?)
}

async fn book(mut events: PartitionEvents<Order>, client: squall_coord::RedisClient) -> Result<(), BoxError> {
    let (partition, fence) = (events.partition(), events.fence_token());
    let script = redis::Script::new(BOOK);
    let mut commands = client.connection();
    while let Some(event) = events.next().await {
        let line = format!("{partition} {} {} {}", event.id, fence.epoch, event.record.number);
        // Not fenced: a replaced worker can still write one attempt, of its current iteration. It
        // cannot write to the ledger.
        let _: i64 = redis::cmd("RPUSH").arg("attempts").arg(&line).query_async(&mut commands).await?;
        let _: i64 =
            script.key(&fence.key).key("ledger").arg(fence.epoch.0).arg(&line).invoke_async(&mut commands).await?;
    }
    Ok(())
}
