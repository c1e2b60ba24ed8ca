//! Counts how far the held partitions are behind and tells progress. Refuses to hurry: one partition after the other.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use squall_coord::RedisClient;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};

use crate::{admin::StreamAdmin, executor_context::ExecutorContext, names::Namespace};

/// Reports for ever.
pub(super) async fn run_lag_reporter(hub: Arc<ExecutorContext>, link: RedisClient, namespace: Namespace) {
    let admin = StreamAdmin::new(link, namespace);
    let mut times = interval(hub.settings.report_interval);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut at) = (0, Instant::now());
    loop {
        times.tick().await;
        let mut lag = 0;
        for lane in hub.buffers() {
            match admin.partition_lag(&hub.processor, lane.partition.number).await {
                Ok(one) => lag += one.waiting + one.pending,
                Err(error) => debug!(processor = %hub.processor, %error, "lag not counted"),
            }
        }
        hub.metrics.lag.store(lag, Relaxed);
        let (acked, now) = (hub.metrics.acked(), Instant::now());
        let rate = (acked - before) as f64 / (now - at).as_secs_f64().max(0.001);
        if acked != before || lag > 0 {
            info!(processor = %hub.processor, lag, rate = rate.round(), held = hub.metrics.held(), "progress");
        }
        (before, at) = (acked, now);
    }
}
