//! Writes acknowledgements. Each round writes all acknowledgements that were queued during the
//! round before. Retries failed writes until the fence rejects them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    entry::EntryId,
    executor_context::ExecutorContext,
    leased_partition::{FenceOutcome, MAX_ACKS},
    partition_buffer::PartitionBuffer,
};

const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Acknowledges processed events until the task is aborted.
pub(super) async fn run_acker(context: Arc<ExecutorContext>) {
    loop {
        context.ack_wanted.notified().await;
        let all_written =
            join_all(context.take_ack_queue().into_iter().map(|buffer| flush_acks(&context, buffer))).await;
        if all_written.contains(&false) {
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

async fn flush_acks(context: &ExecutorContext, buffer: Arc<PartitionBuffer>) -> bool {
    let ids = buffer.take_to_ack();
    let mut all_written = true;
    for chunk in ids.chunks(MAX_ACKS) {
        all_written &= write_acks(context, &buffer, chunk).await;
    }
    all_written
}

async fn write_acks(context: &ExecutorContext, buffer: &PartitionBuffer, ids: &[EntryId]) -> bool {
    match buffer.partition.ack(ids).await {
        Ok(FenceOutcome::Done(())) => buffer.record_acked(ids.len()),
        Ok(FenceOutcome::FencedOff) => buffer.abort_fenced(),
        Err(error) if error.is_group_missing() => buffer.abort_fenced(),
        Err(error) => {
            context.log_retry("acknowledging", buffer.partition.number, &error);
            buffer.retry_acks(ids.to_vec());
            return false;
        }
    }
    true
}
