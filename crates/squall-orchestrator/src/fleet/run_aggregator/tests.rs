//! The aggregator on the in-memory store: lost workers, and users that move between workers.

use super::*;
use squall_coord::MemoryFleetStores;
use squall_metrics::{Delta, EngineDelta};
use squall_model::{Load, LoadModel, Pause};

use crate::fleet::WorkerInfo;

fn delta(instance: u64, second: u32, users: u64, peak_users: u64) -> Delta {
    let engine = EngineDelta { users, peak_users, ..EngineDelta::default() };
    let (source, seq) = (worker_source(instance), u64::from(second));
    Delta { source, seq, second, metrics: vec![], errors: vec![], engine, last: second == 1 }
}

fn profile() -> squall_model::Profile {
    squall_model::Profile::constant(9.0, Duration::from_secs(60)).expect("a load")
}

/// A worker ends early when one of its threads panics, or when the store has lost what it shipped.
#[tokio::test]
async fn worker_that_ended_early_without_last_delta_is_lost_and_recorded_once() {
    let stores = MemoryFleetStores::default();
    let model = LoadModel::Closed { users: profile(), pause: Pause::NONE };
    let load = Load { model, iterations: None, warm_up: Duration::ZERO };
    let tasks = vec![squall_model::TaskSpec::new("a")];
    let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
    let run_store = stores.run();
    let record = run_store.read_record().await.unwrap();
    run_store.compare_and_set(&record, "RUNNING", "{}", true).await.unwrap().expect("no other writer");
    let mut aggregator = RunAggregator::open(&stores, 1, &plan, 1).await.unwrap();
    let worker = |instance: u64, given_up_run: u64, done: u64| WorkerInfo {
        id: format!("w{instance}"),
        instance,
        status: "healthy".into(),
        ready: 1,
        given_up_run,
        done,
        message: "a thread panicked".into(),
        ..WorkerInfo::default()
    };
    let ship = async |instance: u64, delta: Delta| {
        run_store
            .ship(1, &format!("{instance:016x}.0"), delta.seq, &squall_metrics::encode_delta(&delta))
            .await
            .unwrap();
    };
    let second = Duration::from_secs(1);
    aggregator.update_roster(&[worker(1, 0, 0), worker(2, 0, 0), worker(3, 0, 0)], second / 10).await.unwrap();
    for instance in 1..=3 {
        ship(instance, delta(instance, 0, 3, 3)).await;
    }
    assert_eq!(aggregator.poll().await.unwrap(), 1);
    // Worker 2 ends early with its last delta in the store, worker 3 without one.
    ship(1, Delta { last: false, ..delta(1, 1, 3, 3) }).await;
    ship(2, delta(2, 1, 3, 3)).await;
    for at in [2, 3] {
        aggregator.update_roster(&[worker(1, 0, 0), worker(2, 1, 1), worker(3, 1, 1)], at * second).await.unwrap();
    }
    assert_eq!(aggregator.poll().await.unwrap(), 1, "second 1 closes without worker 3");
    let facts = aggregator.worker_facts(4 * second, u64::MAX);
    let states: Vec<_> = facts.into_iter().map(|facts| facts.state).collect();
    assert_eq!(states, [WorkerState::Finished, WorkerState::Finished, WorkerState::Lost]);
    let events: Vec<_> = aggregator.roster().events.iter().map(|(_, text)| text.as_str()).collect();
    let text =
        |id| format!("worker {id} ended its part early, and its load moves to the other workers: a thread panicked");
    assert_eq!(events, [text("w2"), text("w3")]);
}

#[test]
fn peak_users_count_a_user_once_that_moves_within_a_second() {
    let mut roster = WorkerRoster::default();
    roster.workers.extend([(1, RosterEntry::new("a", 0.0)), (2, RosterEntry::new("b", 0.0))]);
    let mut collector = Collector::new([worker_source(1), worker_source(2)], 1);
    // Of nine users, three move from worker 1 to worker 2 in second 1.
    for delta in [delta(1, 0, 6, 6), delta(2, 0, 3, 3), delta(1, 1, 3, 6), delta(2, 1, 6, 6)] {
        collector.merge(delta).expect("the next delta of its source");
    }
    assert_eq!(collector.view().engine.peak_users, 12, "the sum of both peaks");
    let view = RunAggregator::<MemoryFleetStores>::view_of_checkpoint(&encode_checkpoint(&roster, &collector))
        .expect("a checkpoint");
    assert_eq!(view.engine.peak_users, 9);
}
