//! Counts the lag of the held partitions and logs progress. Reads one partition after the other, so
//! as not to load the server.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use squall_coord::RedisClient;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};

use crate::{admin::StreamAdmin, executor_context::ExecutorContext, names::Namespace};

/// Reports until the task is aborted.
pub(super) async fn run_lag_reporter(context: Arc<ExecutorContext>, client: RedisClient, namespace: Namespace) {
    let admin = StreamAdmin::new(client, namespace);
    let mut ticks = interval(context.settings.report_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last_acked, mut last_time) = (0, Instant::now());
    loop {
        ticks.tick().await;
        let mut lag = 0;
        for buffer in context.buffers() {
            match admin.partition_lag(&context.processor, buffer.partition.number).await {
                Ok(partition_lag) => lag += partition_lag.waiting + partition_lag.pending,
                Err(error) => debug!(processor = %context.processor, %error, "the worker could not count the lag"),
            }
        }
        context.metrics.lag.store(lag, Relaxed);
        let (acked, now) = (context.metrics.acked(), Instant::now());
        let rate = (acked - last_acked) as f64 / (now - last_time).as_secs_f64().max(0.001);
        if acked != last_acked || lag > 0 {
            info!(processor = %context.processor, lag, rate = rate.round(), held = context.metrics.held(), "progress");
        }
        (last_acked, last_time) = (acked, now);
    }
}
