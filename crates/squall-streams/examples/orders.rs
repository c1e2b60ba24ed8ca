//! A complete small app: a stream of orders, a processor that adds them up, a timer, a crontab line
//! and a clean stop.
//!
//! cargo run -p squall-streams --example orders -- redis://127.0.0.1:6379
//! Start it twice: the workers share the partitions. Stop one with Ctrl-C: the other takes them back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use squall_streams::{BackgroundTask, BoxError, DeadLetterQueue, FailurePolicy, Processor, StreamApp, StreamMetrics};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize)]
struct Order {
    order_id: u64,
    amount: u64,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let app = StreamApp::connect("example", &url).await?;
    let orders = app.stream::<Order>("orders").partition_by("order_id").partitions(8).open().await?;

    let adder = Processor::new("adder", &orders, |mut events| async move {
        let partition = events.partition();
        while let Some(batch) = events.take_batch(10, Duration::from_millis(200)).await {
            let sum: u64 = batch.iter().map(|order| order.amount).sum();
            println!("partition {partition}: {} orders worth {sum}", batch.len());
        }
        Ok::<(), BoxError>(())
    })
    .policy(FailurePolicy::quarantine().retry(3, Duration::from_millis(200)))
    .middleware(DeadLetterQueue::for_stream(&app, &orders).await?);

    // Only the leader sends, so that one worker does.
    let send = move || {
        let orders = orders.clone();
        async move {
            let batch: Vec<Order> = (0..20).map(|n| Order { order_id: n, amount: n * 10 }).collect();
            orders.send_many(&batch).await.map(drop)
        }
    };
    let sender = BackgroundTask::timer("sender", Duration::from_secs(1), send)?.on_leader();
    let hourly = BackgroundTask::crontab("hourly", "0 * * * *", "Europe/Berlin", || async {
        println!("a full hour in Berlin");
        Ok::<(), BoxError>(())
    })?;

    let worker = app.worker().processor(adder).task(sender).task(hourly);
    let metrics = worker.metrics();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    running.await??;
    println!("{}", StreamMetrics::render(metrics.iter().map(|(name, metrics)| (name, &**metrics))));
    Ok(())
}
