//! Decides whether the load generator itself was the limit of a run, and says why and what to do
//! about it. It measures nothing; local runs and leaders of fleet runs call it when they state the
//! facts.

use squall_metrics::{ErrorNote, Histogram, MetricKind, MetricView, OutcomeCode, RunView, most_added_by_late_starts};
use squall_model::{LoadModel, Plan, StopReason, protocol::GroupName};
use std::time::Duration;

/// The generator, not the target, causes a start that is this far behind its schedule.
const MAX_SCHEDULE_LAG: Duration = Duration::from_millis(10);

/// Fewer late starts than this are noise, even in a short run.
const MIN_LATE_STARTS: u64 = 5;

/// From one late start in this many on, p99 can come from late starts.
const STARTS_PER_LATE_START: u64 = 100;

/// Share of p99 that late starts may have added. A smaller effect changes no conclusion about the
/// target.
const MAX_ADDED_SHARE: f64 = 0.1;

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
pub(crate) fn dropped_start_advice(stop: StopReason, lost: usize, view: &RunView) -> &'static str {
    match stop {
        // The run was cut short, before all users could start.
        StopReason::Interrupted | StopReason::Aborted => "",
        _ if lost > 0 => ": workers were lost, and the others had too few users; add workers, or raise --max-users",
        // Such users are added step by step, so --max-users alone starts none earlier.
        _ if view.has_on_start() => {
            ": users with an on_start are added step by step; raise --start-users (and --max-users if it was reached) or lower the rate"
        }
        StopReason::Completed | StopReason::Threshold => ": raise --max-users or lower the rate",
    }
}

/// Says that late starts may have added a notable part of p99; `None` if they did not.
fn late_starts_reason(view: &RunView) -> Option<String> {
    let (response, lag) = (&view.all.response, &view.engine.schedule_lag);
    let late = lag.count() - lag.count_at_most(MAX_SCHEDULE_LAG.as_nanos() as u64);
    let (p99, added) = (response.percentile(99.0), most_added_by_late_starts(response, lag, 99.0));
    let many = late >= MIN_LATE_STARTS.max(lag.count() / STARTS_PER_LATE_START);
    (many && added as f64 > p99 as f64 * MAX_ADDED_SHARE).then(|| {
        // Without their number: the summary counts late starts by `--late-after`, and those that waited for a
        // user too.
        let (added, p99) = (response_time(added), response_time(p99));
        format!(
            "the generator made starts late, which added up to {added} to p99 ({p99}): stop other programs on this machine, or use more threads or machines"
        )
    })
}

/// A time with three digits, as the summary shows it.
fn response_time(nanos: u64) -> String {
    let (value, unit) = match nanos as f64 {
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// Says why starts were dropped: no thread was free for their code, or no user was free for them.
fn dropped_starts_reasons(plan: &Plan, view: &RunView, advice: &str) -> Vec<String> {
    let starts = |n: u64| format!("{n} {} never happened because", if n == 1 { "start" } else { "starts" });
    let without_thread = groups(view, GroupName::NoThread).map(|metric| metric.requests).sum::<u64>();
    let without_user = view.engine.dropped.saturating_sub(without_thread);
    let mut because = Vec::new();
    if without_thread > 0 {
        let starts = starts(without_thread);
        because.push(format!("{starts} no thread for blocking code was free: raise --threads-for-blocking"));
    }
    if without_user > 0 && matches!(plan.load.model, LoadModel::Open { .. }) {
        let (starts, users, unstarted) = (starts(without_user), view.engine.peak_users, view.on_start_failures());
        let advice = match () {
            () if without_thread > 0 => ": users waited for threads for blocking code".to_owned(),
            () if unstarted > 0 => format!(
                ": on_start failed or did not end {unstarted} times, and a user takes no start before it succeeds"
            ),
            () => match held_thread(view) {
                Some(message) => format!(": {message}"),
                None => advice.to_owned(),
            },
        };
        let all_busy = match users {
            1 => "the only user was not free".to_owned(),
            users => format!("none of {users} users was free"),
        };
        because.push(format!("{starts} {all_busy}{advice}"));
    }
    because
}

/// Which code held the generator's thread most often; `None` if no code did for long.
fn held_thread(view: &RunView) -> Option<&str> {
    let is_held = |note: &&ErrorNote| GroupName::of_metric(&note.metric.name) == GroupName::HeldThread;
    let most = view.errors.iter().filter(is_held).max_by_key(|note| note.count)?;
    Some(&most.message)
}

/// The group metrics with the meaning `name`.
fn groups<'v>(view: &'v RunView, name: GroupName<'static>) -> impl Iterator<Item = &'v MetricView> {
    let of_group = view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Group);
    of_group.filter(move |metric| GroupName::of_metric(&metric.key.name) == name)
}

/// Every way in which the generator was the limit, each with what to do about it.
pub(crate) fn saturation_reasons(plan: &Plan, view: &RunView, usage: GeneratorUsage, advice: &str) -> Vec<String> {
    let GeneratorUsage { elapsed, cpu_s, threads } = usage;
    let mut because = Vec::new();
    let lag = &view.engine.schedule_lag;
    because.extend(late_starts_reason(view));
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
        let (n, p99) = (metric.service.count(), response_time(metric.service.percentile(99.0)));
        if n >= MIN_LATE_STARTS.max(view.engine.recorded / 100) {
            because.push(format!(
                "{n} responses waited because code of {holder} held the generator's thread (p99 {p99}), and their times include that wait: compute less between requests, or use --processes"
            ));
        }
    }
    because.extend(dropped_starts_reasons(plan, view, advice));
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
        Collector, Delta, EngineDelta, ErrorNote, MetricDelta, MetricKey, MetricRecorder, Outcome, OutcomeCategory,
        RecorderConfig, Sample, SourceId,
    };
    use squall_model::{Arrivals, Load, Profile};

    const SOURCE: SourceId = SourceId { instance: 0, thread: 0 };

    /// The reasons for a run with `late` of `starts` starts 25 ms late and a target that takes `service`.
    fn reasons_of_late_starts(starts: u64, late: u64, service: Duration) -> Vec<String> {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::request("browse"));
        for i in 0..starts {
            let wait = Duration::from_micros(if i < late { 25_000 } else { 100 });
            recorder.record_iteration(wait, i < late);
            let (outcome, bytes_in, bytes_out) = (Outcome::of_status(200), 0, 0);
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up: false });
        }
        reasons(recorder.harvest(40, 0), "")
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
    fn dropped_starts_name_missing_threads_and_blocking_code_instead_of_users() {
        let span = |name: GroupName<'_>, code: &'static str, messages: &[&str]| {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            let metric = recorder.metric(MetricKey::group(format!("Shop/{name}")));
            let outcome = Outcome::new(OutcomeCategory::Exception, code);
            let (wait, service, bytes_in, bytes_out, due_in_warm_up) = (Duration::ZERO, Duration::ZERO, 0, 0, false);
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up });
            messages.iter().for_each(|message| recorder.note_error(metric, outcome, message));
            recorder.count_dropped(3);
            reasons(recorder.harvest(40, 0), ": raise --max-users")
        };
        assert_eq!(
            span(GroupName::NoThread, "NO_THREAD", &[]),
            [
                "1 start never happened because no thread for blocking code was free: raise --threads-for-blocking",
                "2 starts never happened because none of 40 users was free: users waited for threads for blocking code",
            ]
        );
        assert_eq!(
            span(
                GroupName::HeldThread,
                "HELD_THREAD",
                &["nap held it at a.py:1", "b held it", "nap held it at a.py:1"]
            ),
            ["3 starts never happened because none of 40 users was free: nap held it at a.py:1"]
        );
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
        let collector = Collector::new([SOURCE], 1);
        let advice = |stop, lost| dropped_start_advice(stop, lost, collector.view());
        assert_eq!(advice(StopReason::Interrupted, 0), "");
        assert_eq!(advice(StopReason::Aborted, 1), "");
        assert!(advice(StopReason::Completed, 0).contains("raise --max-users"));
        assert!(advice(StopReason::Completed, 1).contains("workers were lost"));
    }

    #[test]
    fn dropped_starts_of_users_with_an_on_start_advise_more_first_users() {
        for key in [MetricKey::group("Shop/on_start"), MetricKey::request("on_start/1")] {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            let metric = recorder.metric(key);
            let (wait, service, outcome) = (Duration::ZERO, Duration::ZERO, Outcome::of_status(200));
            let (bytes_in, bytes_out, due_in_warm_up) = (0, 0, false);
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up });
            let (metrics, errors, engine) = recorder.harvest(40, 0);
            let mut collector = Collector::new([SOURCE], 1);
            collector.merge(Delta { source: SOURCE, seq: 0, second: 0, metrics, errors, engine, last: true }).unwrap();
            let advice = dropped_start_advice(StopReason::Completed, 0, collector.view());
            assert!(advice.contains("raise --start-users"), "{advice}");
        }
    }

    #[track_caller]
    fn check_late_starts((starts, late): (u64, u64), service: Duration, expected: &[&str]) {
        let reasons = reasons_of_late_starts(starts, late, service);
        let matches = reasons.iter().zip(expected).all(|(reason, expected)| reason.starts_with(expected));
        assert!(reasons.len() == expected.len() && matches, "{reasons:?}");
    }

    #[test]
    fn few_late_starts_are_not_saturation() {
        let fast = Duration::from_millis(1);
        check_late_starts((40, 2), fast, &[]);
        check_late_starts((10_000, 50), fast, &[]);
        check_late_starts(
            (40, 5),
            fast,
            &["the generator made starts late, which added up to 25.0 ms to p99 (26.0 ms)"],
        );
        check_late_starts((10_000, 200), fast, &["the generator made starts late"]);
    }

    #[test]
    fn times_of_reasons_have_the_unit_of_the_summary() {
        for (nanos, text) in [(812_000, "812 µs"), (25_000_000, "25.0 ms"), (1_179_600_000, "1.18 s")] {
            assert_eq!(response_time(nanos), text);
        }
    }

    #[test]
    fn late_starts_that_hardly_change_p99_are_not_saturation() {
        check_late_starts((175, 6), Duration::from_millis(500), &[]);
        check_late_starts((175, 6), Duration::from_millis(100), &["the generator made starts late"]);
    }
}
