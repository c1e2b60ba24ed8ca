//! Runs the processor over one leased partition, from fence to last acknowledgement, and applies the failure policy.
//! Refuses to go on after the lease has gone.

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

/// What a consumer needs beside its lane.
pub(super) struct ConsumerConfig {
    pub(super) context: Arc<ExecutorContext>,
    pub(super) function: ProcessorFn,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) policy: FailurePolicy,
}

/// Why one call of the processor did not end well.
struct CallFailure {
    events: Vec<Entry>,
    error: BoxError,
    /// Whether trying again could help.
    retryable: bool,
}

/// What to do after trouble.
enum FailureAction {
    Continue,
    Quarantine,
}

/// Returns when the partition has been handed over, lost, or halted.
pub(super) async fn consume(lane: Arc<PartitionBuffer>, job: Arc<ConsumerConfig>) -> Result<(), ExecutorError> {
    let outcome = tokio::select! {
        biased;
        () = lane.abort.cancelled() => Ok(()),
        outcome = run_fenced(&lane, &job) => outcome,
    };
    job.context.remove(&lane.lease);
    lane.close();
    outcome
}

async fn run_fenced(lane: &Arc<PartitionBuffer>, job: &ConsumerConfig) -> Result<(), ExecutorError> {
    let quarantined = match fence_with_retry(lane, &job.context).await? {
        FenceOutcome::Done(quarantined) => quarantined,
        FenceOutcome::FencedOff => return Ok(()),
    };
    lane.restart(quarantined);
    job.context.add(lane);
    job.context.fetch_wanted.notify_one();
    let outcome = process(lane, job).await;
    // Also after a halt: what was processed before it stays processed.
    let _ = tokio::time::timeout(job.context.settings.grace, lane.wait_acked()).await;
    if let Err(error) = lane.partition.unfence().await {
        warn!(%error, "could not take the fence down; it will lapse");
    }
    outcome
}

async fn fence_with_retry(lane: &PartitionBuffer, hub: &ExecutorContext) -> Result<FenceOutcome<bool>, ExecutorError> {
    loop {
        match lane.partition.fence().await {
            Ok(answer) => return Ok(answer),
            Err(error) if !error.is_transient() => return Err(ExecutorError::Partition(error)),
            Err(error) => {
                hub.log_retry("fencing", lane.partition.number, &error);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Calls the processor again and again until the partition is drained or halted.
async fn process(lane: &Arc<PartitionBuffer>, job: &ConsumerConfig) -> Result<(), ExecutorError> {
    let mut attempt = RetryCounter::default();
    while !lane.drain.is_cancelled() {
        if lane.is_quarantined() {
            tokio::select! {
                () = lane.drain.cancelled() => {}
                () = lane.wait_changed() => {}
            }
            continue;
        }
        if !lane.lease_validity.is_valid() {
            // The membership has run out. Either the seat is about to drop the lease, or a late beat is about to save it.
            tokio::time::sleep(RETRY_DELAY).await;
            continue;
        }
        let Some(outcome) = call(lane, job).await else {
            warn!(processor = %job.context.processor, partition = lane.partition.number, "did not finish within its grace; cut off");
            lane.reclaim_outstanding();
            return Ok(());
        };
        if let Some(trouble) = classify_outcome(lane, outcome) {
            match apply_policy(lane, job, trouble, &mut attempt).await? {
                FailureAction::Continue => {}
                FailureAction::Quarantine => lane.enter_quarantine(),
            }
        }
        if !lane.has_events() {
            // It returned by itself and there is nothing to call it for.
            tokio::select! {
                () = lane.drain.cancelled() => {}
                () = lane.wait_changed() => {}
            }
        }
    }
    Ok(())
}

/// One call; `None` when it had to be cut off.
async fn call(lane: &Arc<PartitionBuffer>, job: &ConsumerConfig) -> Option<Result<(), BoxError>> {
    lane.take_polled();
    let running = AssertUnwindSafe((job.function)(lane.clone())).catch_unwind();
    let overdue = async {
        lane.drain.cancelled().await;
        tokio::time::sleep(job.context.settings.grace).await;
    };
    tokio::select! {
        biased;
        outcome = running => Some(outcome.unwrap_or_else(|panic| Err(panic_message(&panic).into()))),
        () = overdue => None,
    }
}

/// Sorts out what a call left behind.
fn classify_outcome(lane: &PartitionBuffer, outcome: Result<(), BoxError>) -> Option<CallFailure> {
    match outcome {
        Ok(()) => {
            lane.complete_delivered();
            let broken = lane.take_undecodable();
            match (broken, lane.has_undelivered()) {
                (Some((entry, error)), false) => {
                    return Some(CallFailure { events: vec![entry], error, retryable: false });
                }
                // Others come before it that were never handed out.
                (Some((entry, _)), true) => lane.requeue(vec![entry]),
                (None, _) => {}
            }
            lane.reclaim_outstanding();
            let idle_return = !lane.take_polled()
                && lane.has_queued()
                && !lane.is_quarantined()
                && !lane.drain.is_cancelled()
                && lane.lease_validity.is_valid();
            idle_return.then(|| CallFailure {
                events: Vec::new(),
                error: "the processor returned without asking for an event".into(),
                retryable: true,
            })
        }
        Err(error) => {
            let events = lane.reclaim_outstanding();
            if let Some((entry, _)) = lane.take_undecodable() {
                lane.requeue(vec![entry]); // met again after this failure is dealt with
            }
            Some(CallFailure { events, error, retryable: true })
        }
    }
}

/// Counts failures of the same events.
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
    lane: &Arc<PartitionBuffer>,
    job: &ConsumerConfig,
    trouble: CallFailure,
    attempt: &mut RetryCounter,
) -> Result<FailureAction, ExecutorError> {
    add(&job.context.metrics.failures, 1);
    let CallFailure { events, error, retryable: retry } = trouble;
    let text = error_chain(&*error);
    let before = attempt.record_failure(events.first().map(|event| event.id));
    if let Some(wait) = job.policy.retry_delay(before).filter(|_| retry) {
        warn!(processor = %job.context.processor, partition = lane.partition.number, attempt = before + 1, error = text, ?wait, "failed; trying again");
        lane.requeue(events);
        tokio::select! {
            () = lane.drain.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
        return Ok(FailureAction::Continue);
    }
    let failure = ProcessingFailure {
        processor: &job.context.processor,
        partition: lane.partition.number,
        events: &events,
        error: &text,
    };
    for step in job.middleware.iter() {
        match step.on_failure(&failure).await {
            Ok(false) => {}
            Ok(true) => {
                lane.skip_failed(&events);
                return Ok(FailureAction::Continue);
            }
            Err(error) => {
                error!(processor = %job.context.processor, %error, "a middleware failed on a failure; the policy decides")
            }
        }
    }
    match job.policy.on_exhausted {
        OnFailure::Ignore => {
            warn!(processor = %job.context.processor, partition = lane.partition.number, error = text, "failed; ignored");
            if events.is_empty() {
                tokio::time::sleep(job.policy.backoff).await;
            }
            lane.skip_failed(&events);
            Ok(FailureAction::Continue)
        }
        OnFailure::Quarantine => {
            store_quarantine(lane, job, &events, &text).await;
            Ok(FailureAction::Quarantine)
        }
        OnFailure::Halt => {
            store_quarantine(lane, job, &events, &text).await;
            let at = events.first().map(|event| event.id.to_string()).unwrap_or_default();
            Err(ExecutorError::Halted {
                processor: job.context.processor.clone(),
                partition: lane.partition.number,
                at,
                error: text,
            })
        }
    }
}

/// Marks the partition in Redis, so that nobody repeats the failure.
async fn store_quarantine(lane: &Arc<PartitionBuffer>, job: &ConsumerConfig, events: &[Entry], error: &str) {
    let reason = json!({
        "failed_at": Timestamp::now().to_string(),
        "xids": events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>(),
        "error": error,
        "epoch": lane.lease.epoch,
    });
    add(&job.context.metrics.quarantines, 1);
    lane.wait_acked().await;
    loop {
        match lane.partition.quarantine(&reason.to_string()).await {
            Ok(FenceOutcome::Done(())) => break,
            Ok(FenceOutcome::FencedOff) => return lane.abort_fenced(),
            Err(PartitionError::WrongType(error)) => return error!(%error, "the quarantine cannot be stored"),
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
    info!(processor = %job.context.processor, partition = lane.partition.number, error, "quarantined");
}

fn panic_message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text =
        panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the processor panicked: {}", text.unwrap_or_else(|| "no message".into()))
}

fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
