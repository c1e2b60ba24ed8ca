//! Fills the result file from a run. It judges nothing and formats no text except the explanation
//! of the accounting.

use squall_metrics::{
    Accounting, ErrorNote, Histogram, MetricKind, MetricSecond, MetricView, Outcome, PHASES, RunSecond,
};
use squall_model::{LoadModel, StatisticUnit, StopReason, ThresholdResult};
use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::{
    ReportInput, ScheduleRule, exit_code,
    format::{count, ms, rfc3339, round},
    report_input::describe_load,
    verdict,
};

/// The end of the run without its measurements, which is cheap even for a long run.
pub fn result_summary(run: &ReportInput<'_>) -> ResultSummary {
    let verdict = verdict(run);
    ResultSummary {
        verdict,
        exit_code: exit_code(run),
        thresholds: run.facts.thresholds.iter().map(ThresholdJson::of).collect(),
        accounting: accounting(run),
        fleet: run.facts.fleet.as_ref().map(FleetJson::of),
    }
}

/// The run as a result file.
pub fn build_result(run: &ReportInput<'_>) -> ResultFile {
    let verdict = verdict(run);
    let all = &run.view.all;
    ResultFile {
        schema: SCHEMA.to_owned(),
        version: run.version.to_owned(),
        run: run_json(run),
        totals: totals(run),
        accounting: accounting(run),
        latency_ms: LatencyJson {
            service: percentiles(&all.service),
            response: percentiles(&all.response),
            wait: percentiles(&all.wait),
        },
        outcomes: outcomes_json(&all.outcomes),
        metrics: run.view.metrics.iter().map(|m| metric(run, m)).collect(),
        errors: errors_json(&run.view.errors),
        thresholds: run.facts.thresholds.iter().map(ThresholdJson::of).collect(),
        generator: generator(run),
        fleet: run.facts.fleet.as_ref().map(FleetJson::of),
        events: run.facts.events.iter().map(FleetEventJson::of).collect(),
        timeline: run.view.timeline.iter().map(|s| second(run, s)).collect(),
        verdict,
        exit_code: exit_code(run),
        recorded: Some(recorded_run::encode(run)),
    }
}

fn run_json(run: &ReportInput<'_>) -> RunJson {
    let (plan, facts) = (run.plan, run.facts);
    let load = &plan.load;
    RunJson {
        name: plan.name.clone(),
        target: plan.target.clone(),
        command: run.command.map(str::to_owned),
        seed: plan.seed,
        started: rfc3339(facts.started_unix_ms),
        started_unix_ms: facts.started_unix_ms,
        active_s: rounded_seconds(facts.active),
        elapsed_s: rounded_seconds(facts.elapsed),
        warm_up_s: rounded_seconds(load.warm_up),
        measured_s: rounded_seconds(run.measured_time()),
        stop: stop_name(facts.stop).to_owned(),
        strict: run.schedule_rule == ScheduleRule::Strict,
        allow_missing: run.schedule_rule == ScheduleRule::AllowMissing,
        load: LoadJson {
            model: match load.model {
                LoadModel::Open { .. } => "open".to_owned(),
                LoadModel::Closed { .. } => "closed".to_owned(),
            },
            peak: round(load.model.profile().peak()),
            duration_s: rounded_seconds(plan.duration()),
            iterations: load.iterations,
            text: describe_load(load),
        },
    }
}

fn stop_name(stop: StopReason) -> &'static str {
    match stop {
        StopReason::Completed => "completed",
        StopReason::Interrupted => "interrupted",
        StopReason::Aborted => "aborted",
        StopReason::Threshold => "threshold",
    }
}

fn totals(run: &ReportInput<'_>) -> TotalsJson {
    let (all, engine) = (&run.view.all, &run.view.engine);
    TotalsJson {
        requests: all.requests,
        errors: all.errors,
        error_rate: round(all.error_rate()),
        rate: round(run.rate(all)),
        dropped: engine.dropped,
        late: engine.late,
        bytes_in: all.bytes_in,
        bytes_out: all.bytes_out,
        iterations: engine.iterations,
        peak_users: engine.peak_users,
    }
}

fn accounting(run: &ReportInput<'_>) -> AccountingJson {
    let (Accounting { sent, recorded, reported, warm_up, unsent }, _) = accounting_without_lost(run);
    let (balanced, explanation) = (is_balanced(run), explain_accounting(run));
    let lost_at_most = run.facts.lost_at_most;
    AccountingJson { sent, recorded, reported, warm_up, unsent, lost_at_most, balanced, explanation }
}

/// The accounting without the requests that lost workers had in flight in their last merged delta,
/// and the number of those. They are part of `lost_at_most`, so `sent` excludes them and no request is
/// counted twice: the target received between `sent` and `sent + lost_at_most` requests.
pub(crate) fn accounting_without_lost(run: &ReportInput<'_>) -> (Accounting, u64) {
    let accounting = run.view.accounting();
    let Accounting { sent, recorded, unsent, .. } = accounting;
    let in_flight = (sent + unsent).saturating_sub(recorded).min(run.facts.lost_at_most);
    (Accounting { sent: sent - in_flight.min(sent), ..accounting }, in_flight)
}

/// Whether every request is reported or belonged to a lost worker.
pub(crate) fn is_balanced(run: &ReportInput<'_>) -> bool {
    accounting_without_lost(run).0.balances()
}

/// Why sent, recorded and reported differ, and how many requests of lost workers may be missing
/// from all three; `None` if there is nothing to explain.
pub(crate) fn explain_accounting(run: &ReportInput<'_>) -> Option<String> {
    let (Accounting { sent, recorded, reported, unsent, .. }, in_flight) = accounting_without_lost(run);
    let lost = run.facts.lost_at_most;
    let mut reasons = Vec::new();
    if unsent > 0 {
        reasons.push(format!("{} requests failed before they could leave this machine", count(unsent)));
    }
    if lost > 0 {
        let sender = if run.facts.fleet.is_some() { "lost workers" } else { "code that did not return" };
        reasons.push(format!("{sender} may have sent up to {} requests that are not reported", count(lost)));
    }
    let begun = sent + unsent;
    match in_flight {
        0 => {}
        1 => reasons.push("1 of them was in flight when its worker last sent results".to_owned()),
        n => reasons.push(format!("{} of them were in flight when their worker last sent results", count(n))),
    }
    if begun > recorded {
        reasons.push(format!(
            "{} requests started and their end was never recorded: a worker or thread died",
            count(begun - recorded)
        ));
    }
    if recorded > begun {
        reasons.push(format!(
            "{} more requests were recorded than begun: please report this bug",
            count(recorded - begun)
        ));
    }
    if recorded > reported {
        reasons.push(format!("{} recorded requests are not reported: a delta was lost", count(recorded - reported)));
    }
    if reported > recorded {
        reasons.push(format!(
            "{} more requests are reported than recorded: please report this bug",
            count(reported - recorded)
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

pub(crate) fn percentiles(histogram: &Histogram) -> Percentiles {
    let at = |percentile| ms(histogram.percentile(percentile) as f64);
    Percentiles {
        min: ms(histogram.min() as f64),
        mean: ms(histogram.mean()),
        p50: at(50.0),
        p90: at(90.0),
        p95: at(95.0),
        p99: at(99.0),
        p999: at(99.9),
        max: ms(histogram.max() as f64),
        stdev: ms(histogram.stdev()),
    }
}

/// The most frequent first.
pub(crate) fn outcomes_json(outcomes: &BTreeMap<Outcome, u64>) -> Vec<OutcomeJson> {
    let json = |(outcome, &count): (&Outcome, &u64)| OutcomeJson {
        category: outcome.category.name().to_owned(),
        code: outcome.code.to_string(),
        count,
    };
    let mut list: Vec<_> = outcomes.iter().map(json).collect();
    list.sort_by_key(|outcome| std::cmp::Reverse(outcome.count));
    list
}

pub(crate) fn kind_name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Request => "request",
        MetricKind::Group => "group",
        MetricKind::Custom => "custom",
    }
}

fn metric(run: &ReportInput<'_>, metric: &MetricView) -> MetricJson {
    let phases = metric.phases.iter().flat_map(|phases| PHASES.iter().zip(phases.iter()));
    let phases = phases.filter(|(_, histogram)| !histogram.is_empty());
    MetricJson {
        name: metric.key.name.clone(),
        kind: kind_name(metric.key.kind).to_owned(),
        group: metric.key.group.clone(),
        tags: metric.key.tags.clone(),
        requests: metric.requests,
        errors: metric.errors,
        error_rate: round(metric.error_rate()),
        rate: round(run.rate(metric)),
        bytes_in: metric.bytes_in,
        bytes_out: metric.bytes_out,
        outcomes: outcomes_json(&metric.outcomes),
        service_ms: percentiles(&metric.service),
        response_ms: percentiles(&metric.response),
        wait_ms: percentiles(&metric.wait),
        phases_ms: phases.map(|(name, histogram)| ((*name).to_owned(), percentiles(histogram))).collect(),
        timeline: metric.timeline.iter().map(metric_second).collect(),
    }
}

fn metric_second(second: &MetricSecond) -> MetricSecondJson {
    MetricSecondJson {
        t_s: second.t_s,
        requests: u64::from(second.requests),
        errors: u64::from(second.errors),
        mean_ms: ms(f64::from(second.mean)),
        p50_ms: ms(f64::from(second.p50)),
        p95_ms: ms(f64::from(second.p95)),
        p99_ms: ms(f64::from(second.p99)),
    }
}

/// The most frequent first.
pub(crate) fn errors_json(notes: &[ErrorNote]) -> Vec<ErrorJson> {
    let json = |note: &ErrorNote| ErrorJson {
        metric: note.metric.name.clone(),
        category: note.outcome.category.name().to_owned(),
        code: note.outcome.code.to_string(),
        message: note.message.clone(),
        count: note.count,
    };
    let mut list: Vec<_> = notes.iter().map(json).collect();
    list.sort_by_key(|error| std::cmp::Reverse(error.count));
    list
}

impl ThresholdJson {
    /// A result in the unit in which people read it.
    pub fn of(result: &ThresholdResult) -> ThresholdJson {
        let threshold = &result.threshold;
        let (unit, scale) = match threshold.unit() {
            StatisticUnit::Time => ("ms", 1e-6),
            StatisticUnit::Fraction => ("fraction", 1.0),
            StatisticUnit::PerSecond => ("per_s", 1.0),
            StatisticUnit::Count => ("count", 1.0),
            StatisticUnit::LayoutShift => ("layout_shift", 1e-9),
        };
        ThresholdJson {
            threshold: threshold.to_string(),
            metric: threshold.metric.clone(),
            statistic: threshold.statistic.to_string(),
            unit: unit.to_owned(),
            limit: round(threshold.limit * scale),
            value: result.value.filter(|v| v.is_finite()).map(|value| round(value * scale)),
            passed: result.passed,
            breached_at_s: result.breached_at_s,
        }
    }
}

fn generator(run: &ReportInput<'_>) -> GeneratorJson {
    let generator = &run.facts.generator;
    let per_request = |us: f64| if run.view.engine.begun == 0 { 0.0 } else { us / run.view.engine.begun as f64 };
    GeneratorJson {
        threads: generator.threads,
        cpu_s: round(generator.cpu_s),
        cpu_us_per_request: round(per_request(generator.cpu_s * 1e6)),
        max_rss_bytes: generator.max_rss_bytes,
        schedule_lag_ms: percentiles(&run.view.engine.schedule_lag),
        saturated: generator.saturated,
        saturated_because: generator.saturated_because.clone(),
    }
}

fn second(run: &ReportInput<'_>, second: &RunSecond) -> SecondJson {
    let begin = Duration::from_secs(u64::from(second.t_s) - 1);
    let in_warm_up = begin + Duration::from_secs(1) <= run.plan.load.warm_up;
    let length =
        if in_warm_up { run.second_length(second.t_s) } else { run.measured_second_length(second.t_s).max(0.001) };
    let middle = begin + Duration::from_secs_f64(run.second_length(second.t_s) / 2.0);
    SecondJson {
        t_s: second.t_s,
        rate: round(second.requests as f64 / length),
        requests: second.requests,
        length_s: round(length),
        users: second.users,
        errors: second.errors,
        p50_ms: ms(second.p50 as f64),
        p90_ms: ms(second.p90 as f64),
        p95_ms: ms(second.p95 as f64),
        p99_ms: ms(second.p99 as f64),
        max_ms: ms(second.max as f64),
        mean_ms: ms(second.mean),
        service_p50_ms: ms(second.service_p50 as f64),
        service_p99_ms: ms(second.service_p99 as f64),
        lag_p99_ms: ms(second.lag_p99 as f64),
        target: round(target_level(run, middle)),
        busy: second.busy,
        iterations: second.iterations,
        dropped: second.dropped,
        late: second.late,
        bytes_in: second.bytes_in,
        bytes_out: second.bytes_out,
        in_warm_up,
    }
}

/// The level of the profile at `at`; 0 after the end of the load.
fn target_level(run: &ReportInput<'_>, at: Duration) -> f64 {
    if at < run.facts.active { run.plan.load.model.profile().level(at) } else { 0.0 }
}

fn rounded_seconds(duration: Duration) -> f64 {
    round(duration.as_secs_f64())
}
