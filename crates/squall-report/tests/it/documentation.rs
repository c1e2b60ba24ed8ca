//! Checks that docs/ describes every verdict, exported metric and field of the result file.

use crate::sample_run::{Recipe, shop};
use squall_model::{LoadModel, Pause, Profile};
use squall_report::{RunVerdict, prometheus};
use std::{collections::BTreeSet, time::Duration};

const EXIT_CODES: &str = include_str!("../../../../docs/exit-codes.md");
const RESULTS: &str = include_str!("../../../../docs/results.md");
const DASHBOARD: &str = include_str!("../../../../docs/grafana-dashboard.json");

#[test]
fn every_verdict_is_documented_with_its_exit_code() {
    for verdict in RunVerdict::ALL {
        let row = format!("| {} | `{}` |", verdict.exit_code(), verdict.name());
        assert!(EXIT_CODES.contains(&row), "exit-codes.md has no row {row}");
    }
}

/// The names of all exported families, of open and closed runs.
fn exported_metrics() -> BTreeSet<String> {
    let mut open = Recipe { seconds: 1, ..Recipe::default() }.make();
    let names = |finished: &crate::sample_run::Finished| {
        let generator = Some(&finished.facts.generator);
        let (view, plan) = (&finished.view, &finished.plan);
        let scrape = prometheus::ScrapeInput { view, plan, elapsed: Duration::ZERO, generator, version: "" };
        let text = prometheus::text(&scrape);
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let mut all = names(&open);
    let users = Profile::constant(1.0, Duration::from_secs(1)).unwrap();
    open.plan.load.model = LoadModel::Closed { users, pause: Pause::NONE };
    all.extend(names(&open));
    all
}

/// Words in `text` that begin with `squall_`.
fn mentioned_metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("squall_")).map(str::to_owned).collect()
}

#[test]
fn every_exported_metric_is_documented() {
    let documented = mentioned_metrics(RESULTS);
    let missing: Vec<_> = exported_metrics().into_iter().filter(|name| !documented.contains(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn dashboard_queries_only_exported_metrics() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = queries.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 20);
    let exported = exported_metrics();
    for name in mentioned_metrics(&queries.join(" ")) {
        assert!(exported.contains(name.trim_end_matches("_bucket")), "{name} is not exported");
    }
}

#[test]
fn every_field_of_the_result_file_is_documented() {
    let file = serde_json::to_value(squall_report::build_result(&shop().run())).unwrap();
    for part in file.as_object().unwrap().keys().filter(|part| *part != "schema" && *part != "version") {
        assert!(RESULTS.contains(&format!("`{part}")), "results.md does not mention {part}");
    }
}
