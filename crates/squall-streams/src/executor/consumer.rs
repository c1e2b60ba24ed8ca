//! Runs the processor on one leased partition, from the fence to the last acknowledgement, and
//! applies the failure policy. Stops when the lease is lost. The executor spawns one consumer per
//! lease.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::json;
use tracing::{error, info, warn};

use super::ExecutorError;
use crate::{
    entry::{Entry, EntryId},
    executor_context::ExecutorContext,
    failure_policy::{FailurePolicy, OnFailure},
    leased_partition::{FenceOutcome, PartitionError},
    metrics::add,
    middleware::{BoxError, Middleware, ProcessingFailure},
    partition_buffer::PartitionBuffer,
    processor::ProcessorFn,
};

const RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often a worker looks whether a lock of runnel has expired.
const RUNNEL_LOCK_POLL: Duration = Duration::from_millis(200);

/// The parts of a processor that its consumers share.
pub(super) struct ConsumerConfig {
    pub(super) context: Arc<ExecutorContext>,
    pub(super) function: ProcessorFn,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) policy: FailurePolicy,
}

/// The failure of one call of the processor.
struct CallFailure {
    events: Vec<Entry>,
    error: BoxError,
    /// Whether the policy may retry.
    retryable: bool,
}

/// What the consumer does after a failure.
enum FailureAction {
    Continue,
    Quarantine,
}

/// Processes a partition until it is handed over, lost or halted.
pub(super) async fn consume(buffer: Arc<PartitionBuffer>, config: Arc<ConsumerConfig>) -> Result<(), ExecutorError> {
    let outcome = tokio::select! {
        biased;
        () = buffer.abort.cancelled() => Ok(()),
        outcome = run_fenced(&buffer, &config) => outcome,
    };
    config.context.remove(&buffer.lease);
    buffer.close();
    outcome
}

async fn run_fenced(buffer: &Arc<PartitionBuffer>, config: &ConsumerConfig) -> Result<(), ExecutorError> {
    let quarantined = match fence_with_retry(buffer, &config.context).await? {
        FenceOutcome::Done(quarantined) => quarantined,
        FenceOutcome::FencedOff => return Ok(()),
    };
    buffer.restart(quarantined);
    config.context.add(buffer);
    config.context.fetch_wanted.notify_one();
    let outcome = process(buffer, config).await;
    // Also after a halt: the events before the failed one stay processed.
    let _ = tokio::time::timeout(config.context.settings.grace, buffer.wait_acked()).await;
    if let Err(error) = buffer.partition.unfence().await {
        warn!(%error, "the worker could not remove its fence; the fence expires with the lease");
    }
    outcome
}

async fn fence_with_retry(
    buffer: &PartitionBuffer,
    context: &ExecutorContext,
) -> Result<FenceOutcome<bool>, ExecutorError> {
    let mut reported_lock = false;
    loop {
        match buffer.partition.fence().await {
            Ok(outcome) => return Ok(outcome),
            Err(error @ PartitionError::LockedByRunnel { .. }) => {
                if !std::mem::replace(&mut reported_lock, true) {
                    let (processor, partition) = (&context.processor, buffer.partition.number);
                    warn!(%processor, partition, %error, "waiting for a lock of runnel; stop runnel's workers");
                }
                tokio::select! {
                    () = buffer.drain.cancelled() => return Ok(FenceOutcome::FencedOff),
                    () = tokio::time::sleep(RUNNEL_LOCK_POLL) => {}
                }
            }
            Err(error) if !error.is_transient() => return Err(ExecutorError::Partition(error)),
            Err(error) => {
                context.log_retry("fencing", buffer.partition.number, &error);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Calls the processor repeatedly until the partition is drained or halted.
async fn process(buffer: &Arc<PartitionBuffer>, config: &ConsumerConfig) -> Result<(), ExecutorError> {
    let mut retries = RetryCounter::default();
    while !buffer.drain.is_cancelled() {
        if buffer.is_quarantined() {
            tokio::select! {
                () = buffer.drain.cancelled() => {}
                () = buffer.wait_changed() => {}
            }
            continue;
        }
        if !buffer.membership_validity.is_valid() {
            // The membership has expired. Soon the membership reports the lease as lost, or a late
            // heartbeat renews it.
            tokio::time::sleep(RETRY_DELAY).await;
            continue;
        }
        let Some(outcome) = call(buffer, config).await else {
            warn!(processor = %config.context.processor, partition = buffer.partition.number, "the processor did not finish within its grace period; the worker cancelled it");
            buffer.reclaim_outstanding();
            return Ok(());
        };
        if let Some(failure) = classify_outcome(buffer, outcome) {
            match apply_policy(buffer, config, failure, &mut retries).await? {
                FailureAction::Continue => {}
                FailureAction::Quarantine => buffer.enter_quarantine(),
            }
        }
        if !buffer.has_events() {
            // The processor returned, and there is no event for another call.
            tokio::select! {
                () = buffer.drain.cancelled() => {}
                () = buffer.wait_changed() => {}
            }
        }
    }
    Ok(())
}

/// Calls the processor once. `None` if the grace period ended before the call returned.
async fn call(buffer: &Arc<PartitionBuffer>, config: &ConsumerConfig) -> Option<Result<(), BoxError>> {
    buffer.take_polled();
    let call_future = AssertUnwindSafe((config.function)(buffer.clone())).catch_unwind();
    let grace_over = async {
        buffer.drain.cancelled().await;
        tokio::time::sleep(config.context.settings.grace).await;
    };
    tokio::select! {
        biased;
        outcome = call_future => Some(outcome.unwrap_or_else(|panic| Err(panic_message(&panic).into()))),
        () = grace_over => None,
    }
}

/// Completes, requeues or reports the events of a call.
fn classify_outcome(buffer: &PartitionBuffer, outcome: Result<(), BoxError>) -> Option<CallFailure> {
    match outcome {
        Ok(()) => {
            buffer.complete_delivered();
            let undecodable = buffer.take_undecodable();
            match (undecodable, buffer.has_undelivered()) {
                (Some((entry, error)), false) => {
                    return Some(CallFailure { events: vec![entry], error, retryable: false });
                }
                // Undelivered events come before it, so the next call gets them first.
                (Some((entry, _)), true) => buffer.requeue(vec![entry]),
                (None, _) => {}
            }
            buffer.reclaim_outstanding();
            let idle_return = !buffer.take_polled()
                && buffer.has_queued()
                && !buffer.is_quarantined()
                && !buffer.drain.is_cancelled()
                && buffer.membership_validity.is_valid();
            idle_return.then(|| CallFailure {
                events: Vec::new(),
                error: "the processor returned without asking for an event".into(),
                retryable: true,
            })
        }
        Err(error) => {
            let events = buffer.reclaim_outstanding();
            if let Some((entry, _)) = buffer.take_undecodable() {
                buffer.requeue(vec![entry]); // the next call decodes it again
            }
            Some(CallFailure { events, error, retryable: true })
        }
    }
}

/// Counts consecutive failures of the same first event.
#[derive(Default)]
struct RetryCounter {
    first: Option<EntryId>,
    count: u32,
}

impl RetryCounter {
    fn record_failure(&mut self, first: Option<EntryId>) -> u32 {
        if self.first != first {
            *self = Self { first, count: 0 };
        }
        self.count += 1;
        self.count - 1
    }
}

async fn apply_policy(
    buffer: &Arc<PartitionBuffer>,
    config: &ConsumerConfig,
    failure: CallFailure,
    retries: &mut RetryCounter,
) -> Result<FailureAction, ExecutorError> {
    add(&config.context.metrics.failures, 1);
    let CallFailure { events, error, retryable } = failure;
    let error_text = error_chain(&*error);
    let previous_failures = retries.record_failure(events.first().map(|event| event.id));
    if let Some(delay) = config.policy.retry_delay(previous_failures).filter(|_| retryable) {
        warn!(processor = %config.context.processor, partition = buffer.partition.number, attempt = previous_failures + 1, error = error_text, wait = ?delay, "failed; trying again");
        buffer.requeue(events);
        tokio::select! {
            () = buffer.drain.cancelled() => {}
            () = tokio::time::sleep(delay) => {}
        }
        return Ok(FailureAction::Continue);
    }
    let processing_failure = ProcessingFailure {
        processor: &config.context.processor,
        partition: buffer.partition.number,
        events: &events,
        error: &error_text,
    };
    if is_handled_by_middleware(config, &processing_failure).await {
        buffer.skip_failed(&events);
        return Ok(FailureAction::Continue);
    }
    match config.policy.on_exhausted {
        OnFailure::Ignore => {
            warn!(processor = %config.context.processor, partition = buffer.partition.number, error = error_text, "failed; ignored");
            if events.is_empty() {
                tokio::time::sleep(config.policy.backoff).await;
            }
            buffer.skip_failed(&events);
            Ok(FailureAction::Continue)
        }
        OnFailure::Quarantine => {
            store_quarantine(buffer, config, &events, &error_text).await;
            Ok(FailureAction::Quarantine)
        }
        OnFailure::Halt => {
            store_quarantine(buffer, config, &events, &error_text).await;
            let at = events.first().map(|event| event.id.to_string()).unwrap_or_default();
            Err(ExecutorError::Halted {
                processor: config.context.processor.clone(),
                partition: buffer.partition.number,
                at,
                error: error_text,
            })
        }
    }
}

async fn is_handled_by_middleware(config: &ConsumerConfig, failure: &ProcessingFailure<'_>) -> bool {
    for step in config.middleware.iter() {
        match step.on_failure(failure).await {
            Ok(false) => {}
            Ok(true) => return true,
            Err(error) => {
                error!(processor = %config.context.processor, %error, "middleware could not handle a failure; the failure policy acts");
            }
        }
    }
    false
}

/// Stores the quarantine in Redis, so that no worker repeats the failure.
async fn store_quarantine(buffer: &Arc<PartitionBuffer>, config: &ConsumerConfig, events: &[Entry], error: &str) {
    let reason = json!({
        "failed_at": Timestamp::now().to_string(),
        "xids": events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>(),
        "error": error,
        "epoch": buffer.lease.epoch,
    });
    add(&config.context.metrics.quarantines, 1);
    buffer.wait_acked().await;
    loop {
        match buffer.partition.quarantine(&reason.to_string()).await {
            Ok(FenceOutcome::Done(())) => break,
            Ok(FenceOutcome::FencedOff) => return buffer.abort_fenced(),
            Err(PartitionError::WrongType(error)) => return error!(%error, "the worker cannot store the quarantine"),
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
    info!(processor = %config.context.processor, partition = buffer.partition.number, error, "quarantined");
}

fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let error_text = panic
        .downcast_ref::<&str>()
        .map(|error_text| (*error_text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the processor panicked: {}", error_text.unwrap_or_else(|| "no message".into()))
}

fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error_text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        error_text = format!("{error_text}: {error}");
        cause = error.source();
    }
    error_text
}
