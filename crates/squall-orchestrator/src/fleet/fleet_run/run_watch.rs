//! Watches one fleet run from its start to its end: polls the store, forwards stop requests, shows
//! progress, and fetches the stored result. It leads nothing; an orchestrator ends the run.

use squall_coord::{FleetStores, StoreError};
use squall_metrics::RunView;
use squall_model::{Bundle, LoadChange, Plan, RunPhase, RunSpec, StopReason, error_chain};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

use super::{
    FleetRunError, POLL_INTERVAL, STORE_TIMEOUT, WAITING_MESSAGE_INTERVAL,
    last_known_status::LastKnownStatus,
    retry_while_unreachable, unix_ms,
    waiting_messages::{preparing_message, report_store_outage, silent_workers_message},
};
use crate::{
    fleet::{FleetClient, FleetError, FleetStatus, RunAggregator, StopRunCommand, StoredRunResult},
    local_run::{LivePhase, LiveStatus, RunObserver, RunResult},
    run_control::{LoadCommand, RunControl, StopRequest},
};

const RESULT_LOST: &str =
    "the store holds no result of this run: the store has lost it, or the fleet has started another run";
const STORE_LOST: &str = "the store has stopped answering";

/// Workers that build their users faster than this are not mentioned.
const PREPARING_MESSAGE_DELAY: Duration = Duration::from_secs(2);

/// One run, as the command line that started it sees it.
pub(super) struct RunWatch<'a, C: FleetStores> {
    fleet: &'a FleetClient<C>,
    run_id: &'a str,
    bundle: &'a Bundle,
    /// The plan with the current load.
    plan: Plan,
    aggregator: RunAggregator<C>,
    last_known: LastKnownStatus,
    stop: StopForwarding,
    store_contact: StoreContact,
    progress: ShownProgress,
}

/// The stop requests that have to reach the store.
#[derive(Default)]
struct StopForwarding {
    /// Whether the user has asked for the end.
    requested: bool,
    /// The reason of the latest request, until the store has confirmed it.
    unconfirmed: Option<StopReason>,
}

/// When the store last answered, and when its silence was last shown.
struct StoreContact {
    last_answer: Instant,
    /// Length of the silence when it was last shown.
    reported_silence: Duration,
}

/// What the observers have been shown.
struct ShownProgress {
    watching_since: Instant,
    phase: LivePhase,
    /// Time of the run at the latest update or waiting message.
    updated_at: Duration,
    preparing_message: Option<String>,
    /// Whether the observers need an update though nothing has changed in the run.
    refresh_requested: bool,
}

/// What a poll found.
enum PollOutcome {
    Continues,
    Ended,
    /// The result is not in the store, for this reason.
    ResultLost(&'static str),
}

impl StoreContact {
    fn answered_now() -> StoreContact {
        StoreContact { last_answer: Instant::now(), reported_silence: Duration::ZERO }
    }
}

impl<'a, C: FleetStores> RunWatch<'a, C> {
    pub(super) fn new(
        fleet: &'a FleetClient<C>,
        run_id: &'a str,
        bundle: &'a Bundle,
        aggregator: RunAggregator<C>,
    ) -> RunWatch<'a, C> {
        RunWatch {
            fleet,
            run_id,
            bundle,
            plan: bundle.plan.clone(),
            aggregator,
            last_known: LastKnownStatus::default(),
            stop: StopForwarding::default(),
            store_contact: StoreContact::answered_now(),
            progress: ShownProgress {
                watching_since: Instant::now(),
                phase: LivePhase::Starting,
                updated_at: Duration::ZERO,
                preparing_message: None,
                refresh_requested: false,
            },
        }
    }

    /// Watches the run to its end and returns its result.
    pub(super) async fn run(
        mut self,
        control: &RunControl,
        mut stop_requests: watch::Receiver<StopRequest>,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, FleetRunError> {
        let (mut wakes, mut completion) = (control.subscribe_to_wakes(), control.subscribe_to_completion());
        let mut polls = tokio::time::interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Ok(()) = stop_requests.changed() => {
                    let reason = match *stop_requests.borrow_and_update() {
                        StopRequest::Abort => StopReason::Aborted,
                        StopRequest::Drain | StopRequest::None => StopReason::Interrupted,
                    };
                    self.stop = StopForwarding { requested: true, unconfirmed: Some(reason) };
                    polls.reset_immediately();
                }
                Ok(()) = completion.changed() => {
                    self.stop.unconfirmed.get_or_insert(StopReason::Completed);
                    polls.reset_immediately();
                }
                Ok(()) = wakes.changed() => {
                    for command in control.take_load_commands() {
                        let change = self.change_load(command).await.map_err(|error| error_chain(&error));
                        observers.iter_mut().for_each(|observer| observer.on_load_change(&change));
                    }
                    self.progress.refresh_requested = true;
                    polls.reset_immediately();
                }
                _ = polls.tick() => match self.poll(observers).await? {
                    PollOutcome::Continues => {}
                    PollOutcome::Ended => return self.fetch_result(control, observers).await,
                    PollOutcome::ResultLost(reason) => return Ok(self.into_partial_result(reason)),
                }
            }
        }
    }

    async fn poll(&mut self, observers: &mut [&mut dyn RunObserver]) -> Result<PollOutcome, FleetError> {
        if let Some(lost) = self.forward_stop_request().await? {
            return Ok(lost);
        }
        let status = match self.fleet.cached_status().await {
            Ok(status) => status,
            Err(error) => return Ok(self.handle_store_outage(&error, observers)),
        };
        self.store_contact = StoreContact::answered_now();
        let outcome = self.poll_outcome(&status);
        if let PollOutcome::Continues = outcome {
            self.show(&status, observers).await;
        }
        Ok(outcome)
    }

    async fn change_load(&self, command: LoadCommand) -> Result<LoadChange, FleetError> {
        match command {
            LoadCommand::Pause => self.fleet.pause().await.map(|_| LoadChange::Paused),
            LoadCommand::Resume => {
                let level = self.fleet.resume().await?.1;
                Ok(LoadChange::Resumed { level })
            }
            LoadCommand::Step(step) => {
                let (_, before, now) = self.fleet.step_level(step, self.plan.load.model.unit()).await?;
                Ok(LoadChange::Level { before, now })
            }
        }
    }

    /// Sends an unconfirmed stop request to the store. An unreachable store gets a drain request
    /// again at the next poll, because the load continues. After an abort request the user no
    /// longer waits.
    async fn forward_stop_request(&mut self) -> Result<Option<PollOutcome>, FleetError> {
        let Some(reason) = self.stop.unconfirmed else { return Ok(None) };
        let abort = reason == StopReason::Aborted;
        match self.fleet.stop_run(self.run_id, StopRunCommand { reason, abort, message: None }).await {
            Ok(_) | Err(FleetError::InvalidState { .. }) => self.stop.unconfirmed = None,
            Err(FleetError::Store(_)) if abort => return Ok(Some(PollOutcome::ResultLost(STORE_LOST))),
            Err(FleetError::Store(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// The run continues without this process, so an outage of the store ends the watch only after
    /// [`STORE_TIMEOUT`].
    fn handle_store_outage(&mut self, error: &FleetError, observers: &mut [&mut dyn RunObserver]) -> PollOutcome {
        let silent = self.store_contact.last_answer.elapsed();
        if silent > STORE_TIMEOUT {
            return PollOutcome::ResultLost(STORE_LOST);
        }
        if silent > self.store_contact.reported_silence + WAITING_MESSAGE_INTERVAL {
            self.store_contact.reported_silence = silent;
            report_store_outage(observers, error, silent);
        }
        PollOutcome::Continues
    }

    fn poll_outcome(&self, status: &FleetStatus) -> PollOutcome {
        let epoch = self.aggregator.epoch();
        if status.epoch == epoch && status.spec.as_ref().is_none_or(|spec| spec.run_id != self.run_id) {
            // A store that has lost its data counts epochs from 1 again.
            PollOutcome::ResultLost(RESULT_LOST)
        } else if status.epoch != epoch || status.phase == RunPhase::Idle {
            PollOutcome::Ended
        } else {
            PollOutcome::Continues
        }
    }

    /// Aggregates what workers have shipped and shows the observers what has changed.
    async fn show(&mut self, status: &FleetStatus, observers: &mut [&mut dyn RunObserver]) {
        let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
        self.last_known.update(status, elapsed);
        let phase = live_phase(status.phase, status.elapsed_s, elapsed, self.bundle);
        let closed_seconds = self.aggregate(status, phase, elapsed).await;
        if closed_seconds > 0 || phase != self.progress.phase || self.progress.refresh_requested {
            self.show_update(status, phase, elapsed, observers);
        } else if status.phase == RunPhase::Preparing {
            self.show_preparing_workers(status, observers);
        } else {
            self.show_silent_workers(status, elapsed, observers);
        }
    }

    /// Returns how many seconds were closed. Errors of the store show at the next poll.
    async fn aggregate(&mut self, status: &FleetStatus, phase: LivePhase, elapsed: Duration) -> usize {
        self.aggregator.set_load_active(phase == LivePhase::Running);
        match self.aggregator.update_roster(&status.workers, elapsed).await {
            Ok(()) => self.aggregator.poll().await.unwrap_or(0),
            Err(_) => 0,
        }
    }

    fn show_update(
        &mut self,
        status: &FleetStatus,
        phase: LivePhase,
        elapsed: Duration,
        observers: &mut [&mut dyn RunObserver],
    ) {
        (self.progress.phase, self.progress.updated_at) = (phase, elapsed);
        self.progress.refresh_requested = false;
        if let Some(spec) = &status.spec {
            self.plan.load.model.set_profile(spec.profile.clone());
            self.aggregator.set_load_changes(spec);
        }
        let view = self.aggregator.view();
        let live = LiveStatus {
            elapsed,
            phase,
            level_now: status.spec.as_ref().map_or(0.0, |spec| spec.profile.level(elapsed)),
            planned_end: status.spec.as_ref().map_or(Duration::ZERO, |spec| spec.planned_end(elapsed)),
            resumes_at: status.spec.as_ref().and_then(RunSpec::resumes_at),
            cpu_s: status.workers.iter().map(|worker| worker.cpu_s).sum(),
            rss_bytes: status.workers.iter().map(|worker| worker.rss_bytes).sum(),
            busy_users: view.engine.busy,
            thresholds: self.aggregator.threshold_results(),
        };
        observers.iter_mut().for_each(|observer| observer.on_update(&self.plan, view, &live));
    }

    /// Shows each message once.
    fn show_preparing_workers(&mut self, status: &FleetStatus, observers: &mut [&mut dyn RunObserver]) {
        if self.progress.watching_since.elapsed() < PREPARING_MESSAGE_DELAY {
            return;
        }
        let message = preparing_message(status);
        if let Some(message) = message.filter(|message| self.progress.preparing_message.as_ref() != Some(message)) {
            observers.iter_mut().for_each(|observer| observer.on_waiting(&message));
            self.progress.preparing_message = Some(message);
        }
    }

    fn show_silent_workers(&mut self, status: &FleetStatus, elapsed: Duration, observers: &mut [&mut dyn RunObserver]) {
        if elapsed >= self.progress.updated_at + WAITING_MESSAGE_INTERVAL
            && let Some(message) = silent_workers_message(&status.workers, status.now_ms)
        {
            self.progress.updated_at = elapsed;
            observers.iter_mut().for_each(|observer| observer.on_waiting(&message));
        }
    }

    /// Fetches the result that the leader has stored, and shows it.
    async fn fetch_result(
        mut self,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, FleetRunError> {
        let epoch = self.aggregator.epoch();
        let stored = retry_while_unreachable(control, async || self.fleet.stored_result(epoch).await).await;
        let mut stored = match stored {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(self.into_partial_result(RESULT_LOST)),
            Err(FleetError::Store(StoreError::Unreachable(_))) => return Ok(self.into_partial_result(STORE_LOST)),
            Err(error) => return Err(error.into()),
        };
        if stored.facts.started_unix_ms == 0 {
            // A run that the user has stopped before its start has an empty result. Any other is an
            // error.
            if !self.stop.requested {
                return Err(not_started(&stored));
            }
            stored.facts.started_unix_ms = unix_ms();
        }
        // The leader keeps full histograms of one second, and observers may need those of an interval. This
        // aggregator has them, unless the store has lost deltas.
        let _ = self.aggregator.poll().await;
        let seconds = |view: &RunView| (view.timeline.len(), view.all.requests, view.all.errors);
        let own = self.aggregator.final_view().filter(|own| seconds(own) == seconds(&stored.view));
        self.show_result(&stored, own.as_ref().unwrap_or(&stored.view), observers);
        Ok(RunResult { plan: stored.plan, view: stored.view, facts: stored.facts })
    }

    fn show_result(&self, stored: &StoredRunResult, view: &RunView, observers: &mut [&mut dyn RunObserver]) {
        let facts = &stored.facts;
        let live = LiveStatus {
            elapsed: facts.elapsed,
            phase: LivePhase::Done,
            level_now: 0.0,
            planned_end: facts.active,
            resumes_at: None,
            cpu_s: facts.generator.cpu_s,
            rss_bytes: facts.generator.max_rss_bytes,
            busy_users: 0,
            thresholds: facts.thresholds.clone(),
        };
        observers.iter_mut().for_each(|observer| observer.on_update(&stored.plan, view, &live));
    }

    fn into_partial_result(self, reason: &str) -> RunResult {
        self.last_known.into_result(self.aggregator, self.bundle, reason)
    }
}

/// The latest event says why the leader has ended the run.
fn not_started(stored: &StoredRunResult) -> FleetRunError {
    let last_event = stored.facts.fleet.as_ref().and_then(|fleet| fleet.events.last());
    let reason = last_event.map_or_else(|| "it was stopped".to_owned(), |event| event.text.clone());
    FleetRunError::NotStarted { reason }
}

/// `elapsed_s` is `None` before the start of the load.
fn live_phase(state: RunPhase, elapsed_s: Option<f64>, elapsed: Duration, bundle: &Bundle) -> LivePhase {
    match state {
        RunPhase::Idle => LivePhase::Done,
        RunPhase::Stopping => LivePhase::Draining,
        RunPhase::Preparing => LivePhase::Starting,
        RunPhase::Running if elapsed_s.is_none() => LivePhase::Starting,
        RunPhase::Running if elapsed < bundle.plan.load.warm_up => LivePhase::WarmUp,
        RunPhase::Running => LivePhase::Running,
    }
}
