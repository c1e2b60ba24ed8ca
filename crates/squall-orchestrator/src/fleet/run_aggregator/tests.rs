//! The aggregator on the in-memory store: lost workers, and users that move between workers.

use super::*;
use squall_coord::MemoryFleetStores;
use squall_metrics::{Delta, EngineDelta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample};
use squall_model::{Load, LoadModel, Pause};

use crate::fleet::{WorkerInfo, WorkerKind};

fn delta(instance: u64, second: u32, users: u64, peak_users: u64) -> Delta {
    let engine = EngineDelta { users, peak_users, ..EngineDelta::default() };
    let (source, seq) = (worker_source(instance), u64::from(second));
    Delta { source, seq, second, metrics: vec![], errors: vec![], engine, last: second == 1 }
}

fn profile() -> squall_model::Profile {
    squall_model::Profile::constant(9.0, Duration::from_secs(60)).expect("a load")
}

/// A delta with one request of `millis`.
fn delta_with_request(instance: u64, second: u32, millis: u64) -> Delta {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("a"));
    let (wait, service, outcome) = (Duration::ZERO, Duration::from_millis(millis), Outcome::of_status(200));
    recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, due_in_warm_up: false });
    let (metrics, errors, engine) = recorder.harvest(1, 0);
    Delta { metrics, errors, engine, last: false, ..delta(instance, second, 1, 1) }
}

/// The run 1 in a store, and its aggregator.
async fn open_run(thresholds: &[&str]) -> (MemoryFleetStores, RunAggregator<MemoryFleetStores>) {
    let stores = MemoryFleetStores::default();
    let model = LoadModel::Closed { users: profile(), pause: Pause::NONE };
    let load = Load { model, iterations: None, warm_up: Duration::ZERO };
    let tasks = vec![squall_model::TaskSpec::new("a")];
    let thresholds = thresholds.iter().map(|text| text.parse().expect("a threshold")).collect();
    let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds, seed: 1 };
    let run_store = stores.run();
    let record = run_store.read_record().await.unwrap();
    run_store.compare_and_set(&record, "RUNNING", "{}", true).await.unwrap().expect("no other writer");
    let aggregator = RunAggregator::open(&stores, 1, &plan, 1).await.unwrap();
    (stores, aggregator)
}

async fn ship(stores: &MemoryFleetStores, delta: Delta) {
    let name = format!("{:016x}.0", delta.source.instance);
    stores.run().ship(1, &name, delta.seq, &squall_metrics::encode_delta(&delta)).await.unwrap();
}

fn worker(instance: u64, given_up_run: u64, done: u64) -> WorkerInfo {
    WorkerInfo {
        id: format!("w{instance}"),
        instance,
        status: "healthy".into(),
        ready: 1,
        given_up_run,
        done,
        message: "a thread panicked".into(),
        ..WorkerInfo::default()
    }
}

/// A worker ends early when one of its threads panics, or when the store has lost what it shipped.
#[tokio::test]
async fn worker_that_ended_early_without_last_delta_is_lost_and_recorded_once() {
    let (stores, mut aggregator) = open_run(&[]).await;
    let second = Duration::from_secs(1);
    aggregator.update_roster(&[worker(1, 0, 0), worker(2, 0, 0), worker(3, 0, 0)], second / 10).await.unwrap();
    for instance in 1..=3 {
        ship(&stores, delta(instance, 0, 3, 3)).await;
    }
    assert_eq!(aggregator.poll().await.unwrap(), 1);
    // Worker 2 ends early with its last delta in the store, worker 3 without one.
    ship(&stores, Delta { last: false, ..delta(1, 1, 3, 3) }).await;
    ship(&stores, delta(2, 1, 3, 3)).await;
    for at in [2, 3] {
        aggregator.update_roster(&[worker(1, 0, 0), worker(2, 1, 1), worker(3, 1, 1)], at * second).await.unwrap();
    }
    assert_eq!(aggregator.poll().await.unwrap(), 1, "second 1 closes without worker 3");
    let facts = aggregator.worker_facts(4 * second, u64::MAX);
    let states: Vec<_> = facts.into_iter().map(|facts| facts.state).collect();
    assert_eq!(states, [WorkerState::Finished, WorkerState::Finished, WorkerState::Lost]);
    let events: Vec<_> = aggregator.roster().events.iter().map(|event| event.text.as_str()).collect();
    let text =
        |id| format!("worker {id} ended its part early, and its load moves to the other workers: a thread panicked");
    assert_eq!(events, [text("w2"), text("w3")]);
}

#[tokio::test]
async fn notice_about_a_vikhry_worker_and_its_loss_are_problems_and_a_join_is_none() {
    let (_stores, mut aggregator) = open_run(&[]).await;
    let second = Duration::from_secs(1);
    let vikhry = |message: &str| WorkerInfo { kind: WorkerKind::Vikhry, message: message.into(), ..worker(1, 0, 0) };
    let squall = worker(2, 0, 0);
    aggregator.update_roster(&[vikhry("")], second / 10).await.unwrap();
    for at in [6, 7] {
        aggregator.update_roster(&[vikhry("it starts no user"), squall.clone()], at * second).await.unwrap();
    }
    aggregator.update_roster(&[squall], 8 * second).await.unwrap();
    let events = aggregator.events();
    let events: Vec<_> = events
        .iter()
        .map(|event| (event.text.as_str(), event.kind, event.subject.as_deref(), event.kind.is_problem()))
        .collect();
    let lost = "worker w1 was lost; its load moves to the other workers";
    let expected = [
        ("worker w2 joined", FleetEventKind::Joined, Some("w2"), false),
        ("worker w1: it starts no user", FleetEventKind::Notice, Some("w1"), true),
        (lost, FleetEventKind::Lost, Some("w1"), true),
    ];
    assert_eq!(events, expected);
}

/// The loss of worker 2 closes seconds 0 and 1 together, and the next delta closes second 2, after
/// which the histograms of second 0 are gone.
#[tokio::test]
async fn seconds_that_close_when_a_worker_ends_early_are_judged_with_their_histograms() {
    let (stores, mut aggregator) = open_run(&["p99[1s]<100ms"]).await;
    let second = Duration::from_secs(1);
    aggregator.update_roster(&[worker(1, 0, 0), worker(2, 0, 0)], second / 10).await.unwrap();
    for (at, millis) in [(0, 500), (1, 10)] {
        ship(&stores, delta_with_request(1, at, millis)).await;
    }
    aggregator.update_roster(&[worker(1, 0, 0), worker(2, 1, 1)], 2 * second).await.unwrap();
    ship(&stores, delta_with_request(1, 2, 10)).await;
    assert_eq!(aggregator.poll().await.unwrap(), 3);
    let result = aggregator.judge().clone().final_results(aggregator.view(), 3 * second).remove(0);
    assert_eq!((result.passed, result.breached_at_s), (false, Some(1)), "{result:?}");
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

#[tokio::test]
async fn worker_activity_has_the_latest_second_of_each_worker() {
    let (stores, mut aggregator) = open_run(&[]).await;
    ship(&stores, delta_with_request(1, 0, 7)).await;
    ship(&stores, delta_with_request(2, 0, 7)).await;
    ship(&stores, delta_with_request(2, 1, 7)).await;
    aggregator.poll().await.unwrap();
    let workers = [worker(1, 0, 0), worker(2, 0, 0)];
    aggregator.update_roster(&workers, Duration::from_secs(2)).await.unwrap();
    aggregator.update_roster(&workers[1..], Duration::from_secs(3)).await.unwrap();
    let seen = aggregator.worker_activity();
    let seen: Vec<_> = seen.iter().map(|w| (w.id.as_str(), w.state, w.latest.map(|s| (s.t_s, s.requests)))).collect();
    assert_eq!(seen, [("w1", "lost", Some((1, 1))), ("w2", "working", Some((2, 1)))]);
    let events = aggregator.events();
    assert!(events.last().is_some_and(|event| event.t_s == 3.0 && event.text.contains("w1 was lost")), "{events:?}");
}

#[tokio::test]
async fn limit_of_the_generator_is_known_while_the_run_goes_on() {
    let (stores, mut aggregator) = open_run(&[]).await;
    let model = LoadModel::Open { rate: profile(), arrivals: squall_model::Arrivals::Even };
    let load = Load { model, iterations: None, warm_up: Duration::ZERO };
    let tasks = vec![squall_model::TaskSpec::new("a")];
    let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: vec![], seed: 1 };
    aggregator.update_roster(&[worker(1, 0, 0)], Duration::ZERO).await.unwrap();
    assert_eq!(aggregator.saturation_reasons(&plan, Duration::from_secs(2)), [""; 0]);
    let mut dropped = delta(1, 0, 1, 1);
    dropped.engine.dropped = 7;
    ship(&stores, dropped).await;
    ship(&stores, delta(1, 1, 1, 1)).await;
    aggregator.poll().await.unwrap();
    let reasons = aggregator.saturation_reasons(&plan, Duration::from_secs(2));
    assert!(reasons.iter().any(|reason| reason.starts_with("7 starts never happened")), "{reasons:?}");
}
