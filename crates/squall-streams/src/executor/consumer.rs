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
    hub::Hub,
    lane::Lane,
    metrics::add,
    middleware::{BoxError, Failure, Middleware},
    partition::{Fenced, PartitionError},
    policy::{OnFailure, Policy},
    processor::Invoke,
};

const RETRY: Duration = Duration::from_millis(50);

/// What a consumer needs beside its lane.
pub(super) struct Job {
    pub(super) hub: Arc<Hub>,
    pub(super) invoke: Invoke,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) policy: Policy,
}

/// Why one call of the processor did not end well.
struct Trouble {
    events: Vec<Entry>,
    error: BoxError,
    /// Whether trying again could help.
    retry: bool,
}

/// What to do after trouble.
enum Verdict {
    GoOn,
    StandStill,
}

/// Returns when the partition has been handed over, lost, or halted.
pub(super) async fn consume(lane: Arc<Lane>, job: Arc<Job>) -> Result<(), ExecutorError> {
    let outcome = tokio::select! {
        biased;
        () = lane.abort.cancelled() => Ok(()),
        outcome = run(&lane, &job) => outcome,
    };
    job.hub.remove(&lane.lease);
    lane.end();
    outcome
}

async fn run(lane: &Arc<Lane>, job: &Job) -> Result<(), ExecutorError> {
    let quarantined = match fence(lane, &job.hub).await? {
        Fenced::Done(quarantined) => quarantined,
        Fenced::Refused => return Ok(()),
    };
    lane.begin(quarantined);
    job.hub.add(lane);
    job.hub.hungry.notify_one();
    let outcome = process(lane, job).await;
    // Also after a halt: what was processed before it stays processed.
    let _ = tokio::time::timeout(job.hub.settings.grace, lane.settled()).await;
    if let Err(error) = lane.partition.unfence().await {
        warn!(%error, "could not take the fence down; it will lapse");
    }
    outcome
}

async fn fence(lane: &Lane, hub: &Hub) -> Result<Fenced<bool>, ExecutorError> {
    loop {
        match lane.partition.fence().await {
            Ok(answer) => return Ok(answer),
            Err(error) if !error.passing() => return Err(ExecutorError::Partition(error)),
            Err(error) => {
                hub.complain("fencing", lane.partition.number, &error);
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Calls the processor again and again until the partition is drained or halted.
async fn process(lane: &Arc<Lane>, job: &Job) -> Result<(), ExecutorError> {
    let mut attempt = Attempt::default();
    while !lane.drain.is_cancelled() {
        if lane.quarantined() {
            tokio::select! {
                () = lane.drain.cancelled() => {}
                () = lane.ready() => {}
            }
            continue;
        }
        if !lane.tenure.is_valid() {
            // The membership has run out. Either the seat is about to drop the lease, or a late beat is about to save it.
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let Some(outcome) = call(lane, job).await else {
            warn!(processor = %job.hub.name, partition = lane.partition.number, "did not finish within its grace; cut off");
            lane.recall();
            return Ok(());
        };
        if let Some(trouble) = trouble(lane, outcome) {
            match handle(lane, job, trouble, &mut attempt).await? {
                Verdict::GoOn => {}
                Verdict::StandStill => lane.mark(),
            }
        }
        if !lane.has_events() {
            // It returned by itself and there is nothing to call it for.
            tokio::select! {
                () = lane.drain.cancelled() => {}
                () = lane.ready() => {}
            }
        }
    }
    Ok(())
}

/// One call; `None` when it had to be cut off.
async fn call(lane: &Arc<Lane>, job: &Job) -> Option<Result<(), BoxError>> {
    lane.touched();
    let running = AssertUnwindSafe((job.invoke)(lane.clone())).catch_unwind();
    let overdue = async {
        lane.drain.cancelled().await;
        tokio::time::sleep(job.hub.settings.grace).await;
    };
    tokio::select! {
        biased;
        outcome = running => Some(outcome.unwrap_or_else(|panic| Err(describe(&panic).into()))),
        () = overdue => None,
    }
}

/// Sorts out what a call left behind.
fn trouble(lane: &Lane, outcome: Result<(), BoxError>) -> Option<Trouble> {
    match outcome {
        Ok(()) => {
            lane.complete();
            let broken = lane.broken();
            match (broken, lane.waiting()) {
                (Some((entry, error)), false) => return Some(Trouble { events: vec![entry], error, retry: false }),
                // Others come before it that were never handed out.
                (Some((entry, _)), true) => lane.requeue(vec![entry]),
                (None, _) => {}
            }
            lane.recall();
            let idle_return = !lane.touched()
                && lane.has_queued()
                && !lane.quarantined()
                && !lane.drain.is_cancelled()
                && lane.tenure.is_valid();
            idle_return.then(|| Trouble {
                events: Vec::new(),
                error: "the processor returned without asking for an event".into(),
                retry: true,
            })
        }
        Err(error) => {
            let events = lane.recall();
            if let Some((entry, _)) = lane.broken() {
                lane.requeue(vec![entry]); // met again after this failure is dealt with
            }
            Some(Trouble { events, error, retry: true })
        }
    }
}

/// Counts failures of the same events.
#[derive(Default)]
struct Attempt {
    first: Option<EntryId>,
    count: u32,
}

impl Attempt {
    fn failed(&mut self, first: Option<EntryId>) -> u32 {
        if self.first != first {
            *self = Self { first, count: 0 };
        }
        self.count += 1;
        self.count - 1
    }
}

async fn handle(
    lane: &Arc<Lane>,
    job: &Job,
    trouble: Trouble,
    attempt: &mut Attempt,
) -> Result<Verdict, ExecutorError> {
    add(&job.hub.metrics.failures, 1);
    let Trouble { events, error, retry } = trouble;
    let text = describe_chain(&*error);
    let before = attempt.failed(events.first().map(|event| event.id));
    if let Some(wait) = job.policy.wait(before).filter(|_| retry) {
        warn!(processor = %job.hub.name, partition = lane.partition.number, attempt = before + 1, error = text, ?wait, "failed; trying again");
        lane.requeue(events);
        tokio::select! {
            () = lane.drain.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
        return Ok(Verdict::GoOn);
    }
    let failure = Failure { processor: &job.hub.name, partition: lane.partition.number, events: &events, error: &text };
    for step in job.middleware.iter() {
        match step.failed(&failure).await {
            Ok(false) => {}
            Ok(true) => {
                lane.give_up(&events);
                return Ok(Verdict::GoOn);
            }
            Err(error) => {
                error!(processor = %job.hub.name, %error, "a middleware failed on a failure; the policy decides")
            }
        }
    }
    match job.policy.then {
        OnFailure::Ignore => {
            warn!(processor = %job.hub.name, partition = lane.partition.number, error = text, "failed; ignored");
            if events.is_empty() {
                tokio::time::sleep(job.policy.backoff).await;
            }
            lane.give_up(&events);
            Ok(Verdict::GoOn)
        }
        OnFailure::Quarantine => {
            stand_still(lane, job, &events, &text).await;
            Ok(Verdict::StandStill)
        }
        OnFailure::Halt => {
            stand_still(lane, job, &events, &text).await;
            let at = events.first().map(|event| event.id.to_string()).unwrap_or_default();
            Err(ExecutorError::Halted {
                processor: job.hub.name.clone(),
                partition: lane.partition.number,
                at,
                error: text,
            })
        }
    }
}

/// Marks the partition in Redis, so that nobody repeats the failure.
async fn stand_still(lane: &Arc<Lane>, job: &Job, events: &[Entry], error: &str) {
    let reason = json!({
        "failed_at": Timestamp::now().to_string(),
        "xids": events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>(),
        "error": error,
        "epoch": lane.lease.epoch,
    });
    add(&job.hub.metrics.quarantines, 1);
    lane.settled().await;
    loop {
        match lane.partition.quarantine(&reason.to_string()).await {
            Ok(Fenced::Done(())) => break,
            Ok(Fenced::Refused) => return lane.lost(),
            Err(PartitionError::WrongType(error)) => return error!(%error, "the quarantine cannot be stored"),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
    info!(processor = %job.hub.name, partition = lane.partition.number, error, "quarantined");
}

fn describe(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text =
        panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the processor panicked: {}", text.unwrap_or_else(|| "no message".into()))
}

fn describe_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
