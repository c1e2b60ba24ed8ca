//! The operations of a fleet: start, stop, change, pause, resume, read the status and the result.
//! Every change replaces the record atomically and is retried after a concurrent change. The client
//! holds no state of the run, so any process may use one. It leads no run.

use serde::Serialize;
use squall_coord::{FleetStores, ReportFields, RunRecord, RunStore, StoreError, unique_id};
use squall_metrics::RunView;
use squall_model::{
    Bundle, CommandType, HIGHEST_LEVEL, LevelStep, LevelUnit, LoadModel, PhaseEvent, Plan, RunChangeError, RunFacts,
    RunPhase, RunSpec, RunSpecError, RunStopRequest, StopReason,
    protocol::{ProtocolVersion, RunNotes, WorkerReport},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{task::JoinSet, time::Instant};

use super::{
    RunAggregator, WorkerInfo, WorkerKind,
    command_payload::{CommandPayload, command_envelope, start_payload, unnamed_users_payload},
};

/// How long workers may take to build their users.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that polls reads the workers' reports at most once per this time and worker, and at
/// least once per [`MAX_CACHE_TIME`]. A worker writes its report about once a second.
const CACHE_TIME_PER_WORKER: Duration = Duration::from_millis(2);
const MAX_CACHE_TIME: Duration = Duration::from_secs(1);

/// Most characters of a foreign value that an error message quotes.
const MAX_QUOTED_CHARS: usize = 40;

/// A change of the load takes effect after this delay, when every worker has read it.
const CHANGE_DELAY: Duration = Duration::from_millis(500);

/// Why an operation on a fleet failed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("cannot {action} while the fleet is {current}; it must be {expected}")]
    InvalidState { action: &'static str, current: RunPhase, expected: &'static str },
    #[error("no worker is alive: start one with `squall worker`, or a whole fleet with `squall up`")]
    NoWorkers,
    #[error(
        "no worker can take part: this program has fleet protocol {}, and {workers} another one; use the same release \
         of squall for the command line, the orchestrator and the workers",
        ProtocolVersion::CURRENT
    )]
    WorkersOfOtherProtocol {
        /// Their names and versions.
        workers: String,
    },
    #[error(
        "no worker can take part: {workers} run vikhry, whose workers take the users of one scenario and no rate; \
         start a Squall worker with `squall worker`, or give the test a number of users"
    )]
    OnlyVikhryWorkers {
        /// Their names.
        workers: String,
    },
    #[error("no worker has the name {worker}: `GET /api/v1/workers` lists all")]
    UnknownWorker { worker: String },
    #[error("worker {worker} cannot be asked to leave: {reason}; stop its process instead")]
    CannotDrain { worker: String, reason: &'static str },
    #[error("this run has {limit} notes, and no more are kept")]
    TooManyNotes { limit: usize },
    #[error("a level of {level} is not possible: give a number from 0 to {HIGHEST_LEVEL}")]
    LevelOutOfRange { level: f64 },
    #[error(
        "the record of this fleet cannot be changed: its keys test:epoch and test:revision must hold whole numbers; \
         remove them, or use another fleet (`--fleet`)"
    )]
    RecordNotWritable,
    #[error("the plan of the run cannot be read: {0}")]
    BundleUnreadable(serde_json::Error),
    #[error("the record of the run cannot be read: {0}")]
    RunSpecUnreadable(RunSpecError),
    #[error("the {part} of run {epoch} cannot be read")]
    ResultUnreadable { part: &'static str, epoch: u64 },
    #[error(transparent)]
    RunChange(#[from] RunChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How to end a run.
#[derive(Debug, Clone)]
pub struct StopRunCommand {
    pub reason: StopReason,
    /// Iterations in progress are cut off.
    pub abort: bool,
    /// Details for the report that the reason does not give.
    pub message: Option<String>,
}

/// The current state of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct FleetStatus {
    #[serde(rename = "state")]
    pub phase: RunPhase,
    pub epoch: u64,
    pub revision: u64,
    /// Seconds since the start of the load; absent before it.
    pub elapsed_s: Option<f64>,
    #[serde(rename = "order")]
    pub spec: Option<RunSpec>,
    /// The store's clock.
    pub now_ms: u64,
    pub workers: Vec<WorkerInfo>,
}

/// The result of a run, as its leader stored it.
pub struct StoredRunResult {
    /// As the run started.
    pub bundle: Bundle,
    /// The plan with the load that was asked for in the end.
    pub plan: Plan,
    pub view: RunView,
    pub facts: RunFacts,
}

/// A client of one fleet. Clones share the cached reports.
#[derive(Clone)]
pub struct FleetClient<C> {
    stores: C,
    worker_cache: Arc<Mutex<Option<WorkerCache>>>,
}

/// The latest reports, and when they were read.
type WorkerCache = (Instant, Vec<WorkerInfo>);

impl FleetStatus {
    /// The level at which a change made now would start, after all changes that have been made but
    /// are not effective yet.
    pub fn scheduled_level(&self) -> Option<f64> {
        let spec = self.spec.as_ref()?;
        Some(spec.profile.level(change_effective_at(spec.start_at_ms?, self.now_ms)))
    }
}

impl<C: FleetStores> FleetClient<C> {
    pub fn new(stores: C) -> FleetClient<C> {
        FleetClient { stores, worker_cache: Arc::default() }
    }

    pub fn stores(&self) -> &C {
        &self.stores
    }

    /// Starts a run and returns its epoch. Returns when the record is written, before workers make
    /// load.
    pub async fn start(&self, bundle: &Bundle, params: BTreeMap<String, serde_json::Value>) -> Result<u64, FleetError> {
        self.start_once(&unique_id(), bundle, params).await
    }

    /// Starts the run `run_id`. Repeated calls start it once, so a caller may repeat a call whose
    /// response was lost.
    pub async fn start_once(
        &self,
        run_id: &str,
        bundle: &Bundle,
        params: BTreeMap<String, serde_json::Value>,
    ) -> Result<u64, FleetError> {
        let run_store = self.stores.run();
        let bytes = serde_json::to_vec(bundle).expect("a bundle is text and numbers");
        let bundle_name = run_store.put_bundle(&bytes).await?;
        let record = run_store.read_record().await?;
        if parse_run_spec(&record).is_ok_and(|spec| spec.run_id == run_id) {
            return Ok(record.epoch);
        }
        let workers = self.able_workers(bundle).await?;
        let phase = recorded_phase(&record)?;
        let next = phase.step(PhaseEvent::Begin).map_err(|_| FleetError::InvalidState {
            action: "start a test",
            current: phase,
            expected: "IDLE",
        })?;
        let spec = RunSpec {
            several: bundle.has_multiple_scenarios(),
            expected: workers.iter().map(|worker| worker.id.clone()).collect(),
            ready_by_ms: record.now_ms + READY_TIMEOUT.as_millis() as u64,
            params,
            ..RunSpec::new(run_id, bundle_name, bundle.plan.load.model.profile().clone())
        };
        match run_store.compare_and_set(&record, next.name(), &spec.encode(), true).await? {
            Some(record) => {
                self.wake_workers(CommandType::StartTest, record.epoch, start_payload(&spec, bundle)).await;
                Ok(record.epoch)
            }
            None => {
                let now = run_store.read_record().await?;
                if parse_run_spec(&now).is_ok_and(|spec| spec.run_id == run_id) {
                    // The store client repeated the step, because the first response was lost.
                    return Ok(now.epoch);
                }
                Err(match recorded_phase(&now)? {
                    RunPhase::Idle => FleetError::RecordNotWritable,
                    current => FleetError::InvalidState { action: "start a test", current, expected: "IDLE" },
                })
            }
        }
    }

    /// Stops the current run and returns its epoch. `abort` cuts off iterations in progress.
    pub async fn stop(&self, reason: StopReason, abort: bool, message: Option<String>) -> Result<u64, FleetError> {
        self.stop_if(|_| true, StopRunCommand { reason, abort, message }).await
    }

    /// Stops the run `run_id` only. The caller may be late, and another run may have started.
    pub async fn stop_run(&self, run_id: &str, command: StopRunCommand) -> Result<u64, FleetError> {
        self.stop_if(|spec| spec.run_id == run_id, command).await
    }

    async fn stop_if(&self, matches: impl Fn(&RunSpec) -> bool, command: StopRunCommand) -> Result<u64, FleetError> {
        let StopRunCommand { reason, abort, message } = command;
        loop {
            let record = self.stores.run().read_record().await?;
            let phase = recorded_phase(&record)?;
            let refuse =
                |current| FleetError::InvalidState { action: "stop", current, expected: "PREPARING or RUNNING" };
            let next = phase.step(PhaseEvent::Stop).map_err(|_| refuse(phase))?;
            let mut spec = parse_run_spec(&record)?;
            if !matches(&spec) {
                // The run that the caller meant is over.
                return Err(refuse(RunPhase::Idle));
            }
            let earlier = spec.stop.take();
            let first_reason = earlier.as_ref().map_or(reason, |stop| stop.reason);
            spec.stop = Some(RunStopRequest {
                reason: if abort && reason == StopReason::Aborted { reason } else { first_reason },
                abort: abort || earlier.as_ref().is_some_and(|stop| stop.abort),
                asked_at_ms: earlier.as_ref().map_or(record.now_ms, |stop| stop.asked_at_ms),
                message: earlier.and_then(|stop| stop.message).or_else(|| message.clone()),
            });
            if self.stores.run().compare_and_set(&record, next.name(), &spec.encode(), false).await?.is_some() {
                self.wake_workers(CommandType::StopTest, record.epoch, CommandPayload::new()).await;
                return Ok(record.epoch);
            }
        }
    }

    /// Changes the number of users, or the rate, until the planned end.
    pub async fn set_level(&self, level: f64) -> Result<(u64, f64), FleetError> {
        self.ramp_level(level, Duration::ZERO).await
    }

    /// Changes the level linearly within `ramp`. Returns the epoch and the previous level.
    pub async fn ramp_level(&self, level: f64, ramp: Duration) -> Result<(u64, f64), FleetError> {
        if !(0.0..=HIGHEST_LEVEL).contains(&level) {
            return Err(FleetError::LevelOutOfRange { level });
        }
        let change = |spec: &mut RunSpec, at| {
            let before = spec.profile.level(at);
            spec.ramp_level(at, level, ramp).map(|()| before)
        };
        let (epoch, before) = self.update_run_spec("change the load", change).await?;
        let kind = if level < before { CommandType::RemoveUser } else { CommandType::AddUser };
        self.wake_workers(kind, epoch, unnamed_users_payload()).await;
        Ok((epoch, before))
    }

    /// Raises or lowers the level by one step. Returns the epoch, the previous and the new level.
    pub async fn step_level(&self, step: LevelStep, unit: LevelUnit) -> Result<(u64, f64, f64), FleetError> {
        let change = |spec: &mut RunSpec, at| spec.step_level(at, (step, unit));
        let (epoch, (before, level)) = self.update_run_spec("change the load", change).await?;
        let kind = if level < before { CommandType::RemoveUser } else { CommandType::AddUser };
        self.wake_workers(kind, epoch, unnamed_users_payload()).await;
        Ok((epoch, before, level))
    }

    /// Stops the load until [`FleetClient::resume`].
    pub async fn pause(&self) -> Result<u64, FleetError> {
        let (epoch, ()) = self.update_run_spec("pause", RunSpec::pause).await?;
        self.wake_workers(CommandType::RemoveUser, epoch, unnamed_users_payload()).await;
        Ok(epoch)
    }

    /// Continues with the load that was left at the pause. Returns the epoch and the level.
    pub async fn resume(&self) -> Result<(u64, f64), FleetError> {
        let change = |spec: &mut RunSpec, at| spec.resume(at).map(|()| spec.profile.level(at));
        let (epoch, level) = self.update_run_spec("resume", change).await?;
        self.wake_workers(CommandType::AddUser, epoch, unnamed_users_payload()).await;
        Ok((epoch, level))
    }

    async fn update_run_spec<T>(
        &self,
        action: &'static str,
        change: impl Fn(&mut RunSpec, Duration) -> Result<T, RunChangeError>,
    ) -> Result<(u64, T), FleetError> {
        loop {
            let record = self.stores.run().read_record().await?;
            let phase = recorded_phase(&record)?;
            let not_running = || FleetError::InvalidState { action, current: phase, expected: "RUNNING" };
            // The spec of a finished run stays in the record, and before the first run there is
            // none.
            if phase == RunPhase::Idle {
                return Err(not_running());
            }
            let mut spec = parse_run_spec(&record)?;
            let start = spec.start_at_ms.filter(|_| phase == RunPhase::Running).ok_or_else(not_running)?;
            if spec.several {
                return Err(RunChangeError::MultipleScenarios.into());
            }
            let at = change_effective_at(start, record.now_ms);
            if at >= spec.profile.duration() {
                return Err(not_running());
            }
            let changed = change(&mut spec, at)?;
            if let Some(accepted) = spec.changes.last_mut() {
                accepted.revision = record.revision + 1;
            }
            if self.stores.run().compare_and_set(&record, phase.name(), &spec.encode(), false).await?.is_some() {
                return Ok((record.epoch, changed));
            }
        }
    }

    /// The number of changes of the run record so far.
    pub async fn revision(&self) -> Result<u64, FleetError> {
        Ok(self.stores.run().read_record().await?.revision)
    }

    /// Reads the current state of the fleet.
    pub async fn status(&self) -> Result<FleetStatus, FleetError> {
        let record = self.stores.run().read_record().await?;
        status(&record, self.workers().await?)
    }

    /// A cheap status for callers that poll: cached reports of workers, and no workers while no run
    /// is active.
    pub async fn cached_status(&self) -> Result<FleetStatus, FleetError> {
        let record = self.stores.run().read_record().await?;
        let workers = match recorded_phase(&record)? {
            RunPhase::Idle => Vec::new(),
            RunPhase::Preparing | RunPhase::Running | RunPhase::Stopping => self.cached_workers().await?,
        };
        status(&record, workers)
    }

    /// Reads the reports of all workers.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, FleetError> {
        let reports = self.stores.run().reports().await?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Ok(reports.iter().map(|(id, report)| WorkerInfo::parse(id, report).checked_at(now_s)).collect())
    }

    /// Reports that may be up to a second old, depending on the number of workers.
    pub async fn cached_workers(&self) -> Result<Vec<WorkerInfo>, FleetError> {
        let cache_time = |count: usize| (CACHE_TIME_PER_WORKER * count as u32).min(MAX_CACHE_TIME);
        let cached = self.worker_cache.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, workers)) = cached.filter(|(at, workers)| at.elapsed() < cache_time(workers.len())) {
            return Ok(workers);
        }
        let workers = self.workers().await?;
        *self.worker_cache.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), workers.clone()));
        Ok(workers)
    }

    /// The workers that a new run counts on; at least one.
    async fn able_workers(&self, bundle: &Bundle) -> Result<Vec<WorkerInfo>, FleetError> {
        let healthy = self.workers().await?.into_iter().filter(WorkerInfo::is_healthy);
        let (able, other): (Vec<_>, Vec<_>) = healthy.partition(|worker| worker.protocol.is_current());
        let (able, vikhry): (Vec<_>, Vec<_>) =
            able.into_iter().partition(|worker| worker.kind == WorkerKind::Squall || vikhry_can_run(bundle));
        if able.is_empty() && !vikhry.is_empty() {
            let names: Vec<_> = vikhry.into_iter().map(|worker| worker.id).collect();
            return Err(FleetError::OnlyVikhryWorkers { workers: names.join(", ") });
        }
        if !able.is_empty() {
            return Ok(able);
        }
        if other.is_empty() {
            return Err(FleetError::NoWorkers);
        }
        let names: Vec<_> = other.iter().map(|worker| format!("{} ({})", worker.id, worker.protocol)).collect();
        Err(FleetError::WorkersOfOtherProtocol { workers: names.join(", ") })
    }

    /// Reads the bundle that the store keeps under `name`.
    pub async fn load_bundle(&self, name: &str) -> Result<Option<Bundle>, FleetError> {
        let Some(bytes) = self.stores.run().get_bundle(name).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(FleetError::BundleUnreadable)
    }

    /// The result of the run `epoch`; `None` until its leader has stored one.
    pub async fn stored_result(&self, epoch: u64) -> Result<Option<StoredRunResult>, FleetError> {
        let run_store = self.stores.run();
        let notes = RunNotes::from(run_store.notes(epoch).await?);
        let (Some(facts), Some(bundle)) = (notes.facts(), notes.bundle()) else { return Ok(None) };
        let unreadable = |part: &'static str| FleetError::ResultUnreadable { part, epoch };
        let facts: RunFacts = serde_json::from_str(facts).map_err(|_| unreadable("facts"))?;
        let bundle = self.load_bundle(bundle).await?.ok_or_else(|| unreadable("plan"))?;
        let saved = run_store.load_checkpoint(epoch).await?.ok_or_else(|| unreadable("measurements"))?;
        let view = RunAggregator::<C>::view_of_checkpoint(&saved.data).ok_or_else(|| unreadable("measurements"))?;
        let mut plan = bundle.plan.clone();
        if let Some(profile) = notes.profile() {
            plan.load.model.set_profile(profile);
        }
        Ok(Some(StoredRunResult { bundle, plan, view, facts }))
    }

    /// Sends a command to every worker that can decode it. A worker that misses it reads the record
    /// after its next report.
    pub(crate) async fn wake_workers(&self, kind: CommandType, epoch: u64, payload: CommandPayload) {
        let run_store = self.stores.run();
        let Ok(reports) = run_store.reports().await else { return };
        // Sent concurrently: in a large fleet the last worker would otherwise learn of a start too
        // late.
        let mut calls = JoinSet::new();
        let decodable_by_vikhry = match kind {
            CommandType::StartTest => payload.contains_key("target_users"),
            CommandType::StopTest => true,
            CommandType::AddUser | CommandType::RemoveUser => payload.contains_key("user_id"),
            CommandType::Drain => false,
        };
        let can_decode = |report: &ReportFields| decodable_by_vikhry || WorkerReport::decode(report).takes_user_ids;
        for (id, _) in reports.into_iter().filter(|(_, report)| can_decode(report)) {
            let (run_store, message) = (run_store.clone(), command_envelope(kind, epoch, payload.clone()).encode());
            calls.spawn(async move {
                if let Err(error) = run_store.publish(&id, &message).await {
                    tracing::debug!(worker = id, %error, "the client could not send a command to a worker");
                }
            });
        }
        calls.join_all().await;
    }

    /// Sends messages to a worker, in order. Returns whether the worker is subscribed.
    pub(crate) async fn publish_commands(&self, worker: &str, messages: &[String]) -> Result<bool, StoreError> {
        let run_store = self.stores.run();
        let mut receivers = 0;
        for message in messages {
            receivers += run_store.publish(worker, message).await?;
        }
        Ok(receivers > 0)
    }
}

/// Whether vikhry's workers can take part in a run of `bundle`: its commands know users only.
pub(super) fn vikhry_can_run(bundle: &Bundle) -> bool {
    matches!(bundle.plan.load.model, LoadModel::Closed { .. }) && !bundle.has_multiple_scenarios()
}

pub(super) fn status(record: &RunRecord, workers: Vec<WorkerInfo>) -> Result<FleetStatus, FleetError> {
    let spec = parse_run_spec(record).ok();
    let elapsed =
        spec.as_ref().and_then(|spec| spec.start_at_ms).map(|start| (record.now_ms as f64 - start as f64) / 1e3);
    Ok(FleetStatus {
        phase: recorded_phase(record)?,
        epoch: record.epoch,
        revision: record.revision,
        elapsed_s: elapsed.filter(|elapsed| *elapsed >= 0.0),
        spec,
        now_ms: record.now_ms,
        workers,
    })
}

/// The time of the run at which a change made at `now_ms` takes effect; not before the start of the
/// run.
fn change_effective_at(start_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis((now_ms + CHANGE_DELAY.as_millis() as u64).saturating_sub(start_ms))
}

/// The phase in the record; before the first run the record is empty.
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
    RunSpec::decode(&record.spec).map_err(FleetError::RunSpecUnreadable)
}
