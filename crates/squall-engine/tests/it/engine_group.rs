//! Several engines as one: counts are everybody's own, threads are told apart, followers end with the others.

use crate::drivers::{Scripted, closed, config, open};
use squall_engine::{EngineConfig, EngineGroup, EngineSpec};
use squall_metrics::{Collector, RunView};
use squall_model::{Load, ShareSet};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;
const LONG: Duration = Duration::from_secs(3600);

fn voice(name: &str, load: Load, follows: bool) -> EngineSpec<Scripted> {
    let mut driver = Scripted::new(|_| MS(1));
    driver.tasks[0].name = name.to_owned();
    EngineSpec { config: config(load, &driver), driver, background: follows }
}

async fn sing(voices: Vec<EngineSpec<Scripted>>) -> RunView {
    let mut chorus = EngineGroup::prepare(voices).await.unwrap();
    let sources = chorus.sources();
    assert_eq!(sources.iter().collect::<BTreeSet<_>>().len(), sources.len(), "each thread is somebody");
    let mut collector = Collector::new(sources, 10);
    chorus.start(Instant::now());
    while let Some(delta) = chorus.next_delta().await {
        collector.merge(delta).unwrap();
    }
    chorus.join().unwrap();
    collector.finish()
}

fn requests(view: &RunView, name: &str) -> u64 {
    view.metrics.iter().find(|metric| metric.key.name == name).map_or(0, |metric| metric.requests)
}

#[tokio::test]
async fn each_has_its_own_load_and_the_follower_ends_with_them() {
    let limited = Load { iterations: Some(40), ..closed(3.0, MS(0), LONG) };
    let voices = vec![
        voice("a", open(100.0, MS(500)), false),
        voice("b", limited, false),
        voice("c", closed(1.0, MS(5), LONG), true),
    ];
    let view = sing(voices).await;
    assert_eq!((requests(&view, "a"), requests(&view, "b")), (50, 40));
    assert!(requests(&view, "c") >= 1 && view.accounting().balances());
}

/// A process that had a part of the limit but none of the users waited for ever.
#[tokio::test]
async fn a_part_without_users_has_nothing_to_do() {
    let mut all = 0;
    for part in 0..3 {
        let mut voice = voice("a", Load { iterations: Some(31), ..closed(2.0, MS(0), LONG) }, false);
        voice.config = EngineConfig { shares: ShareSet::ALL.part(part, 3), ..voice.config };
        all += requests(&sing(vec![voice]).await, "a");
    }
    assert_eq!(all, 31);
}
