//! LoadPilot's metric line and metric names, of the same run as the other outputs.

use squall_model::{Arrivals, LoadModel, Profile};
use squall_report::{LiveSnapshot, LoadPhase, loadpilot_line, loadpilot_metrics};
use std::time::Duration;

use crate::sample_run::{Finished, Recipe, shop};

fn snapshot(finished: &Finished, phase: LoadPhase) -> LiveSnapshot<'_> {
    let Finished { plan, view, .. } = finished;
    LiveSnapshot { view, plan, elapsed: Duration::from_secs(30), phase, unix_ms: 1_700_000_000_000 }
}

#[test]
fn line_counts_the_tasks_of_the_plan_by_name() {
    let finished = shop();
    let line: serde_json::Value = serde_json::from_str(&loadpilot_line(&snapshot(&finished, LoadPhase::Done))).unwrap();
    let tasks = line["tasks"].as_array().unwrap();
    let names: Vec<&str> = tasks.iter().map(|task| task["name"].as_str().unwrap()).collect();
    let planned: Vec<&str> = finished.plan.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, planned);
    for field in ["requests", "errors"] {
        let sum: u64 = tasks.iter().map(|task| task[field].as_u64().unwrap()).sum();
        assert_eq!(line[format!("{field}_total")], sum, "{line}");
        assert!(sum > 0);
    }
    let slowest = tasks.iter().map(|task| task["latency"]["max_ms"].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(line["latency"]["max_ms"].as_f64().unwrap(), slowest);
}

#[test]
fn phases_of_a_spike_are_steady_ramp_up_and_ramp_down() {
    let mut finished = Recipe { seconds: 9, failing: 0..0, ..Recipe::default() }.make();
    let rate = Profile::spike(100.0, Duration::from_secs(27)).unwrap();
    finished.plan.load.model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    let at = |s: u64, phase: LoadPhase| {
        let tick = LiveSnapshot { elapsed: Duration::from_secs(s), ..snapshot(&finished, phase) };
        let line: serde_json::Value = serde_json::from_str(&loadpilot_line(&tick)).unwrap();
        line["phase"].as_str().unwrap().to_owned()
    };
    assert_eq!(at(5, LoadPhase::Steady), "steady");
    assert_eq!(at(9, LoadPhase::Steady), "ramp_up");
    assert_eq!(at(9, LoadPhase::Done), "done");
}

#[test]
fn metrics_have_the_names_of_the_grafana_dashboard() {
    let text = loadpilot_metrics(&snapshot(&shop(), LoadPhase::Steady));
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    insta::assert_snapshot!(names.join("\n"));
    assert!(
        text.contains("loadpilot_phase{phase=\"steady\"} 1\n") && text.contains("loadpilot_phase{phase=\"done\"} 0\n")
    );
}
