//! What people and scripts may do to a fleet. Every change is one atomic replacement of the record, tried again if somebody was
//! faster; nothing is kept here, so any process may serve it.

use serde::Serialize;
use squall_coord::{FleetStores, MemberId, RunRecord, RunStore, StoreError};
use squall_metrics::RunView;
use squall_model::{
    Bundle, CommandEnvelope, CommandType, HIGHEST_LEVEL, LoadModel, PhaseEvent, RunChangeError, RunFacts, RunPhase,
    RunSpec, RunStopRequest, StopReason, protocol::RunNotes,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::task::JoinSet;

use super::{RunAggregator, WorkerInfo};

/// How long workers may take to build their users.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Whoever looks again and again reads the reports of a fleet this much less often for each of its workers, but at least this often:
/// they change once a beat.
const CACHE_TIME_PER_WORKER: Duration = Duration::from_millis(2);
const MAX_CACHE_TIME: Duration = Duration::from_secs(1);

/// So much of somebody else's text is said again.
const MAX_QUOTED_CHARS: usize = 40;

/// Changes of the load take effect this much later, when every worker has read them.
const CHANGE_DELAY: Duration = Duration::from_millis(500);

/// Why a fleet does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("cannot {action} while the fleet is {current}; it must be {expected}")]
    InvalidState { action: &'static str, current: RunPhase, expected: &'static str },
    #[error("no worker is alive: start one with `squall worker`, or a whole fleet with `squall up`")]
    NoWorkers,
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    RunChange(#[from] RunChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a run is to end.
#[derive(Debug, Clone)]
pub struct StopRunCommand {
    pub reason: StopReason,
    /// What is under way is cut off.
    pub abort: bool,
    /// Why, in words, where the reason does not say it.
    pub message: Option<String>,
}

/// A fleet as it is right now.
#[derive(Debug, Clone, Serialize)]
pub struct FleetStatus {
    pub state: RunPhase,
    pub epoch: u64,
    pub revision: u64,
    /// The time of the run; absent before it has started.
    pub elapsed_s: Option<f64>,
    pub order: Option<RunSpec>,
    /// The store's clock.
    pub now_ms: u64,
    pub workers: Vec<WorkerInfo>,
}

/// A run that is over, as its leader left it.
pub struct StoredRunResult {
    pub bundle: Bundle,
    pub view: RunView,
    pub facts: RunFacts,
}

/// A handle on a fleet. Cloning shares it.
#[derive(Clone)]
pub struct FleetClient<C> {
    cell: C,
    worker_cache: Arc<Mutex<Option<WorkerCache>>>,
}

/// Who was there at the last look, and when that was.
type WorkerCache = (Instant, Vec<WorkerInfo>);

impl FleetStatus {
    /// The level that a change ordered now would find: changes that were ordered before and have not begun count.
    pub fn scheduled_level(&self) -> Option<f64> {
        let order = self.order.as_ref()?;
        Some(order.profile.level(change_effective_at(order.start_at_ms?, self.now_ms)))
    }
}

impl<C: FleetStores> FleetClient<C> {
    pub fn new(cell: C) -> FleetClient<C> {
        FleetClient { cell, worker_cache: Arc::default() }
    }

    pub fn cell(&self) -> &C {
        &self.cell
    }

    /// Begins a run; gives its epoch. Returns when the record says so, not when load is made.
    pub async fn start(&self, bundle: &Bundle, params: BTreeMap<String, serde_json::Value>) -> Result<u64, FleetError> {
        self.start_named(MemberId::unique().as_str(), bundle, params).await
    }

    /// The same for a run with a name of its own, which is begun once however often it is asked for: whoever heard no answer asks again.
    pub async fn start_named(
        &self,
        name_of_run: &str,
        bundle: &Bundle,
        params: BTreeMap<String, serde_json::Value>,
    ) -> Result<u64, FleetError> {
        let run = self.cell.run();
        let bytes = serde_json::to_vec(bundle).expect("a bundle is text and numbers");
        let name = run.put_bundle(&bytes).await?;
        let record = run.read_record().await?;
        if parse_run_spec(&record).is_ok_and(|order| order.run == name_of_run) {
            return Ok(record.epoch);
        }
        let workers = self.healthy_workers().await?;
        if workers.is_empty() {
            return Err(FleetError::NoWorkers);
        }
        let phase = recorded_phase(&record)?;
        let next = phase.step(PhaseEvent::Begin).map_err(|_| FleetError::InvalidState {
            action: "start a test",
            current: phase,
            expected: "IDLE",
        })?;
        let order = RunSpec {
            several: bundle.has_multiple_scenarios(),
            expected: workers.iter().map(|worker| worker.id.clone()).collect(),
            ready_by_ms: record.now_ms + READY_TIMEOUT.as_millis() as u64,
            params,
            ..RunSpec::new(name_of_run, name, bundle.plan.load.model.profile().clone())
        };
        match run.compare_and_set(&record, next.name(), &render_run_spec(&order), true).await? {
            Some(record) => {
                self.wake_workers(CommandType::StartTest, record.epoch, start_payload(&order, bundle)).await;
                Ok(record.epoch)
            }
            None => {
                let now = run.read_record().await?;
                if parse_run_spec(&now).is_ok_and(|order| order.run == name_of_run) {
                    // The step was repeated below us, because its answer was lost.
                    return Ok(now.epoch);
                }
                Err(match recorded_phase(&now)? {
                    RunPhase::Idle => FleetError::Invalid(
                        "the record of this fleet cannot be changed: its keys test:epoch and test:revision must hold whole numbers; \
                         remove them, or use another fleet (`--fleet`)"
                            .to_owned(),
                    ),
                    current => FleetError::InvalidState { action: "start a test", current, expected: "IDLE" },
                })
            }
        }
    }

    /// Ends the run that is on; gives its epoch. With `abort` what is under way is cut off.
    pub async fn stop(&self, reason: StopReason, abort: bool, message: Option<String>) -> Result<u64, FleetError> {
        self.stop_if(|_| true, StopRunCommand { reason, abort, message }).await
    }

    /// The same for the run of this name and no other: whoever decides about a run may be late, and another may be on by then.
    pub async fn stop_run(&self, name: &str, ending: StopRunCommand) -> Result<u64, FleetError> {
        self.stop_if(|order| order.run == name, ending).await
    }

    async fn stop_if(&self, meant: impl Fn(&RunSpec) -> bool, ending: StopRunCommand) -> Result<u64, FleetError> {
        let StopRunCommand { reason, abort, message } = ending;
        loop {
            let record = self.cell.run().read_record().await?;
            let phase = recorded_phase(&record)?;
            let refuse =
                |current| FleetError::InvalidState { action: "stop", current, expected: "PREPARING or RUNNING" };
            let next = phase.step(PhaseEvent::Stop).map_err(|_| refuse(phase))?;
            let mut order = parse_run_spec(&record)?;
            if !meant(&order) {
                // The one that was meant is over, whatever another one does.
                return Err(refuse(RunPhase::Idle));
            }
            let known = order.stop.take();
            let first = known.as_ref().map_or(reason, |stop| stop.reason);
            order.stop = Some(RunStopRequest {
                reason: if abort && reason == StopReason::Aborted { reason } else { first },
                abort: abort || known.as_ref().is_some_and(|stop| stop.abort),
                asked_at_ms: known.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms),
                message: known.and_then(|stop| stop.message).or_else(|| message.clone()),
            });
            if self.cell.run().compare_and_set(&record, next.name(), &render_run_spec(&order), false).await?.is_some() {
                self.wake_workers(CommandType::StopTest, record.epoch, CommandPayload::new()).await;
                return Ok(record.epoch);
            }
        }
    }

    /// Changes the number of users, or the rate, from now on until the planned end.
    pub async fn set_level(&self, level: f64) -> Result<(u64, f64), FleetError> {
        self.ramp_level(level, Duration::ZERO).await
    }

    /// The same, reached in a straight line after `ramp`. Gives the epoch and the level before.
    pub async fn ramp_level(&self, level: f64, ramp: Duration) -> Result<(u64, f64), FleetError> {
        if !(0.0..=HIGHEST_LEVEL).contains(&level) {
            let text = format!("a level of {level} is not possible: give a number from 0 to {HIGHEST_LEVEL}");
            return Err(FleetError::Invalid(text));
        }
        let change = |order: &mut RunSpec, at| {
            let before = order.profile.level(at);
            order.ramp_level(at, level, ramp).map(|()| before)
        };
        let (epoch, before) = self.update_run_spec("change the load", change).await?;
        let kind = if level < before { CommandType::RemoveUser } else { CommandType::AddUser };
        self.wake_workers(kind, epoch, users_payload(&[])).await;
        Ok((epoch, before))
    }

    /// No load until it is resumed.
    pub async fn pause(&self) -> Result<u64, FleetError> {
        let (epoch, ()) = self.update_run_spec("pause", RunSpec::pause).await?;
        self.wake_workers(CommandType::RemoveUser, epoch, users_payload(&[])).await;
        Ok(epoch)
    }

    /// Goes on with everything that was left at the pause.
    pub async fn resume(&self) -> Result<u64, FleetError> {
        let (epoch, ()) = self.update_run_spec("resume", RunSpec::resume).await?;
        self.wake_workers(CommandType::AddUser, epoch, users_payload(&[])).await;
        Ok(epoch)
    }

    async fn update_run_spec<T>(
        &self,
        action: &'static str,
        change: impl Fn(&mut RunSpec, Duration) -> Result<T, RunChangeError>,
    ) -> Result<(u64, T), FleetError> {
        loop {
            let record = self.cell.run().read_record().await?;
            let phase = recorded_phase(&record)?;
            let refused = || FleetError::InvalidState { action, current: phase, expected: "RUNNING" };
            // Of a run that is over the order is still there; of none there is no order to be read.
            if phase == RunPhase::Idle {
                return Err(refused());
            }
            let mut order = parse_run_spec(&record)?;
            let start = order.start_at_ms.filter(|_| phase == RunPhase::Running).ok_or_else(refused)?;
            if order.several {
                return Err(RunChangeError::MultipleScenarios.into());
            }
            let at = change_effective_at(start, record.now_ms);
            if at >= order.profile.duration() {
                return Err(refused());
            }
            let changed = change(&mut order, at)?;
            if self.cell.run().compare_and_set(&record, phase.name(), &render_run_spec(&order), false).await?.is_some()
            {
                return Ok((record.epoch, changed));
            }
        }
    }

    /// The fleet right now.
    pub async fn status(&self) -> Result<FleetStatus, FleetError> {
        let record = self.cell.run().read_record().await?;
        status(&record, self.workers().await?)
    }

    /// The same for whoever looks again and again, as cheap as can be: workers as they were a moment ago, and none while there is no run.
    pub async fn cached_status(&self) -> Result<FleetStatus, FleetError> {
        let record = self.cell.run().read_record().await?;
        let workers = match recorded_phase(&record)? {
            RunPhase::Idle => Vec::new(),
            RunPhase::Preparing | RunPhase::Running | RunPhase::Stopping => self.cached_workers().await?,
        };
        status(&record, workers)
    }

    /// Everybody who reports.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, FleetError> {
        let reports = self.cell.run().reports().await?;
        Ok(reports.iter().map(|(id, report)| WorkerInfo::parse(id, report)).collect())
    }

    /// The same as it was a moment ago, if there are many.
    pub(crate) async fn cached_workers(&self) -> Result<Vec<WorkerInfo>, FleetError> {
        let rest = |count: usize| (CACHE_TIME_PER_WORKER * count as u32).min(MAX_CACHE_TIME);
        let seen = self.worker_cache.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, workers)) = seen.filter(|(at, workers)| at.elapsed() < rest(workers.len())) {
            return Ok(workers);
        }
        let workers = self.workers().await?;
        *self.worker_cache.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), workers.clone()));
        Ok(workers)
    }

    async fn healthy_workers(&self) -> Result<Vec<WorkerInfo>, FleetError> {
        Ok(self.workers().await?.into_iter().filter(WorkerInfo::is_healthy).collect())
    }

    /// The bundle of the run `epoch`, if its order is the one that is recorded.
    pub async fn load_bundle(&self, name: &str) -> Result<Option<Bundle>, FleetError> {
        let Some(bytes) = self.cell.run().get_bundle(name).await? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| FleetError::Invalid(format!("the plan of the run cannot be read: {error}")))
    }

    /// What the leader of the run `epoch` left when it was over; `None` while it is not.
    pub async fn stored_result(&self, epoch: u64) -> Result<Option<StoredRunResult>, FleetError> {
        let run = self.cell.run();
        let notes = RunNotes::from(run.notes(epoch).await?);
        let (Some(facts), Some(bundle)) = (notes.facts(), notes.bundle()) else { return Ok(None) };
        let unreadable = |what: &str| FleetError::Invalid(format!("the {what} of run {epoch} cannot be read"));
        let facts: RunFacts = serde_json::from_str(facts).map_err(|_| unreadable("facts"))?;
        let bundle = self.load_bundle(bundle).await?.ok_or_else(|| unreadable("plan"))?;
        let (_, made) = run.load_checkpoint(epoch).await?.ok_or_else(|| unreadable("measurements"))?;
        let view = RunAggregator::<C>::view_of_checkpoint(&made).ok_or_else(|| unreadable("measurements"))?;
        Ok(Some(StoredRunResult { bundle, view, facts }))
    }

    /// Wakes every worker; who is not reached reads the record at its next beat.
    pub(crate) async fn wake_workers(&self, kind: CommandType, epoch: u64, payload: CommandPayload) {
        let run = self.cell.run();
        let Ok(reports) = run.reports().await else { return };
        // All at once: one after the other the last of many would hear of a start when it is over.
        let mut calls = JoinSet::new();
        for id in reports.into_keys() {
            let (run, message) = (run.clone(), envelope(kind, epoch, payload.clone()).encode());
            calls.spawn(async move {
                if let Err(error) = run.publish(&id, &message).await {
                    tracing::debug!(worker = id, %error, "a wake-up was not sent");
                }
            });
        }
        calls.join_all().await;
    }

    /// Tells a worker which users it has from now on, or no longer.
    pub(crate) async fn publish_user_move(
        &self,
        kind: CommandType,
        epoch: u64,
        worker: &str,
        users: &[u64],
    ) -> Result<u64, StoreError> {
        let message = envelope(kind, epoch, users_payload(users)).encode();
        self.cell.run().publish(worker, &message).await
    }
}

fn status(record: &RunRecord, workers: Vec<WorkerInfo>) -> Result<FleetStatus, FleetError> {
    let order = parse_run_spec(record).ok();
    let elapsed =
        order.as_ref().and_then(|order| order.start_at_ms).map(|start| (record.now_ms as f64 - start as f64) / 1e3);
    Ok(FleetStatus {
        state: recorded_phase(record)?,
        epoch: record.epoch,
        revision: record.revision,
        elapsed_s: elapsed.filter(|elapsed| *elapsed >= 0.0),
        order,
        now_ms: record.now_ms,
        workers,
    })
}

/// The time of the run at which a change takes effect that is ordered at `now_ms`; its beginning, if that is later.
fn change_effective_at(start_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis((now_ms + CHANGE_DELAY.as_millis() as u64).saturating_sub(start_ms))
}

type CommandPayload = serde_json::Map<String, serde_json::Value>;

fn envelope(kind: CommandType, epoch: u64, payload: CommandPayload) -> CommandEnvelope {
    let sent_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    CommandEnvelope { kind, command_id: MemberId::unique().to_string(), epoch, sent_at, payload }
}

/// The payload of a command for users. Where it names none, the record has changed and who is meant follows when they move.
fn users_payload(users: &[u64]) -> CommandPayload {
    let (name, value) = match users {
        [user] => ("user_id", (*user).into()),
        _ => ("user_ids", users.into()),
    };
    [(name.to_owned(), value)].into_iter().collect()
}

/// The payload of a start, as the seed has it; where the clock and not users make the load, its rate stands for them.
pub(crate) fn start_payload(order: &RunSpec, bundle: &Bundle) -> CommandPayload {
    // A rise that lasts no time is none: so begins a test that is to have users later.
    let stages = order.profile.pieces().iter().filter(|stage| stage.duration > Duration::from_nanos(1));
    let most = stages.map(|stage| stage.from.max(stage.to)).fold(0.0, f64::max);
    let (name, load) = match bundle.plan.load.model {
        LoadModel::Closed { .. } => ("target_users", (most.ceil() as u64).into()),
        LoadModel::Open { .. } => ("rate", most.into()),
    };
    let params: CommandPayload = order.params.clone().into_iter().collect();
    [(name.to_owned(), load), ("init_params".to_owned(), params.into())].into_iter().collect()
}

/// The phase that the record names; before the first run it names none.
pub(crate) fn recorded_phase(record: &RunRecord) -> Result<RunPhase, FleetError> {
    match RunPhase::from_name(&record.state) {
        Some(phase) => Ok(phase),
        None if record.state.is_empty() => Ok(RunPhase::Idle),
        None => {
            let found: String = record.state.chars().take(MAX_QUOTED_CHARS).collect();
            Err(FleetError::Store(StoreError::WrongType {
                key: "test:state".to_owned(),
                expected: "state (IDLE, PREPARING, RUNNING or STOPPING)",
                found: format!("text that is none (`{found}`)"),
            }))
        }
    }
}

pub(crate) fn parse_run_spec(record: &RunRecord) -> Result<RunSpec, FleetError> {
    serde_json::from_str(&record.spec)
        .map_err(|error| FleetError::Invalid(format!("the order of the run cannot be read: {error}")))
}

pub(crate) fn render_run_spec(order: &RunSpec) -> String {
    serde_json::to_string(order).expect("an order is text and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_goes_out_as_the_seed_has_it() {
        let text = |users: &[u64]| serde_json::Value::from(users_payload(users)).to_string();
        assert_eq!(text(&[3]), r#"{"user_id":3}"#);
        assert_eq!(text(&[3, 4]), r#"{"user_ids":[3,4]}"#);
        assert_eq!(text(&[]), r#"{"user_ids":[]}"#);
    }
}
