//! Every example in `scenarios/` is valid, and the engine runs it for a moment: the report counts the same
//! requests as the built-in shop.

use squall_engine::{Engine, EngineConfig};
use squall_metrics::{Delta, MetricKind};
use squall_scenario::{DiskFiles, RawLoad, Scenario, ScenarioOverrides, Sourced};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use crate::harness::{block_on, target};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

pub(crate) fn parse(path: &Path, overrides: ScenarioOverrides) -> Scenario {
    let text = std::fs::read_to_string(path).expect("readable");
    let name = path.to_string_lossy();
    Scenario::parse(&name, &text, &mut DiskFiles::relative_to_scenario(path), overrides)
        .unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn every_example_is_valid() {
    for path in examples() {
        assert!(!parse(&path, ScenarioOverrides::default()).describe().is_empty());
    }
}

#[test]
fn every_example_runs_and_its_accounting_balances() {
    let flag = |name: &str, value: &str| Some(Sourced::from_flag(name, value));
    // cql.rs runs this one, with a database.
    for path in examples().into_iter().filter(|path| !path.ends_with("cql.toml")) {
        let target = target();
        let load = RawLoad {
            duration: flag("--for", "1s"),
            // Stages give the load its level, so they stay and are shortened.
            profile: flag("--profile", "constant").filter(|_| !path.ends_with("stages.toml")),
            warm_up: flag("--warm-up", "0s"),
            ..RawLoad::default()
        };
        let overrides = ScenarioOverrides {
            target: Some(Sourced::from_flag("--target", target.url(""))),
            load,
            ..ScenarioOverrides::default()
        };
        let scenario = parse(&path, overrides);
        let deltas = block_on(run(&scenario));
        let sent: u64 = deltas.iter().map(|delta| delta.engine.begun).sum();
        let recorded: u64 = deltas.iter().map(|delta| delta.engine.recorded).sum();
        assert_eq!(sent, recorded, "{path:?}");
        assert_eq!(network_requests(&deltas), target.requests(), "{path:?}");
        let errors: Vec<_> = deltas.iter().flat_map(|delta| &delta.errors).collect();
        let failed: u64 = deltas.iter().flat_map(|delta| &delta.metrics).map(|metric| metric.errors()).sum();
        assert_eq!(failed, 0, "{path:?}: {errors:?}");
        assert!(sent > 0, "{path:?}");
    }
}

/// The requests of the run, with those that a browser sent in place of its steps.
fn network_requests(deltas: &[Delta]) -> u64 {
    let metrics: Vec<_> = deltas.iter().flat_map(|delta| &delta.metrics).collect();
    let in_browser = |name: &str| metrics.iter().any(|metric| metric.key.name == format!("{name}:requests"));
    // Every step of the example's browser tasks has its task's name before the slash.
    let browser_tasks: Vec<&str> = metrics
        .iter()
        .filter(|metric| in_browser(&metric.key.name))
        .filter_map(|metric| metric.key.name.split('/').next())
        .collect();
    let counts = |name: &str, kind: MetricKind| {
        let task = name.split('/').next().unwrap_or(name);
        name.ends_with(":requests") || kind == MetricKind::Request && !browser_tasks.contains(&task)
    };
    metrics.iter().filter(|metric| counts(&metric.key.name, metric.key.kind)).map(|metric| metric.requests()).sum()
}

/// Runs a scenario on two engine threads and returns the merged result.
pub(crate) async fn run(scenario: &Scenario) -> Vec<Delta> {
    let config =
        EngineConfig { threads: 2, ..EngineConfig::new(scenario.plan.load.clone(), scenario.plan.tasks.clone()) };
    let mut engine = Engine::prepare(scenario.driver(), config).await.expect("a sound driver");
    engine.start(Instant::now());
    let mut deltas = Vec::new();
    while let Some(delta) = engine.next_delta().await {
        deltas.push(delta);
    }
    engine.join().expect("no thread fails");
    deltas
}
