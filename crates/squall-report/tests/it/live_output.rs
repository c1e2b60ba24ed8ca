//! Tests of the lines that are printed while a run is in progress.

use crate::sample_run::Recipe;
use squall_metrics::RunView;
use squall_model::{Arrivals, LoadModel, Plan, Profile};
use squall_report::{LiveSnapshot, LoadPhase, TerminalStyle, json_line, live_header, live_line, reported_time};
use std::time::Duration;

fn tick<'a>(plan: &'a Plan, view: &'a RunView, phase: LoadPhase) -> LiveSnapshot<'a> {
    let seconds = view.timeline.len() as u64;
    LiveSnapshot {
        view,
        plan,
        elapsed: Duration::from_secs(seconds),
        phase,
        unix_ms: 1_794_779_763_250 + seconds * 1000,
    }
}

#[test]
fn json_line_has_the_fields_of_loadpilot_and_totals_since_the_start() {
    let plan = Recipe::default().plan();
    let mut line = String::new();
    Recipe::default().watch(|view| {
        if view.timeline.len() == 15 {
            line = json_line(&tick(&plan, view, LoadPhase::Steady));
        }
    });
    assert!(!line.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((value["requests_total"].as_u64(), value["current_rps"].as_f64()), (Some(3000), Some(200.0)));
    let tasks = value["tasks"].as_array().unwrap();
    assert_eq!(tasks.iter().map(|t| t["requests"].as_u64().unwrap()).sum::<u64>(), 3000);
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn live_lines_are_aligned_under_their_header() {
    let recipe = Recipe { seconds: 17, warm_up: 2, ..Recipe::default() };
    let plan = recipe.plan();
    let mut lines = vec![live_header(TerminalStyle::PLAIN)];
    recipe.watch(|view| lines.push(live_line(&tick(&plan, view, LoadPhase::Steady), TerminalStyle::PLAIN)));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn live_lines_fit_a_narrow_terminal() {
    let recipe = Recipe { seconds: 17, warm_up: 2, ..Recipe::default() };
    let (plan, narrow) = (recipe.plan(), TerminalStyle { colour: false, width: 40 });
    let mut lines = vec![live_header(narrow)];
    recipe.watch(|view| lines.push(live_line(&tick(&plan, view, LoadPhase::Steady), narrow)));
    assert!(lines.iter().all(|line| line.chars().count() < 40 && !line.contains("p50")), "{lines:#?}");
    assert!(lines[0].contains("p99") && lines[0].ends_with("errors"));
}

#[test]
fn partial_second_has_its_own_time_and_rate() {
    let recipe = Recipe { seconds: 3, ..Recipe::default() };
    let plan = recipe.plan();
    let mut line = String::new();
    let mut json = String::new();
    recipe.watch(|view| {
        let early = LiveSnapshot { elapsed: Duration::from_millis(2_400), ..tick(&plan, view, LoadPhase::Steady) };
        (line, json) = (live_line(&early, TerminalStyle::PLAIN), json_line(&early));
    });
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..2], ["0:02.4", "500/s"], "200 requests in 0.4 s: {line}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["current_rps"], 500.0);
}

#[test]
fn live_lines_show_the_rate_during_warm_up() {
    let recipe = Recipe { seconds: 4, warm_up: 2, ..Recipe::default() };
    let plan = recipe.plan();
    let mut rates = Vec::new();
    recipe.watch(|view| {
        let line: serde_json::Value = serde_json::from_str(&json_line(&tick(&plan, view, LoadPhase::Steady))).unwrap();
        rates.push((line["current_rps"].as_f64().unwrap(), line["requests_total"].as_u64().unwrap()));
    });
    assert_eq!(rates, [(200.0, 0), (200.0, 0), (200.0, 200), (200.0, 400)]);
}

/// The last second is observed after the load has ended.
#[test]
fn last_second_of_a_steady_load_is_steady() {
    let recipe = Recipe { seconds: 3, ..Recipe::default() };
    let plan = recipe.plan();
    let mut seen = Vec::new();
    recipe.watch(|view| {
        let elapsed = Duration::from_millis(view.timeline.len() as u64 * 1000 + 3);
        let phase = LoadPhase::at(&plan, reported_time(&plan, view, elapsed));
        let line = json_line(&LiveSnapshot { elapsed, ..tick(&plan, view, phase) });
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        seen.push((line["phase"].as_str().unwrap().to_owned(), line["target_rps"].as_f64().unwrap()));
    });
    assert_eq!(seen, vec![("steady".to_owned(), 200.0); 3]);
}

#[test]
fn load_phase_follows_the_profile() {
    let mut plan = Recipe::default().plan();
    let stages = [(Duration::from_secs(10), 100.0), (Duration::from_secs(10), 100.0), (Duration::from_secs(10), 0.0)];
    let rate = Profile::from_targets(&stages).unwrap();
    plan.load.model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    let at = |s| LoadPhase::at(&plan, Duration::from_secs(s));
    assert_eq!(
        [at(5), at(10), at(25), at(31)],
        [LoadPhase::RampUp, LoadPhase::Steady, LoadPhase::RampDown, LoadPhase::RampDown]
    );
}
