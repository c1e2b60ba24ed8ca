//! Tests of what a recorder counts between two harvests.

use super::*;

fn sample(metric: MetricId) -> Sample {
    Sample {
        metric,
        wait: Duration::from_millis(1),
        service: Duration::from_millis(2),
        outcome: Outcome::of_status(200),
        bytes_in: 10,
        bytes_out: 5,
        due_in_warm_up: false,
    }
}

#[test]
fn response_is_wait_plus_service() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    recorder.count_begun();
    recorder.record(&sample(id));
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((metrics[0].service.max(), metrics[0].response.max()), (2_000_000, 3_000_000));
    assert_eq!((engine.begun, engine.recorded, metrics[0].requests()), (1, 1, 1));
    assert!(recorder.harvest(0, 0).0.is_empty(), "a harvest takes everything");
}

#[test]
fn warm_up_samples_are_counted_but_not_in_the_metrics() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    recorder.record(&Sample { due_in_warm_up: true, ..sample(id) });
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert!(metrics.is_empty());
    assert_eq!((engine.recorded, engine.warm_up_requests), (1, 1));
}

#[test]
fn group_samples_do_not_count_as_requests() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::group("checkout"));
    recorder.record(&sample(id));
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((metrics.len(), engine.recorded), (1, 0));
}

#[test]
fn bytes_added_later_count_in_their_own_second() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    recorder.record(&sample(id));
    recorder.harvest(0, 0);
    recorder.add_bytes(id, 7, 3);
    let (metrics, _, _) = recorder.harvest(0, 0);
    assert_eq!((metrics[0].bytes_in, metrics[0].bytes_out, metrics[0].requests()), (7, 3, 0));
    assert!(recorder.harvest(0, 0).0.is_empty(), "a harvest takes everything");
}

#[test]
fn background_recorder_counts_no_load() {
    let mut recorder = MetricRecorder::new(RecorderConfig { background: true, ..RecorderConfig::default() });
    let id = recorder.metric(MetricKey::request("a"));
    recorder.record_users(1);
    recorder.record_iteration(Duration::ZERO, false);
    recorder.count_begun();
    recorder.record(&sample(id));
    let (metrics, _, engine) = recorder.harvest(1, 1);
    assert_eq!((metrics[0].key.kind, metrics[0].requests()), (MetricKind::Custom, 1));
    assert_eq!(engine, EngineDelta::default());
}

#[test]
fn metrics_beyond_the_limit_share_one_metric() {
    let mut recorder = MetricRecorder::new(RecorderConfig { max_metrics: 3, ..RecorderConfig::default() });
    let ids: Vec<_> = (0..5).map(|i| recorder.metric(MetricKey::request(format!("/users/{i}")))).collect();
    assert_eq!(ids[2], ids[4]);
    ids.into_iter().for_each(|id| recorder.record(&sample(id)));
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((metrics.len(), metrics[2].key.name.as_str(), engine.metrics_refused), (3, OTHER_METRIC, 3));
}

#[test]
fn equal_messages_are_counted_together() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    let failed = Outcome::new(crate::OutcomeCategory::CheckFailed, "STATUS");
    for message in ["expected 200", "expected 200", "expected 201"] {
        recorder.note_error(id, failed, message);
    }
    let counts: Vec<_> = recorder.harvest(0, 0).1.into_iter().map(|note| note.count).collect();
    assert_eq!(counts, [2, 1]);
}

#[test]
fn long_messages_are_cut() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    recorder.note_error(id, Outcome::ABORTED, &"ä".repeat(100_000));
    assert_eq!(recorder.harvest(0, 0).1[0].message, "ä".repeat(MAX_MESSAGE_CHARS));
}

#[test]
fn messages_beyond_the_limit_are_counted_together() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let id = recorder.metric(MetricKey::request("a"));
    let failed = Outcome::new(crate::OutcomeCategory::Exception, "ValueError");
    let mut kept = Vec::new();
    for harvest in 0..10 {
        (0..1000).for_each(|n| recorder.note_error(id, failed, &format!("no order {harvest}-{n}")));
        let notes = recorder.harvest(0, 0).1;
        assert_eq!((notes.len(), notes.iter().map(|note| note.count).sum()), (51, 1000));
        notes.into_iter().for_each(|note| crate::pending_second::add_note(&mut kept, note));
    }
    assert_eq!((kept.len(), kept.iter().map(|note| note.count).sum()), (200, 10_000));
}
