//! The run so far in the formats of LoadPilot, for its own tools: the metric line that its command
//! line reads, and the names of its Grafana dashboard. Both count tasks by name and leave out what
//! users request in their `on_start`. It keeps no state between lines.

use serde::Serialize;
use squall_metrics::{Histogram, MetricKind, RunView};
use squall_model::{LoadModel, Plan};
use std::fmt::Write;

use crate::{
    LiveSnapshot, LoadPhase,
    format::{ms, round},
    live_output::{LatencySummary, TaskLine, reported_time},
    prometheus::escaped,
    report_input::second_length,
};

#[derive(Serialize)]
struct MetricLine<'a> {
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
}

/// What all runs of one task have in common.
struct TaskFigures<'a> {
    name: &'a str,
    runs: u64,
    errors: u64,
    response: Histogram,
}

impl<'a> TaskFigures<'a> {
    /// The figures of each task. A task of a script is a group of requests; a task of a plan is one
    /// request of that name, whose last redirect may fail instead of it.
    fn of_plan(plan: &'a Plan, view: &RunView) -> Vec<TaskFigures<'a>> {
        plan.tasks.iter().map(|task| TaskFigures::of_task(&task.name, view)).collect()
    }

    fn of_task(name: &'a str, view: &RunView) -> TaskFigures<'a> {
        let named = |kind, name: &str| {
            let name = name.to_owned();
            view.metrics.iter().filter(move |metric| metric.key.kind == kind && metric.key.name == name)
        };
        let kind =
            if named(MetricKind::Group, name).next().is_some() { MetricKind::Group } else { MetricKind::Request };
        let mut figures = TaskFigures { name, runs: 0, errors: 0, response: Histogram::default() };
        for metric in named(kind, name) {
            figures.runs += metric.requests;
            figures.errors += metric.errors;
            figures.response.merge(&metric.response);
        }
        if kind == MetricKind::Request {
            let redirects = format!("{name} (redirect)");
            figures.errors += named(kind, &redirects).map(|metric| metric.errors).sum::<u64>();
        }
        figures
    }
}

/// The sum of all tasks.
fn total(tasks: &[TaskFigures<'_>]) -> TaskFigures<'static> {
    let mut total = TaskFigures { name: "", runs: 0, errors: 0, response: Histogram::default() };
    for task in tasks {
        total.runs += task.runs;
        total.errors += task.errors;
        total.response.merge(&task.response);
    }
    total
}

/// The phase as LoadPilot names it: the parts of a spike are steady, ramp_up and ramp_down.
fn phase(tick: &LiveSnapshot<'_>) -> LoadPhase {
    let pieces = tick.plan.load.model.profile().pieces();
    let [base, spike, end] = pieces else { return tick.phase };
    let is_spike = [base, spike, end].iter().all(|piece| piece.from == piece.to)
        && base.from == end.from
        && base.from < spike.from;
    if !is_spike || tick.phase == LoadPhase::Done {
        return tick.phase;
    }
    let at = reported_time(tick.plan, tick.view, tick.elapsed);
    if at < base.duration {
        LoadPhase::Steady
    } else if at < base.duration + spike.duration {
        LoadPhase::RampUp
    } else {
        LoadPhase::RampDown
    }
}

/// Planned starts per second; 0 after the end and for a number of users.
fn target_rate(tick: &LiveSnapshot<'_>) -> f64 {
    match (&tick.plan.load.model, tick.phase) {
        (LoadModel::Closed { .. }, _) | (_, LoadPhase::Done) => 0.0,
        (LoadModel::Open { rate, .. }, _) => rate.level(reported_time(tick.plan, tick.view, tick.elapsed)),
    }
}

/// Iterations per second in the latest second.
fn current_rate(tick: &LiveSnapshot<'_>) -> f64 {
    let second = tick.view.timeline.last();
    second.map_or(0.0, |second| second.iterations as f64 / second_length(second.t_s, tick.elapsed))
}

/// One JSON object without a line break.
pub fn loadpilot_line(tick: &LiveSnapshot<'_>) -> String {
    let tasks = TaskFigures::of_plan(tick.plan, tick.view);
    let all = total(&tasks);
    let line = MetricLine {
        timestamp_secs: tick.unix_ms as f64 / 1e3,
        elapsed_secs: round(tick.elapsed.as_secs_f64()),
        current_rps: round(current_rate(tick)),
        target_rps: round(target_rate(tick)),
        requests_total: all.runs,
        errors_total: all.errors,
        active_workers: tick.view.engine.busy,
        phase: phase(tick),
        latency: LatencySummary::from_histogram(&all.response),
        tasks: tasks
            .iter()
            .map(|task| TaskLine {
                name: task.name,
                requests: task.runs,
                errors: task.errors,
                latency: LatencySummary::from_histogram(&task.response),
            })
            .collect(),
    };
    serde_json::to_string(&line).expect("every field has a JSON form")
}

/// The metrics under LoadPilot's names, in the text format of Prometheus.
pub fn loadpilot_metrics(tick: &LiveSnapshot<'_>) -> String {
    let tasks = TaskFigures::of_plan(tick.plan, tick.view);
    let all = total(&tasks);
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
        let name = format!("loadpilot_{name}");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        samples.iter().for_each(|(labels, value)| {
            let _ = writeln!(out, "{name}{labels} {value}");
        });
    };
    let one = |value: f64| vec![(String::new(), value)];
    let percentile = |histogram: &Histogram, at: f64| ms(histogram.percentile(at) as f64);
    family("requests_total", "counter", "Task runs.", one(all.runs as f64));
    family("errors_total", "counter", "Task runs that failed.", one(all.errors as f64));
    family("current_rps", "gauge", "Task runs per second in the latest second.", one(round(current_rate(tick))));
    family("target_rps", "gauge", "Planned task runs per second.", one(round(target_rate(tick))));
    family("active_workers", "gauge", "Users in a task.", one(tick.view.engine.busy as f64));
    for (name, at) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)] {
        family(&format!("latency_{name}_ms"), "gauge", "Response time.", one(percentile(&all.response, at)));
    }
    family("latency_max_ms", "gauge", "Highest response time.", one(ms(all.response.max() as f64)));
    family("latency_mean_ms", "gauge", "Mean response time.", one(ms(all.response.mean())));
    family("elapsed_secs", "gauge", "Time since the start.", one(round(tick.elapsed.as_secs_f64())));
    let now = phase(tick);
    let phases = [
        (LoadPhase::RampUp, "ramp_up"),
        (LoadPhase::Steady, "steady"),
        (LoadPhase::RampDown, "ramp_down"),
        (LoadPhase::Done, "done"),
    ];
    let samples = phases.map(|(phase, name)| (format!("{{phase=\"{name}\"}}"), f64::from(u8::from(phase == now))));
    family("phase", "gauge", "1 for the present phase.", samples.to_vec());
    let per_task = |value: &dyn Fn(&TaskFigures<'_>) -> f64| -> Vec<(String, f64)> {
        tasks.iter().map(|task| (format!("{{task=\"{}\"}}", escaped(task.name)), value(task))).collect()
    };
    family("task_requests_total", "counter", "Runs of a task.", per_task(&|task| task.runs as f64));
    family("task_errors_total", "counter", "Failed runs of a task.", per_task(&|task| task.errors as f64));
    for (name, at) in [("p50", 50.0), ("p99", 99.0)] {
        let samples = per_task(&|task| percentile(&task.response, at));
        family(&format!("task_latency_{name}_ms"), "gauge", "Response time of a task.", samples);
    }
    let means = per_task(&|task| ms(task.response.mean()));
    family("task_latency_mean_ms", "gauge", "Mean response time of a task.", means);
    out
}
