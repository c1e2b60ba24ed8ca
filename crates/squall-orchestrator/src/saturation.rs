//! Decides whether the load generator itself was the limit of a run, and says why and what to do
//! about it. It measures nothing; local runs and leaders of fleet runs call it when they state the
//! facts.

use squall_metrics::{Histogram, MetricKind, OutcomeCode, RunView};
use squall_model::{LoadModel, Plan, StopReason, protocol::GroupName};
use std::time::Duration;

/// The generator, not the target, causes a start that is this far behind its schedule. One in a
/// hundred is too many.
const MAX_SCHEDULE_LAG: Duration = Duration::from_millis(10);

/// Fewer late starts than this are noise, even in a short run.
const MIN_LATE_STARTS: u64 = 5;

/// Share of the threads' CPU time above which the generator is saturated.
const SATURATED_CPU_SHARE: f64 = 0.95;

/// What the generator used during the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GeneratorUsage {
    pub(crate) elapsed: Duration,
    pub(crate) cpu_s: f64,
    pub(crate) threads: u32,
}

/// A closed load whose generator stalled for this share of the time is not the planned load.
const MAX_STALL_SHARE: f64 = 0.02;

/// Shorter stalls are ignored.
const MIN_STALL: Duration = Duration::from_millis(100);

/// How long the threads of a closed load were not running. Without a pause every lag is a stall.
/// With a pause many users may be late because of one stall, so only the longest lag counts.
fn stall_time(lag: &Histogram, no_pause: bool, threads: u32) -> Duration {
    let shortest = MIN_STALL.as_nanos() as u64;
    if !no_pause {
        return Duration::from_nanos(Some(lag.max()).filter(|max| *max >= shortest).unwrap_or(0));
    }
    let long = lag.ranges().filter(|(lowest, ..)| *lowest >= shortest);
    Duration::from_nanos(long.map(|(lowest, _, n)| lowest * n).sum::<u64>() / u64::from(threads.max(1)))
}

/// What to do about starts for which no user was free, in a run that ended with `stop` and lost
/// `lost` workers.
pub(crate) fn dropped_start_advice(stop: StopReason, lost: usize) -> &'static str {
    match stop {
        // The run was cut short, before all users could start.
        StopReason::Interrupted | StopReason::Aborted => "",
        _ if lost > 0 => ": workers were lost, and the others had too few users; add workers, or raise --max-users",
        StopReason::Completed | StopReason::Threshold => ": raise --max-users or lower the rate",
    }
}

/// Every way in which the generator was the limit, each with what to do about it.
pub(crate) fn saturation_reasons(plan: &Plan, view: &RunView, usage: GeneratorUsage, advice: &str) -> Vec<String> {
    let GeneratorUsage { elapsed, cpu_s, threads } = usage;
    let mut because = Vec::new();
    let lag = &view.engine.schedule_lag;
    let behind = lag.count() - lag.count_at_most(MAX_SCHEDULE_LAG.as_nanos() as u64);
    if behind >= MIN_LATE_STARTS.max(lag.count() / 100) {
        because.push(format!(
            "{behind} starts were more than {} ms behind their schedule (p99 {:.1} ms): this machine was too busy; stop other programs on it, or use more threads or machines",
            MAX_SCHEDULE_LAG.as_millis(),
            lag.percentile(99.0) as f64 / 1e6
        ));
    }
    if let LoadModel::Closed { pause, .. } = &plan.load.model {
        let stalled = stall_time(lag, pause.is_none(), threads);
        if stalled >= MIN_STALL.max(elapsed.mul_f64(MAX_STALL_SHARE)) {
            because.push(format!(
                "the generator stalled for {:.1} s, and requests in flight count as slow because of it: this machine was too busy, or the process was stopped",
                stalled.as_secs_f64()
            ));
        }
    }
    for metric in view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Group) {
        let GroupName::HeldBy(holder) = GroupName::of_metric(&metric.key.name) else { continue };
        let (n, p99) = (metric.service.count(), metric.service.percentile(99.0) as f64 / 1e6);
        if n >= MIN_LATE_STARTS.max(view.engine.recorded / 100) {
            because.push(format!(
                "{n} responses waited because code of {holder} held the generator's thread (p99 {p99:.1} ms), and their times include that wait: compute less between requests, or use --processes"
            ));
        }
    }
    if view.engine.dropped > 0 && matches!(plan.load.model, LoadModel::Open { .. }) {
        let (n, users) = (view.engine.dropped, view.engine.peak_users);
        let starts = if n == 1 { "start" } else { "starts" };
        let unstarted = view.on_start_failures();
        let on_start_advice =
            format!(": on_start failed or did not end {unstarted} times, and a user takes no start before it succeeds");
        let advice = if unstarted > 0 { &on_start_advice } else { advice };
        because.push(format!("{n} {starts} never happened because none of {users} users was free{advice}"));
    }
    let out_of_sockets: u64 =
        view.all.outcomes.iter().filter(|(o, _)| o.code == OutcomeCode::Named("LOCAL_LIMIT")).map(|(_, n)| n).sum();
    if out_of_sockets > 0 {
        because.push(format!(
            "{out_of_sockets} requests failed because this machine had no free file descriptor or port: raise `ulimit -n`, or use fewer users"
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
        Collector, Delta, EngineDelta, ErrorNote, MetricDelta, MetricKey, MetricRecorder, Outcome, RecorderConfig,
        Sample, SourceId,
    };
    use squall_model::{Arrivals, Load, Profile};

    const SOURCE: SourceId = SourceId { instance: 0, thread: 0 };

    /// Whether `late` of `starts` starts that are 25 ms behind saturate the generator.
    fn is_saturated(starts: u64, late: u64) -> bool {
        let mut schedule_lag = Histogram::default();
        (0..starts).for_each(|i| schedule_lag.record(if i < late { 25_000_000 } else { 100_000 }));
        let engine = EngineDelta { schedule_lag, ..EngineDelta::default() };
        !reasons((vec![], vec![], engine), "").is_empty()
    }

    /// The reasons for an open run of one second that recorded this.
    fn reasons(
        (metrics, errors, engine): (Vec<MetricDelta>, Vec<ErrorNote>, EngineDelta),
        advice: &str,
    ) -> Vec<String> {
        let mut collector = Collector::new([SOURCE], 1);
        collector.merge(Delta { source: SOURCE, seq: 0, second: 0, metrics, errors, engine, last: true }).unwrap();
        let rate = Profile::constant(1.0, Duration::from_secs(1)).unwrap();
        let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let (name, target) = (String::new(), String::new());
        let plan = Plan { name, target, load, tasks: vec![], thresholds: vec![], seed: 0 };
        let usage = GeneratorUsage { elapsed: Duration::from_secs(1), cpu_s: 0.1, threads: 1 };
        saturation_reasons(&plan, collector.view(), usage, advice)
    }

    #[test]
    fn dropped_starts_after_failed_on_start_do_not_advise_more_users() {
        for (key, blamed) in [
            (MetricKey::group("on_start"), true),
            (MetricKey::group("Shop/on_start"), true),
            (MetricKey::request("on_start/1"), true),
            (MetricKey::request("browse"), false),
        ] {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            let (metric, outcome) = (recorder.metric(key.clone()), Outcome::of_status(500));
            let (wait, service) = (Duration::ZERO, Duration::ZERO);
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 0,
                bytes_out: 0,
                due_in_warm_up: false,
            });
            recorder.count_dropped(3);
            let text = reasons(recorder.harvest(40, 0), ": raise --max-users").concat();
            assert_eq!(text.contains("on_start failed or did not end 1 times"), blamed, "{key:?}: {text}");
            assert_eq!(text.contains("--max-users"), !blamed, "{key:?}: {text}");
        }
    }

    #[test]
    fn stall_time_of_a_closed_load_sums_lags_only_without_a_pause() {
        let stalled = |lags: &[u64], no_pause, threads| {
            let mut lag = Histogram::default();
            (0..1000).for_each(|_| lag.record(0));
            lags.iter().for_each(|ms| lag.record(ms * 1_000_000));
            stall_time(&lag, no_pause, threads).as_secs_f64().round()
        };
        assert_eq!(stalled(&[2000, 2000], true, 2), 2.0);
        assert_eq!(stalled(&[1000, 1000], true, 1), 2.0);
        assert_eq!(stalled(&[99, 50], true, 1), 0.0);
        assert_eq!(stalled(&[2000; 50], false, 1), 2.0, "one stall delayed fifty users");
    }

    #[test]
    fn dropped_start_advice_depends_on_why_the_run_ended() {
        assert_eq!(dropped_start_advice(StopReason::Interrupted, 0), "");
        assert_eq!(dropped_start_advice(StopReason::Aborted, 1), "");
        assert!(dropped_start_advice(StopReason::Completed, 0).contains("raise --max-users"));
        assert!(dropped_start_advice(StopReason::Completed, 1).contains("workers were lost"));
    }

    #[test]
    fn few_late_starts_in_a_short_run_are_not_saturation() {
        assert!(!is_saturated(40, 2));
        assert!(!is_saturated(10_000, 50));
        assert!(is_saturated(40, 5));
        assert!(is_saturated(10_000, 100));
    }
}
