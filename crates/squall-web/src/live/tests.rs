//! Golden tests of the feed's messages: the page and the server are built together, but a page of
//! another version may still be open, so a change of a message needs a new version of the schema.

use squall_coord::MemoryFleetStores;
use squall_metrics::{
    Collector, Delta, MetricKey, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, RunView, Sample, SourceId,
};
use squall_model::{
    Bundle, EngineLimits, FleetEvent, FleetEventKind, FleetFacts, GeneratorStats, Load, LoadModel, Pause, Plan,
    Profile, RunFacts, RunPhase, RunSpec, StopReason, TaskSpec, ThresholdResult, WorkerFacts, WorkerState,
};
use squall_orchestrator::{FleetStatus, WorkerActivity, WorkerInfo, WorkerSecond};
use std::time::Duration;

use super::{
    alive_message,
    figures::TablePart,
    hello_message,
    run_messages::{event_message, events, second_message, snapshot_messages, table_message},
    status_messages::{fleet_message, state_json},
};
use crate::run_watcher::WatchedRun;

const SECOND: Duration = Duration::from_secs(1);

/// Two seconds of two metrics: one fails once with a message, one is a group.
fn view() -> RunView {
    let source = SourceId { instance: 1, thread: 0 };
    let mut collector = Collector::new([source], 60);
    for second in 0..2u32 {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let (browse, shop) = (recorder.metric(MetricKey::request("browse")), recorder.metric(MetricKey::group("shop")));
        let failed = Outcome::new(OutcomeCategory::Timeout, "TIMEOUT");
        for (metric, millis, outcome) in [
            (browse, 4, Outcome::of_status(200)),
            (browse, 20, Outcome::of_status(503)),
            (browse, 90, failed),
            (shop, 8, Outcome::of_status(200)),
        ] {
            recorder.count_begun();
            let (wait, service) = (Duration::from_millis(1), Duration::from_millis(millis));
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 10,
                bytes_out: 5,
                due_in_warm_up: false,
            });
        }
        recorder.note_error(browse, failed, "no response within 90ms <b>");
        let (metrics, errors, engine) = recorder.harvest(7, 2);
        collector
            .merge(Delta { source, seq: second.into(), second, metrics, errors, engine, last: second == 1 })
            .unwrap();
    }
    collector.finish()
}

fn run() -> WatchedRun<MemoryFleetStores> {
    let users = Profile::constant(7.0, 10 * SECOND).unwrap();
    let load =
        Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO };
    let threshold: squall_model::Threshold = "p99<50ms".parse().unwrap();
    let plan = Plan {
        name: "shop".into(),
        target: "http://127.0.0.1:1".into(),
        load,
        tasks: vec![TaskSpec::new("browse")],
        thresholds: vec![threshold.clone()],
        seed: 1,
    };
    let (slack, grace, late_after) = (SECOND, SECOND, SECOND);
    let limits = EngineLimits { max_users: 10, grace, slack, late_after, ..EngineLimits::default() };
    let facts = RunFacts {
        started_unix_ms: 1_000,
        active: 2 * SECOND,
        elapsed: 2 * SECOND,
        stop: StopReason::Completed,
        thresholds: vec![ThresholdResult { threshold, value: Some(9.1e7), passed: false, breached_at_s: Some(1) }],
        generator: GeneratorStats::default(),
        lost_at_most: 0,
        events: Vec::new(),
        fleet: Some(FleetFacts {
            events: vec![FleetEvent::new(1.24, FleetEventKind::Joined, "worker w2 joined").about("w2")],
            workers: vec![WorkerFacts {
                id: "w2".into(),
                instance: "0000000000000002".into(),
                requests: 4,
                state: WorkerState::Lost,
                joined_s: 0.0,
                ended_s: Some(1.5),
                lost_at_most: 3,
            }],
            ..FleetFacts::default()
        }),
    };
    WatchedRun::finished(Bundle::new(plan, limits), view(), facts)
}

/// Compares a message with the golden file, in which each message has one line. With
/// `SQUALL_UPDATE_GOLDEN=1` the test writes the file.
#[track_caller]
fn check(name: &str, message: &str) {
    let path = format!("{}/src/live/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SQUALL_UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, format!("{message}\n")).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(golden.trim_end(), message, "{path}");
}

#[test]
fn messages_of_a_run_have_their_golden_form() {
    let run = run();
    let [snapshot, heat, trends] = &snapshot_messages(Some(&run), 0)[..] else { panic!("other messages") };
    check("snapshot", snapshot);
    check("history_heat", heat);
    check("history_trends", trends);
    check("snapshot_since", &snapshot_messages(Some(&run), 1)[0]);
    check("snapshot_empty", &snapshot_messages::<MemoryFleetStores>(None, 0)[0]);
    check("second", &second_message(&run, &run.view().timeline[1], 1));
    check("table", &table_message(&run, TablePart::WHOLE));
    check("event", &event_message("r1", &events(&run)[0]));
    let (profile, workers) = (Profile::constant(7.0, 10 * SECOND).unwrap(), Vec::new());
    let spec = Some(RunSpec::new("r1", "bundle".to_owned(), profile));
    let status =
        FleetStatus { phase: RunPhase::Idle, epoch: 3, revision: 4, elapsed_s: None, spec, now_ms: 10_000, workers };
    check("state", &state_json(&status, Some(&run), "1.2.3").to_string());
}

#[test]
fn messages_of_the_fleet_have_their_golden_form() {
    let worker = WorkerInfo {
        id: "w1".into(),
        instance: 1,
        status: "healthy".into(),
        last_report_at: 9.5,
        cpu_percent: 12.5,
        rss_bytes: 1 << 20,
        shares: 256,
        revision: 4,
        threads: 2,
        ..WorkerInfo::default()
    };
    let latest = Some(WorkerSecond { t_s: 2, requests: 8, users: 7, busy: 2, lag_p99: 1500 });
    let part = |instance, id: &str, state| WorkerActivity {
        id: id.into(),
        instance,
        state,
        joined_s: 0.0,
        ended_s: None,
        lost_at_most: 0,
        latest,
    };
    let lost = WorkerActivity { ended_s: Some(1.5), lost_at_most: 3, ..part(2, "w2", "lost") };
    check("fleet", &fleet_message(&[worker], &[part(1, "w1", "working"), lost], 10_000, 4));
    check("alive", &alive_message(Some(2.5)));
    check("hello", &hello_message("1.2.3"));
}

#[test]
fn worker_that_was_lost_stays_in_the_list_when_the_run_is_over() {
    let message: serde_json::Value =
        serde_json::from_str(&fleet_message(&[], &run().worker_activity(), 10_000, 4)).unwrap();
    let worker = &message["workers"][0];
    assert_eq!((&worker["id"], &worker["state"], &worker["lost_at_most"]), (&"w2".into(), &"lost".into(), &3.into()));
}

/// The page appends what follows its latest second, so a snapshot may not repeat it.
#[test]
fn snapshot_since_a_second_contains_only_later_ones() {
    let messages = |since| -> Vec<serde_json::Value> {
        snapshot_messages(Some(&run()), since).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    };
    let part = messages(1);
    assert_eq!((&part[0]["since"], &part[0]["seconds"][0]), (&1.into(), &serde_json::json!([2])));
    assert!(part[1]["heat"].as_array().unwrap().iter().all(|column| column[0] == 2));
    let other = &messages(9)[0];
    assert_eq!((&other["since"], &other["seconds"][0]), (&0.into(), &serde_json::json!([1, 2])));
}

#[test]
fn parts_of_a_table_contain_each_metric_once() {
    let parts: Vec<serde_json::Value> = (0..3)
        .map(|place| serde_json::from_str(&table_message(&run(), TablePart { place, parts: 3 })).unwrap())
        .collect();
    let ids = |part: &serde_json::Value, rows: &str| -> Vec<i64> {
        part[rows].as_array().unwrap().iter().map(|row| row[0].as_i64().unwrap()).collect()
    };
    for rows in ["total", "window"] {
        assert_eq!(parts.iter().map(|part| ids(part, rows)).collect::<Vec<_>>(), [vec![-1], vec![0], vec![1]]);
    }
    assert_eq!(parts.iter().map(|part| ids(part, "outcomes")).collect::<Vec<_>>(), [vec![], vec![0, 0], vec![]]);
    assert_eq!(parts.iter().map(|part| ids(part, "messages")).collect::<Vec<_>>(), [vec![], vec![0], vec![]]);
}
