//! Carries out one run on this machine, from the start to the facts. It decides when to stop: by
//! the plan, by the thresholds, or at a stop request. The load generator makes the load. `squall
//! run` without a fleet calls it.

use squall_engine::{
    BusyUsers, Driver, Engine, EngineConfig, EngineError, EngineGroup, EngineSpec, LoadOutcome, PlannedScenario,
    ResourceClient,
};
use squall_metrics::{Collector, Delta, RunView};
use squall_model::{EngineLimits, GeneratorStats, LoadChange, Plan, RunFacts, StopReason, ThresholdResult};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{
    live_load::{LiveLoad, LoadChangeError},
    load_generator::{GeneratorOutcome, LoadGenerator, StopHandle},
    process_usage::ProcessUsage,
    run_control::{LoadCommand, RunControl, StopRequest},
    saturation::{GeneratorUsage, dropped_start_advice, saturation_reasons},
    threshold_judge::ThresholdJudge,
};

/// How this machine carries out a run. None of it changes the planned load.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub limits: EngineLimits,
    /// Seconds for which observers get full histograms. Thresholds may need more, which are then
    /// kept.
    pub histogram_window_s: u32,
    /// Where users lease resources.
    pub resources: Option<ResourceClient>,
    /// Whether several scenarios have a load each, so that no single level can be changed.
    pub several: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { limits: EngineLimits::default(), histogram_window_s: 1, resources: None, several: false }
    }
}

/// Observes a run.
pub trait RunObserver {
    /// Called after every second of the run, when it changes phase, at a refresh, and once at the
    /// end. `plan` has the current load.
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus);

    /// Called once a second while there is no second to show, with the reason for the wait.
    fn on_waiting(&mut self, _why: &str) {}

    /// Called with what a load command has changed, or why it was refused. An update follows.
    fn on_load_change(&mut self, _change: &Result<LoadChange, String>) {}
}

/// The current state of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveStatus {
    pub elapsed: Duration,
    pub phase: LivePhase,
    /// The planned rate or number of users at this moment.
    pub level_now: f64,
    /// When the load should end. Of a paused run, as if it were resumed now.
    pub planned_end: Duration,
    /// The level that a resume restores; only of a paused run.
    pub resumes_at: Option<f64>,
    /// CPU time that the generator has used, in seconds.
    pub cpu_s: f64,
    pub rss_bytes: u64,
    /// Users in an iteration.
    pub busy_users: u64,
    /// The thresholds so far. One without a value has nothing to judge yet.
    pub thresholds: Vec<ThresholdResult>,
}

/// The phase of a run, as observers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivePhase {
    Starting,
    WarmUp,
    Running,
    Draining,
    Done,
}

/// What a run measured, and its facts.
pub struct RunResult {
    /// The plan with the load that was asked for in the end.
    pub plan: Plan,
    pub view: RunView,
    pub facts: RunFacts,
}

/// Why a run could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Processes(#[from] crate::processes::ProcessError),
    #[error("stopped before the run began")]
    StoppedBeforeStart,
    #[error("the processes of the run cannot communicate")]
    Socket(#[from] std::io::Error),
    #[error("the delta of an engine thread could not be merged: {0}")]
    Delta(#[from] squall_metrics::MergeError),
}

/// Runs `plan` in this process until it ends for any reason.
pub async fn run_local<D: Driver>(
    plan: &Plan,
    driver: D,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let engine = unless_stopped(control, Engine::prepare(driver, engine_config(plan, &options))).await?;
    run_with_generator(plan, engine, options, control, observers).await
}

/// Runs several scenarios at the same time. `plan` represents all of them: its thresholds are
/// judged, its load is shown, and it lasts as long as the longest.
pub async fn run_scenarios<D: Driver>(
    plan: &Plan,
    scenarios: Vec<PlannedScenario<D>>,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let engines = scenarios.into_iter().map(|scenario| engine_spec(scenario, &options)).collect();
    let engines = unless_stopped(control, EngineGroup::prepare(engines)).await?;
    run_with_generator(plan, engines, options, control, observers).await
}

/// How long a stop request waits for engines that still open connections. Engines that are ready before make an
/// empty run, which is reported.
const PREPARATION_GRACE: Duration = Duration::from_millis(500);

/// Waits for the preparation of engines. Their threads end by themselves after a stop request.
async fn unless_stopped<E>(
    control: &RunControl,
    preparing: impl Future<Output = Result<E, EngineError>>,
) -> Result<E, RunError> {
    let stopped = async {
        control.stop_requested().await;
        tokio::time::sleep(PREPARATION_GRACE).await;
    };
    tokio::select! {
        prepared = preparing => prepared.map_err(RunError::from),
        () = stopped => Err(RunError::StoppedBeforeStart),
    }
}

/// Runs `plan` with a prepared load generator until it ends.
pub async fn run_with_generator<G: LoadGenerator>(
    plan: &Plan,
    mut generator: G,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let (mut stop_requests, mut wakes) = (control.subscribe(), control.subscribe_to_wakes());
    // A request that came while the generator connected is no change to a new receiver.
    if control.is_stopping() {
        stop_requests.mark_changed();
    }
    let mut completion = control.subscribe_to_completion();
    let sources = generator.sources();
    let threads = sources.len() as u32;
    let window = ThresholdJudge::longest_window(plan).max(options.histogram_window_s);
    let mut run = LocalRun {
        load: LiveLoad::new(plan, options.several),
        collector: Collector::new(sources, window),
        judge: ThresholdJudge::new(plan),
        stop: generator.stop(),
        busy_users: generator.busy_users(),
        reason: StopReason::Completed,
        completed_early: false,
        start: Instant::now(),
        phase: LivePhase::Starting,
        usage_at_start: ProcessUsage::now(),
    };
    let started_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    run.update_phase(observers);
    generator.start(run.start);
    loop {
        tokio::select! {
            biased;
            Ok(()) = stop_requests.changed() => {
                let request = *stop_requests.borrow_and_update();
                run.handle_stop_request(request, observers);
            }
            Ok(()) = completion.changed() => {
                run.completed_early = true;
                run.stop.drain();
                run.update_phase(observers);
            }
            Ok(()) = wakes.changed() => {
                for command in control.take_load_commands() {
                    run.change_load(command, &generator, observers);
                }
                run.update_phase(observers);
            }
            delta = generator.next_delta() => match delta {
                Some(delta) => run.merge_delta(delta, observers)?,
                None => break,
            },
            () = tokio::time::sleep(run.until_next_update()) => run.update_phase(observers),
        }
    }
    let outcome = generator.join().await?;
    Ok(run.finish(started_unix_ms, outcome, threads, observers))
}

/// Configures an engine for one of several scenarios. `--threads` can only lower its number of
/// threads.
pub(crate) fn engine_spec<D>(scenario: PlannedScenario<D>, options: &RunOptions) -> EngineSpec<D> {
    let PlannedScenario { plan, driver, threads, background } = scenario;
    let threads = options.limits.threads.into_iter().chain(threads).min();
    let limits = EngineLimits { threads, ..options.limits.clone() };
    let config = engine_config(&plan, &RunOptions { limits, ..options.clone() });
    EngineSpec { driver, config, background }
}

fn engine_config(plan: &Plan, options: &RunOptions) -> EngineConfig {
    let mut config = EngineConfig::with_limits(plan.load.clone(), plan.tasks.clone(), options.limits.clone());
    config.seed = plan.seed;
    config.resources = options.resources.clone();
    config
}

/// How often observers see a drain, so that they can follow its progress.
const DRAIN_UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a run in progress.
struct LocalRun<S> {
    load: LiveLoad,
    collector: Collector,
    judge: ThresholdJudge,
    stop: S,
    busy_users: Option<BusyUsers>,
    reason: StopReason,
    /// Whether the control ended the load before its profile did.
    completed_early: bool,
    start: Instant,
    phase: LivePhase,
    usage_at_start: ProcessUsage,
}

impl<S: StopHandle> LocalRun<S> {
    fn merge_delta(&mut self, delta: Delta, observers: &mut [&mut dyn RunObserver]) -> Result<(), RunError> {
        if self.collector.merge(delta)? == 0 {
            return Ok(());
        }
        let load_active = self.phase_now() != LivePhase::Draining && !self.collector.is_complete();
        if self.judge.judge_closed_seconds(self.collector.view(), load_active).is_some() && load_active {
            self.reason = StopReason::Threshold;
            self.stop.drain();
        }
        self.update_phase(observers);
        Ok(())
    }

    fn handle_stop_request(&mut self, request: StopRequest, observers: &mut [&mut dyn RunObserver]) {
        match request {
            StopRequest::None => return,
            StopRequest::Drain => {
                self.reason = StopReason::Interrupted;
                self.stop.drain();
            }
            StopRequest::Abort => {
                self.reason = StopReason::Aborted;
                self.stop.abort();
            }
        }
        self.update_phase(observers);
    }

    fn change_load(
        &mut self,
        command: LoadCommand,
        generator: &impl LoadGenerator,
        observers: &mut [&mut dyn RunObserver],
    ) {
        let elapsed = self.start.elapsed();
        let changed = match self.phase_now() {
            LivePhase::Draining | LivePhase::Done => Err(LoadChangeError::LoadOver),
            LivePhase::Starting | LivePhase::WarmUp | LivePhase::Running => self.load.apply(command, elapsed),
        };
        if let Ok((_, at)) = &changed {
            generator.set_profile(self.load.profile(), *at);
            self.judge.set_load_end(&self.load.plan);
        }
        let change = changed.map(|(change, _)| change).map_err(|error| error.to_string());
        observers.iter_mut().for_each(|observer| observer.on_load_change(&change));
    }

    /// Time until observers need an update that no delta triggers: the next phase, or the progress
    /// of the drain.
    fn until_next_update(&self) -> Duration {
        let elapsed = self.start.elapsed();
        let ends = match self.phase {
            LivePhase::Starting => return Duration::ZERO,
            LivePhase::WarmUp => self.load.plan.load.warm_up,
            LivePhase::Running => self.load.profile().duration(),
            LivePhase::Draining => return DRAIN_UPDATE_INTERVAL,
            LivePhase::Done => Duration::MAX,
        };
        ends.saturating_sub(elapsed).min(Duration::from_secs(3600))
    }

    fn phase_now(&self) -> LivePhase {
        let elapsed = self.start.elapsed();
        let stopped = self.reason != StopReason::Completed || self.completed_early;
        if stopped || elapsed >= self.load.profile().duration() {
            LivePhase::Draining
        } else if elapsed < self.load.plan.load.warm_up {
            LivePhase::WarmUp
        } else {
            LivePhase::Running
        }
    }

    fn update_phase(&mut self, observers: &mut [&mut dyn RunObserver]) {
        self.phase = self.phase_now();
        self.notify_observers(self.start.elapsed(), observers);
    }

    fn notify_observers(&self, elapsed: Duration, observers: &mut [&mut dyn RunObserver]) {
        let usage = ProcessUsage::now();
        let live = LiveStatus {
            elapsed,
            phase: self.phase,
            level_now: self.load.profile().level(elapsed),
            planned_end: self.load.planned_end(elapsed),
            resumes_at: self.load.resumes_at(),
            cpu_s: (usage.cpu - self.usage_at_start.cpu).as_secs_f64(),
            rss_bytes: usage.max_rss_bytes,
            // Other processes report their iterations in progress only with their deltas.
            busy_users: self.busy_users.as_ref().map_or(self.collector.view().engine.busy, BusyUsers::count),
            thresholds: self.judge.current_results(self.collector.view()),
        };
        observers.iter_mut().for_each(|observer| observer.on_update(&self.load.plan, self.collector.view(), &live));
    }

    fn finish(
        mut self,
        started_unix_ms: u64,
        outcome: GeneratorOutcome,
        threads: u32,
        observers: &mut [&mut dyn RunObserver],
    ) -> RunResult {
        self.phase = LivePhase::Done;
        // The elapsed time of the load, not the time now: threads may have taken a while to end.
        self.notify_observers(outcome.end.elapsed, observers);
        let (usage, GeneratorOutcome { end, other_processes }) = (ProcessUsage::now(), outcome);
        let view = self.collector.finish();
        let events = self.load.events();
        let plan = self.load.into_plan(end.active);
        let measured = end.active.saturating_sub(plan.load.warm_up);
        let thresholds = self.judge.final_results(&view, measured);
        let cpu_s = (usage.cpu - self.usage_at_start.cpu + other_processes.0).as_secs_f64();
        let generator_usage = GeneratorUsage { elapsed: end.elapsed, cpu_s, threads };
        let stop =
            if end.cut_off && self.reason == StopReason::Interrupted { StopReason::Aborted } else { self.reason };
        let saturated_because = saturation_reasons(&plan, &view, generator_usage, dropped_start_advice(stop, 0, &view));
        let generator = GeneratorStats {
            threads,
            cpu_s,
            max_rss_bytes: usage.max_rss_bytes + other_processes.1,
            saturated: !saturated_because.is_empty(),
            saturated_because,
        };
        let LoadOutcome { active, elapsed, lost_at_most, .. } = end;
        let fleet = None;
        let facts =
            RunFacts { started_unix_ms, active, elapsed, stop, thresholds, generator, lost_at_most, fleet, events };
        RunResult { plan, view, facts }
    }
}
