//! What a live view shows of a run: the plan, the state, the latest seconds, one row per metric, the
//! outcomes and the error messages. It draws nothing and keeps nothing. The dashboard draws it, and
//! `GET /api/v1/tests/current/dashboard` sends it as JSON (`squall.dashboard/1`).

use serde::{Deserialize, Serialize};
use squall_metrics::{Histogram, MetricView, RunSecond, RunView};
use squall_model::{Plan, ThresholdResult};
use std::time::Duration;

use crate::{
    ErrorJson, OutcomeJson,
    format::{ms, round},
    report_input::second_length,
    result::{errors_json, kind_name, outcomes_json},
};

/// The name and version of the format.
pub const DASHBOARD_SCHEMA: &str = "squall.dashboard/1";

/// A run in progress, or at its end. Fields whose names end in `_ms` are in milliseconds, those that
/// end in `_s` in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveRun {
    pub schema: String,
    /// The plan with the current load.
    pub plan: Plan,
    pub state: LiveRunState,
    pub engine: LiveEngine,
    /// All requests together.
    pub all: LiveMetric,
    /// In the order of their first sample.
    pub metrics: Vec<LiveMetric>,
    /// Outcomes of all requests, the most frequent first.
    pub outcomes: Vec<OutcomeJson>,
    /// Error messages, the most frequent first.
    pub errors: Vec<ErrorJson>,
    /// The latest seconds, without gaps.
    pub seconds: Vec<LiveSecond>,
}

/// The state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveRunState {
    pub phase: LiveRunPhase,
    pub elapsed_s: f64,
    /// When the load should end. Of a paused run, as if it were resumed now.
    pub planned_end_s: f64,
    /// The planned rate or number of users at this moment.
    pub level: f64,
    /// The level that a resume restores; only of a paused run.
    pub resumes_at: Option<f64>,
    /// Users in an iteration.
    pub busy_users: u64,
    /// CPU time that the generator has used.
    pub cpu_s: f64,
    pub rss_bytes: u64,
    /// The thresholds so far. One without a value has nothing to judge yet.
    pub thresholds: Vec<ThresholdResult>,
}

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveRunPhase {
    Starting,
    WarmUp,
    Running,
    Draining,
    Done,
}

/// The engine's own figures since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveEngine {
    pub users: u64,
    pub iterations: u64,
    pub late: u64,
    pub dropped: u64,
    pub warm_up_requests: u64,
}

/// One metric since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveMetric {
    pub name: String,
    /// `request`, `group` or `custom`.
    pub kind: String,
    pub requests: u64,
    pub errors: u64,
    /// Requests per second in the latest second.
    pub rate_now: f64,
    /// `None` before the first response.
    pub response: Option<LiveTimes>,
}

/// Response times since the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LiveTimes {
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// One second of the whole run; times are response times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LiveSecond {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    pub length_s: f64,
    pub requests: u64,
    pub errors: u64,
    pub iterations: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub lag_p99_ms: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl LiveRun {
    /// The run with at most `seconds` of its latest seconds.
    pub fn new(plan: &Plan, view: &RunView, state: LiveRunState, seconds: usize) -> LiveRun {
        let elapsed = Duration::try_from_secs_f64(state.elapsed_s).unwrap_or_default();
        let latest = &view.timeline[view.timeline.len().saturating_sub(seconds)..];
        let engine = &view.engine;
        let now_s = view.timeline.len() as u32;
        let length = second_length(now_s, elapsed);
        let requests_now = view.timeline.last().map_or(0, |second| second.requests);
        let metric = |metric: &MetricView| {
            let now = metric.timeline.last().filter(|second| second.t_s == now_s);
            live_metric(metric, now.map_or(0.0, |second| f64::from(second.requests)) / length)
        };
        LiveRun {
            schema: DASHBOARD_SCHEMA.to_owned(),
            plan: plan.clone(),
            engine: LiveEngine {
                users: engine.users,
                iterations: engine.iterations,
                late: engine.late,
                dropped: engine.dropped,
                warm_up_requests: engine.warm_up_requests,
            },
            all: live_metric(&view.all, requests_now as f64 / length),
            metrics: view.metrics.iter().map(metric).collect(),
            outcomes: outcomes_json(&view.all.outcomes),
            errors: errors_json(&view.errors),
            seconds: latest.iter().map(|second| live_second(second, elapsed)).collect(),
            state,
        }
    }

    /// Whether the load waits for a resume.
    pub fn is_paused(&self) -> bool {
        self.state.resumes_at.is_some() && matches!(self.state.phase, LiveRunPhase::WarmUp | LiveRunPhase::Running)
    }
}

fn live_metric(metric: &MetricView, rate_now: f64) -> LiveMetric {
    LiveMetric {
        name: metric.key.name.clone(),
        kind: kind_name(metric.key.kind).to_owned(),
        requests: metric.requests,
        errors: metric.errors,
        rate_now: round(rate_now),
        response: (!metric.response.is_empty()).then(|| live_times(&metric.response)),
    }
}

fn live_times(histogram: &Histogram) -> LiveTimes {
    let at = |percentile| ms(histogram.percentile(percentile) as f64);
    LiveTimes { p50_ms: at(50.0), p95_ms: at(95.0), p99_ms: at(99.0), max_ms: ms(histogram.max() as f64) }
}

fn live_second(second: &RunSecond, elapsed: Duration) -> LiveSecond {
    LiveSecond {
        t_s: second.t_s,
        length_s: second_length(second.t_s, elapsed),
        requests: second.requests,
        errors: second.errors,
        iterations: second.iterations,
        p50_ms: ms(second.p50 as f64),
        p99_ms: ms(second.p99 as f64),
        lag_p99_ms: ms(second.lag_p99 as f64),
        bytes_in: second.bytes_in,
        bytes_out: second.bytes_out,
    }
}
