//! One line per second while a run is in progress: JSON for machines (the fields of LoadPilot's
//! metric line) and aligned columns for people without a terminal. It keeps no state between lines.

use serde::Serialize;
use squall_metrics::{Histogram, MetricKind, RunSecond, RunView};
use squall_model::{LoadModel, Plan};
use std::time::Duration;

use crate::{
    TerminalStyle,
    format::{count, ms, percent, round, time},
    report_input::second_length,
    terminal_text::TextEmphasis,
};

/// The run so far, at the end of a second.
#[derive(Debug, Clone, Copy)]
pub struct LiveSnapshot<'a> {
    pub view: &'a RunView,
    pub plan: &'a Plan,
    /// Since the start of the run.
    pub elapsed: Duration,
    pub phase: LoadPhase,
    /// Wall clock in milliseconds since 1970.
    pub unix_ms: u64,
}

/// Whether the load rises, is steady, falls or is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPhase {
    RampUp,
    Steady,
    RampDown,
    Done,
}

/// The time that the latest second describes, in a run observed `elapsed` after its start. A second
/// is observed shortly after its end, so the time is the end of that second; at the end of the load
/// it is a nanosecond earlier, so that it still belongs to the load.
pub fn reported_time(plan: &Plan, view: &RunView, elapsed: Duration) -> Duration {
    let second = view.timeline.last().map_or(elapsed, |second| Duration::from_secs(second.t_s.into()));
    let (reported, end) = (elapsed.min(second), plan.duration());
    if reported == end { reported.saturating_sub(Duration::from_nanos(1)) } else { reported }
}

impl LoadPhase {
    /// The phase of the profile at `elapsed`. After the profile's end the run waits for the last
    /// responses, which counts as ramping down. The caller sets [`LoadPhase::Done`], because only
    /// it knows when the last response has arrived.
    pub fn at(plan: &Plan, elapsed: Duration) -> LoadPhase {
        let mut piece_end = Duration::ZERO;
        for piece in plan.load.model.profile().pieces() {
            piece_end += piece.duration;
            if elapsed < piece_end {
                return match piece.from.total_cmp(&piece.to) {
                    std::cmp::Ordering::Less => LoadPhase::RampUp,
                    std::cmp::Ordering::Equal => LoadPhase::Steady,
                    std::cmp::Ordering::Greater => LoadPhase::RampDown,
                };
            }
        }
        LoadPhase::RampDown
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp_secs: f64,
    elapsed_secs: f64,
    current_rps: f64,
    target_rps: f64,
    requests_total: u64,
    errors_total: u64,
    active_workers: u64,
    phase: LoadPhase,
    latency: LatencySummary,
    tasks: Vec<TaskLine<'a>>,
    users: u64,
    dropped_total: u64,
    late_total: u64,
}

#[derive(Serialize)]
pub(crate) struct TaskLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) latency: LatencySummary,
}

/// Response times since the start of the run.
#[derive(Serialize)]
pub(crate) struct LatencySummary {
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    min_ms: f64,
    mean_ms: f64,
}

impl LatencySummary {
    pub(crate) fn from_histogram(histogram: &Histogram) -> LatencySummary {
        LatencySummary {
            p50_ms: ms(histogram.percentile(50.0) as f64),
            p95_ms: ms(histogram.percentile(95.0) as f64),
            p99_ms: ms(histogram.percentile(99.0) as f64),
            max_ms: ms(histogram.max() as f64),
            min_ms: ms(histogram.min() as f64),
            mean_ms: ms(histogram.mean()),
        }
    }
}

/// One JSON object without a line break. Totals and latencies count from the start; `current_rps`
/// is the rate of the latest second.
pub fn json_line(tick: &LiveSnapshot<'_>) -> String {
    let (view, load) = (tick.view, &tick.plan.load);
    let second = view.timeline.last();
    let target_rps = match (&load.model, tick.phase) {
        (LoadModel::Closed { .. }, _) | (_, LoadPhase::Done) => 0.0,
        (LoadModel::Open { rate, .. }, _) => rate.level(reported_time(tick.plan, view, tick.elapsed)),
    };
    let task = |metric: &'_ squall_metrics::MetricView| {
        (metric.requests, metric.errors, LatencySummary::from_histogram(&metric.response))
    };
    let tasks = view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Request).map(|metric| {
        let (requests, errors, latency) = task(metric);
        TaskLine { name: &metric.key.name, requests, errors, latency }
    });
    let line = JsonLine {
        timestamp_secs: tick.unix_ms as f64 / 1e3,
        elapsed_secs: round(tick.elapsed.as_secs_f64()),
        current_rps: second.map_or(0.0, |second| round(current_rate(tick, second))),
        target_rps: round(target_rps),
        requests_total: view.all.requests,
        errors_total: view.all.errors,
        active_workers: view.engine.busy,
        phase: tick.phase,
        latency: LatencySummary::from_histogram(&view.all.response),
        tasks: tasks.collect(),
        users: view.engine.users,
        dropped_total: view.engine.dropped,
        late_total: view.engine.late,
    };
    serde_json::to_string(&line).expect("every field has a JSON form")
}

/// Requests per second, warm-up included: warm-up requests are not in the results, but they are
/// load.
fn current_rate(tick: &LiveSnapshot<'_>, second: &RunSecond) -> f64 {
    (second.requests + second.warm_up_requests) as f64 / second_length(second.t_s, tick.elapsed)
}

fn warming_up(plan: &Plan, second: &RunSecond) -> bool {
    Duration::from_secs(u64::from(second.t_s)) <= plan.load.warm_up
}

/// The titles above [`live_line`]'s columns.
pub fn live_header(style: TerminalStyle) -> String {
    style
        .paint(TextEmphasis::Dim, &columns(style, ["time", "rate", "users", "p50", "p99", "errors"].map(str::to_owned)))
}

/// The latest second in aligned columns, without a line break.
pub fn live_line(tick: &LiveSnapshot<'_>, style: TerminalStyle) -> String {
    let none = RunSecond::default();
    let second = tick.view.timeline.last().unwrap_or(&none);
    let latency = |nanos: u64| if second.requests == 0 { "–".to_owned() } else { time(nanos as f64) };
    let errors = match (warming_up(tick.plan, second), second.errors) {
        (true, _) => "warm-up".to_owned(),
        (false, 0) => "0".to_owned(),
        (false, n) => format!("{} ({})", count(n), percent(n as f64 / second.requests.max(1) as f64)),
    };
    let cells = [
        clock(tick.elapsed, second_length(second.t_s, tick.elapsed)),
        format!("{}/s", count(current_rate(tick, second).round() as u64)),
        count(second.users),
        latency(second.p50),
        latency(second.p99),
        errors,
    ];
    style.paint(if second.errors > 0 { TextEmphasis::Bad } else { TextEmphasis::Plain }, &columns(style, cells))
}

/// Below this width only four columns are shown, so that no line wraps.
const NARROW_WIDTH: usize = 66;

fn columns(style: TerminalStyle, [time, rate, users, p50, p99, errors]: [String; 6]) -> String {
    if style.width < NARROW_WIDTH {
        return format!("{time:>7} {rate:>8} {p99:>8}  {errors}");
    }
    format!("{time:>8} {rate:>11} {users:>8} {p50:>9} {p99:>9}  {errors}")
}

/// `0:07`, `12:34`, `1:02:03`; `0:07.4` after a part of a second.
fn clock(elapsed: Duration, length: f64) -> String {
    let tenths = (elapsed.as_secs_f64() * 10.0).round() as u64;
    // A whole second may be observed slightly before or after its end, so round it.
    let (seconds, part) = match length < 0.95 {
        true => (tenths / 10, format!(".{}", tenths % 10)),
        false => (elapsed.as_secs_f64().round() as u64, String::new()),
    };
    match seconds / 3600 {
        0 => format!("{}:{:02}{part}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}{part}", seconds / 60 % 60, seconds % 60),
    }
}
