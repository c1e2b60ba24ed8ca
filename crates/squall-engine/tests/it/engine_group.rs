//! A group of engines: each has its own counts and thread numbers, and background engines end with
//! the others.

use crate::scripted_driver::{ScriptedDriver, closed, config, open};
use squall_engine::{EngineConfig, EngineGroup, EngineSpec};
use squall_metrics::{Collector, RunView};
use squall_model::{Load, ShareSet};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;
const LONG: Duration = Duration::from_secs(3600);

fn engine_spec(name: &str, load: Load, background: bool) -> EngineSpec<ScriptedDriver> {
    let mut driver = ScriptedDriver::new(|_| MS(1));
    driver.tasks[0].name = name.to_owned();
    EngineSpec { config: config(load, &driver), driver, background }
}

async fn run_group(specs: Vec<EngineSpec<ScriptedDriver>>) -> RunView {
    let mut group = EngineGroup::prepare(specs).await.unwrap();
    let sources = group.sources();
    assert_eq!(sources.iter().collect::<BTreeSet<_>>().len(), sources.len(), "every thread has its own source");
    let mut collector = Collector::new(sources, 10);
    group.start(Instant::now());
    while let Some(delta) = group.next_delta().await {
        collector.merge(delta).unwrap();
    }
    group.join().unwrap();
    collector.finish()
}

fn requests(view: &RunView, name: &str) -> u64 {
    view.metrics.iter().find(|metric| metric.key.name == name).map_or(0, |metric| metric.requests)
}

#[tokio::test]
async fn background_engine_ends_with_the_other_engines() {
    let limited = Load { iterations: Some(40), ..closed(3.0, MS(0), LONG) };
    let specs = vec![
        engine_spec("a", open(100.0, MS(500)), false),
        engine_spec("b", limited, false),
        engine_spec("c", closed(1.0, MS(5), LONG), true),
    ];
    let view = run_group(specs).await;
    assert_eq!((requests(&view, "a"), requests(&view, "b")), (50, 40));
    assert!(requests(&view, "c") >= 1 && view.accounting().balances());
}

/// A process may have a part of the limit but none of the users.
#[tokio::test]
async fn process_without_users_of_a_limited_run_ends() {
    let mut all = 0;
    for part in 0..3 {
        let mut spec = engine_spec("a", Load { iterations: Some(31), ..closed(2.0, MS(0), LONG) }, false);
        spec.config = EngineConfig { shares: ShareSet::ALL.part(part, 3), ..spec.config };
        all += requests(&run_group(vec![spec]).await, "a");
    }
    assert_eq!(all, 31);
}
