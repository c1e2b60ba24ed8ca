//! Writes acknowledgements: whatever has gathered while the last ones were on their way goes out together.
//! Refuses to lose one: what could not be written is written again, until the fence says no.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    entry::EntryId,
    executor_context::ExecutorContext,
    leased_partition::{FenceOutcome, MAX_ACKS},
    partition_buffer::PartitionBuffer,
};

const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Acknowledges for ever.
pub(super) async fn run_acker(hub: Arc<ExecutorContext>) {
    loop {
        hub.ack_wanted.notified().await;
        let fine = join_all(hub.take_ack_queue().into_iter().map(|lane| flush(&hub, lane))).await;
        if fine.contains(&false) {
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

async fn flush(hub: &ExecutorContext, lane: Arc<PartitionBuffer>) -> bool {
    let ids = lane.take_to_ack();
    let mut fine = true;
    for chunk in ids.chunks(MAX_ACKS) {
        fine &= write_acks(hub, &lane, chunk).await;
    }
    fine
}

async fn write_acks(hub: &ExecutorContext, lane: &PartitionBuffer, ids: &[EntryId]) -> bool {
    match lane.partition.ack(ids).await {
        Ok(FenceOutcome::Done(())) => lane.record_acked(ids.len()),
        Ok(FenceOutcome::FencedOff) => lane.abort_fenced(),
        Err(error) if error.is_group_missing() => lane.abort_fenced(),
        Err(error) => {
            hub.log_retry("acknowledging", lane.partition.number, &error);
            lane.retry_acks(ids.to_vec());
            return false;
        }
    }
    true
}
