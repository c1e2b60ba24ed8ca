//! One run from start to facts. The run decides when to stop (its plan, its thresholds, its person); the engine obeys.

use squall_engine::{Driver, Engine, EngineConfig, EngineError, EngineGroup, InFlightIterations, ResourceClient};
use squall_metrics::{Collector, Delta, Histogram, MetricKind, OutcomeCode, RunView};
use squall_model::{EngineLimits, GeneratorStats, LoadModel, Plan, RunFacts, StopReason, ThresholdResult};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{
    load_generator::{GeneratorOutcome, LoadGenerator, StopHandle},
    planned_scenario::PlannedScenario,
    process_usage::ProcessUsage,
    run_control::{RunControl, StopRequest},
    threshold_judge::ThresholdJudge,
};

/// How a run is carried out on this machine; none of it changes what is asked of the target.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub limits: EngineLimits,
    /// Seconds of full histograms kept for observers, at least what the thresholds need.
    pub histogram_window_s: u32,
    /// Where users borrow things.
    pub resources: Option<ResourceClient>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { limits: EngineLimits::default(), histogram_window_s: 1, resources: None }
    }
}

/// Sees a run while it goes on.
pub trait RunObserver {
    /// Called after every second of the run, when it changes phase, and once at the end.
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus);

    /// Called once a second while there is no second to show, with the reason in words.
    fn on_waiting(&mut self, _why: &str) {}
}

/// What is true of a run right now.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveStatus {
    pub elapsed: Duration,
    pub phase: LivePhase,
    /// The rate or number of users that the plan asks for now.
    pub level_now: f64,
    /// CPU used by this process so far, in seconds.
    pub cpu_s: f64,
    pub rss_bytes: u64,
    /// Iterations under way at this moment.
    pub in_flight: u64,
    /// How the thresholds stand so far; one without a value has had nothing to judge yet.
    pub thresholds: Vec<ThresholdResult>,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivePhase {
    Starting,
    WarmUp,
    Running,
    Draining,
    Done,
}

/// A run that is over.
pub struct RunResult {
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
    #[error("the processes of the run cannot speak with each other")]
    Socket(#[from] std::io::Error),
    #[error("an engine thread's delta could not be merged: {0}")]
    Delta(#[from] squall_metrics::MergeError),
}

/// Runs `plan` in this process to its end, however it ends.
pub async fn run_local<D: Driver>(
    plan: &Plan,
    driver: D,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let engine = Engine::prepare(driver, engine_config(plan, &options)).await?;
    run_with_generator(plan, engine, options, control, observers).await
}

/// Runs several plans at once. `plan` stands for all of them: its thresholds are
/// judged, its load is shown, and it lasts as long as the longest.
pub async fn run_scenarios<D: Driver>(
    plan: &Plan,
    members: Vec<PlannedScenario<D>>,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let voices = members.into_iter().map(|member| member.engine_spec(&options)).collect();
    run_with_generator(plan, EngineGroup::prepare(voices).await?, options, control, observers).await
}

/// Runs `plan` with a crew that is prepared for it, to its end.
pub async fn run_with_generator<C: LoadGenerator>(
    plan: &Plan,
    mut crew: C,
    options: RunOptions,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, RunError> {
    let mut wishes = control.subscribe();
    let sources = crew.sources();
    let threads = sources.len() as u32;
    let window = ThresholdJudge::longest_window(plan).max(options.histogram_window_s);
    let mut run = LocalRun {
        plan,
        collector: Collector::new(sources, window),
        judge: ThresholdJudge::new(plan),
        stop: crew.stop(),
        in_flight: crew.in_flight(),
        reason: StopReason::Completed,
        start: Instant::now(),
        phase: LivePhase::Starting,
        usage_at_start: ProcessUsage::now(),
    };
    let started_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    run.update_phase(observers);
    crew.start(run.start);
    loop {
        tokio::select! {
            biased;
            Ok(()) = wishes.changed() => { let wish = *wishes.borrow_and_update(); run.handle_stop_request(wish, observers) }
            delta = crew.next_delta() => match delta {
                Some(delta) => run.merge_delta(delta, observers)?,
                None => break,
            },
            () = tokio::time::sleep(run.until_next_update()) => run.update_phase(observers),
        }
    }
    let end = crew.join().await?;
    Ok(run.finish(started_unix_ms, end, threads, observers))
}

pub(crate) fn engine_config(plan: &Plan, options: &RunOptions) -> EngineConfig {
    let mut config = EngineConfig::with_limits(plan.load.clone(), plan.tasks.clone(), options.limits.clone());
    config.seed = plan.seed;
    config.resources = options.resources.clone();
    config
}

/// The state of a run under way.
struct LocalRun<'a, S> {
    plan: &'a Plan,
    collector: Collector,
    judge: ThresholdJudge,
    stop: S,
    in_flight: Option<InFlightIterations>,
    reason: StopReason,
    start: Instant,
    phase: LivePhase,
    usage_at_start: ProcessUsage,
}

impl<S: StopHandle> LocalRun<'_, S> {
    fn merge_delta(&mut self, delta: Delta, observers: &mut [&mut dyn RunObserver]) -> Result<(), RunError> {
        if self.collector.merge(delta)? == 0 {
            return Ok(());
        }
        let loading = self.phase_now() != LivePhase::Draining && !self.collector.is_complete();
        if self.judge.judge_closed_seconds(self.collector.view(), loading).is_some() && loading {
            self.reason = StopReason::Threshold;
            self.stop.drain();
        }
        self.update_phase(observers);
        Ok(())
    }

    fn handle_stop_request(&mut self, wish: StopRequest, observers: &mut [&mut dyn RunObserver]) {
        match wish {
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

    /// When there is something to show that no delta brings: the next phase, or what is still in flight at the end.
    fn until_next_update(&self) -> Duration {
        let elapsed = self.start.elapsed();
        let ends = match self.phase {
            LivePhase::Starting => return Duration::ZERO,
            LivePhase::WarmUp => self.plan.load.warm_up,
            LivePhase::Running => self.plan.duration(),
            LivePhase::Draining => return DRAIN_UPDATE_INTERVAL,
            LivePhase::Done => Duration::MAX,
        };
        ends.saturating_sub(elapsed).min(Duration::from_secs(3600))
    }

    fn phase_now(&self) -> LivePhase {
        let elapsed = self.start.elapsed();
        if self.reason != StopReason::Completed || elapsed >= self.plan.duration() {
            LivePhase::Draining
        } else if elapsed < self.plan.load.warm_up {
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
            level_now: self.plan.load.model.profile().level(elapsed),
            cpu_s: (usage.cpu - self.usage_at_start.cpu).as_secs_f64(),
            rss_bytes: usage.max_rss_bytes,
            // What other processes have under way is what they last said.
            in_flight: self.in_flight.as_ref().map_or(self.collector.view().engine.busy, InFlightIterations::count),
            thresholds: self.judge.current_results(self.collector.view()),
        };
        observers.iter_mut().for_each(|observer| observer.on_update(self.plan, self.collector.view(), &live));
    }

    fn finish(
        mut self,
        started_unix_ms: u64,
        ended: GeneratorOutcome,
        threads: u32,
        observers: &mut [&mut dyn RunObserver],
    ) -> RunResult {
        self.phase = LivePhase::Done;
        // Not now: threads may have taken their time to end, and the last second is as long as the run was.
        self.notify_observers(ended.end.elapsed, observers);
        let (usage, GeneratorOutcome { end, other_processes: elsewhere }) = (ProcessUsage::now(), ended);
        let view = self.collector.finish();
        let measured = end.active.saturating_sub(self.plan.load.warm_up);
        let thresholds = self.judge.final_results(&view, measured);
        let cpu_s = (usage.cpu - self.usage_at_start.cpu + elsewhere.0).as_secs_f64();
        let extent = GeneratorUsage { elapsed: end.elapsed, cpu_s, threads };
        let stop =
            if end.cut_off && self.reason == StopReason::Interrupted { StopReason::Aborted } else { self.reason };
        let saturated_because = saturation_reasons(self.plan, &view, extent, dropped_start_advice(stop, 0));
        let generator = GeneratorStats {
            threads,
            cpu_s,
            max_rss_bytes: usage.max_rss_bytes + elsewhere.1,
            saturated: !saturated_because.is_empty(),
            saturated_because,
        };
        let (active, elapsed) = (end.active, end.elapsed);
        let (lost_at_most, fleet) = (0, None);
        let facts = RunFacts { started_unix_ms, active, elapsed, stop, thresholds, generator, lost_at_most, fleet };
        RunResult { view, facts }
    }
}

/// How often a drain is looked at: whoever waits for it wants to see it move.
const DRAIN_UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// A start this far behind its schedule was made late by the generator, not by the target. One in a hundred is too many.
const MAX_SCHEDULE_LAG: Duration = Duration::from_millis(10);

/// Fewer late starts than this are a hiccup of the machine, however short the run was.
const MIN_LATE_STARTS: u64 = 5;

/// Share of the threads' CPU above which the generator has nothing left to give.
const SATURATED_CPU_SHARE: f64 = 0.95;

/// How much the generator was used for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GeneratorUsage {
    pub(crate) elapsed: Duration,
    pub(crate) cpu_s: f64,
    pub(crate) threads: u32,
}

/// A closed load whose generator stood still for this share of the time is not what was asked for.
const MAX_STALL_SHARE: f64 = 0.02;

/// Shorter ones are not looked for.
const MIN_STALL: Duration = Duration::from_millis(100);

/// How long the threads of a closed load were not running. Without a pause nothing but that makes them late; with one, many users may be
/// late for one reason, and the longest time is counted.
fn stall_time(lag: &Histogram, no_pause: bool, threads: u32) -> Duration {
    let shortest = MIN_STALL.as_nanos() as u64;
    if !no_pause {
        return Duration::from_nanos(Some(lag.max()).filter(|max| *max >= shortest).unwrap_or(0));
    }
    let long = lag.ranges().filter(|(lowest, ..)| *lowest >= shortest);
    Duration::from_nanos(long.map(|(lowest, _, n)| lowest * n).sum::<u64>() / u64::from(threads.max(1)))
}

/// What can be done about starts for which no user was free, in a run that ended for `stop` and `lost` workers on its way.
pub(crate) fn dropped_start_advice(stop: StopReason, lost: usize) -> &'static str {
    match stop {
        // Whoever cut it short did not wait for the users to come.
        StopReason::Interrupted | StopReason::Aborted => "",
        _ if lost > 0 => ": workers were lost, and those that were left had too few; add workers, or raise --max-users",
        StopReason::Completed | StopReason::Threshold => ": raise --max-users or lower the rate",
    }
}

/// Every way in which the generator was the limit, in words that say what to do.
pub(crate) fn saturation_reasons(plan: &Plan, view: &RunView, extent: GeneratorUsage, remedy: &str) -> Vec<String> {
    let GeneratorUsage { elapsed, cpu_s, threads } = extent;
    let mut because = Vec::new();
    let lag = &view.engine.schedule_lag;
    let behind = lag.count() - lag.count_at_most(MAX_SCHEDULE_LAG.as_nanos() as u64);
    if behind >= MIN_LATE_STARTS.max(lag.count() / 100) {
        because.push(format!(
            "{behind} starts were more than {} ms behind their schedule (p99 {:.1} ms): this machine was too busy; end what else it does, or use more threads or machines",
            MAX_SCHEDULE_LAG.as_millis(),
            lag.percentile(99.0) as f64 / 1e6
        ));
    }
    if let LoadModel::Closed { pause, .. } = &plan.load.model {
        let still = stall_time(lag, pause.is_none(), threads);
        if still >= MIN_STALL.max(elapsed.mul_f64(MAX_STALL_SHARE)) {
            because.push(format!(
                "the generator stood still for {:.1} s, and what was under way counts as slow for it: this machine was too busy, or the process was stopped",
                still.as_secs_f64()
            ));
        }
    }
    for metric in view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Group) {
        // As the Python driver names them.
        let name = metric.key.name.rsplit('/').next().unwrap_or_default();
        let Some(holder) = name.strip_prefix("(held by ").and_then(|rest| rest.strip_suffix(')')) else { continue };
        let (n, p99) = (metric.service.count(), metric.service.percentile(99.0) as f64 / 1e6);
        if n >= MIN_LATE_STARTS.max(view.engine.recorded / 100) {
            because.push(format!(
                "{n} answers waited because code of {holder} had the generator's thread (p99 {p99:.1} ms), and their times include that: compute less between requests, or use --processes"
            ));
        }
    }
    if view.engine.dropped > 0 && matches!(plan.load.model, LoadModel::Open { .. }) {
        let (n, users) = (view.engine.dropped, view.engine.peak_users);
        let starts = if n == 1 { "start" } else { "starts" };
        let unstarted = view.failed_starts();
        let in_vain = format!(
            ": on_start failed or did not end {unstarted} times, and who does not come through it takes no start"
        );
        let remedy = if unstarted > 0 { &in_vain } else { remedy };
        because.push(format!("{n} {starts} never happened because none of {users} users was free{remedy}"));
    }
    let out_of_sockets: u64 =
        view.all.outcomes.iter().filter(|(o, _)| o.code == OutcomeCode::Named("LOCAL_LIMIT")).map(|(_, n)| n).sum();
    if out_of_sockets > 0 {
        because.push(format!(
            "{out_of_sockets} requests found no free descriptor or port here: raise `ulimit -n`, or use fewer users"
        ));
    }
    let share = cpu_s / (elapsed.as_secs_f64().max(0.001) * f64::from(threads.max(1)));
    if share > SATURATED_CPU_SHARE && elapsed > Duration::from_secs(1) {
        because.push(format!("the generator used {:.0} % of its {threads} core(s): use more machines", share * 100.0));
    }
    because
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::{
        EngineDelta, ErrorNote, MetricDelta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId,
    };
    use squall_model::{Arrivals, Load, Profile};

    const SOURCE: SourceId = SourceId { instance: 0, thread: 0 };

    /// Whether `late` of `starts` starts, 25 ms behind, make the generator the bottleneck.
    fn saturated(starts: u64, late: u64) -> bool {
        let mut schedule_lag = Histogram::default();
        (0..starts).for_each(|i| schedule_lag.record(if i < late { 25_000_000 } else { 100_000 }));
        let engine = EngineDelta { schedule_lag, ..EngineDelta::default() };
        !told((vec![], vec![], engine), "").is_empty()
    }

    /// What is said of an open run of one second that recorded this.
    fn told((metrics, errors, engine): (Vec<MetricDelta>, Vec<ErrorNote>, EngineDelta), remedy: &str) -> Vec<String> {
        let mut collector = Collector::new([SOURCE], 1);
        collector.merge(Delta { source: SOURCE, seq: 0, second: 0, metrics, errors, engine, last: true }).unwrap();
        let rate = Profile::constant(1.0, Duration::from_secs(1)).unwrap();
        let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let (name, target) = (String::new(), String::new());
        let plan = Plan { name, target, load, tasks: vec![], thresholds: vec![], seed: 0 };
        let extent = GeneratorUsage { elapsed: Duration::from_secs(1), cpu_s: 0.1, threads: 1 };
        saturation_reasons(&plan, collector.view(), extent, remedy)
    }

    /// Forty users failed in their on_start, and the advice was to allow more than 10,000.
    #[test]
    fn users_that_cannot_start_are_no_matter_of_their_number() {
        for (key, blamed) in [
            (MetricKey::group("on_start"), true),
            (MetricKey::group("Shop/on_start"), true),
            (MetricKey::request("on_start/1"), true),
            (MetricKey::request("browse"), false),
        ] {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            let (metric, outcome) = (recorder.metric(key.clone()), Outcome::of_status(500));
            let (wait, service) = (Duration::ZERO, Duration::ZERO);
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, warm_up: false });
            recorder.count_dropped(3);
            let told = told(recorder.harvest(40, 0), ": raise --max-users").concat();
            assert_eq!(told.contains("on_start failed or did not end 1 times"), blamed, "{key:?}: {told}");
            assert_eq!(told.contains("--max-users"), !blamed, "{key:?}: {told}");
        }
    }

    /// Found by a reader: a generator that was stopped for 2 of 6 s passed `--strict` in a closed load.
    #[test]
    fn a_closed_load_that_stood_still_is_not_what_was_asked_for() {
        let still = |lags: &[u64], no_pause, threads| {
            let mut lag = Histogram::default();
            (0..1000).for_each(|_| lag.record(0));
            lags.iter().for_each(|ms| lag.record(ms * 1_000_000));
            stall_time(&lag, no_pause, threads).as_secs_f64().round()
        };
        assert_eq!(still(&[2000, 2000], true, 2), 2.0);
        assert_eq!(still(&[1000, 1000], true, 1), 2.0);
        assert_eq!(still(&[99, 50], true, 1), 0.0);
        assert_eq!(still(&[2000; 50], false, 1), 2.0, "fifty users were late for one reason");
    }

    /// Who stopped a run at once was told to raise --max-users.
    #[test]
    fn what_to_do_about_missing_users_depends_on_why_they_were_missing() {
        assert_eq!(dropped_start_advice(StopReason::Interrupted, 0), "");
        assert_eq!(dropped_start_advice(StopReason::Aborted, 1), "");
        assert!(dropped_start_advice(StopReason::Completed, 0).contains("raise --max-users"));
        assert!(dropped_start_advice(StopReason::Completed, 1).contains("workers were lost"));
    }

    /// A search for the highest rate took two late starts of forty for the end of the generator.
    #[test]
    fn a_hiccup_in_a_short_run_is_not_saturation() {
        assert!(!saturated(40, 2));
        assert!(!saturated(10_000, 50));
        assert!(saturated(40, 5));
        assert!(saturated(10_000, 100));
    }
}
