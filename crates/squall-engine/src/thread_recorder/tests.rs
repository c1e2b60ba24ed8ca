//! Tests of what a thread records of its requests.

use super::*;

#[test]
fn dropped_request_is_recorded_as_aborted() {
    let now = Instant::now();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), now);
    let metric = recorder.metric(MetricKey::request("a"));
    drop(recorder.begin(metric, now, now));
    recorder.begin(metric, now, now).unwrap().end(now, Outcome::of_status(200), 1, 1);
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((engine.begun, engine.recorded), (2, 2));
    assert_eq!(metrics[0].outcomes, [(Outcome::ABORTED, 1), (Outcome::of_status(200), 1)]);
}

#[test]
fn cancelled_requests_are_recorded_with_the_given_outcome() {
    let now = Instant::now();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), now);
    let metric = recorder.metric(MetricKey::request("a"));
    let timed_out = Outcome::new(OutcomeCategory::Timeout, "TASK_TIMEOUT");
    assert_eq!(recorder.cancel_as([recorder.begin(metric, now, now), recorder.begin(metric, now, now)], timed_out), 2);
    drop(recorder.begin(metric, now, now));
    drop(recorder.open_span(&[recorder.metric(MetricKey::group("task"))], now, now));
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((engine.begun, engine.recorded), (3, 3));
    assert_eq!(metrics[0].outcomes, [(timed_out, 2), (Outcome::ABORTED, 1)]);
    assert_eq!(metrics[1].outcomes, [(Outcome::ABORTED, 1)]);
}

/// Also when the request began in one second and failed in the next.
#[test]
fn unsent_requests_are_recorded_but_not_counted_as_sent() {
    let now = Instant::now();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), now);
    let metric = recorder.metric(MetricKey::request("a"));
    let source = squall_metrics::SourceId { instance: 0, thread: 0 };
    let mut collector = squall_metrics::Collector::new([source], 1);
    let local_limit = Outcome::new(squall_metrics::OutcomeCategory::TransportError, "LOCAL_LIMIT");
    let mut ship = |second: u32| {
        let (metrics, errors, engine) = recorder.harvest(0, 0);
        let (seq, last) = (u64::from(second), second == 1);
        let delta = squall_metrics::Delta { source, seq, second, metrics, errors, engine, last };
        collector.merge(delta).expect("deltas in order");
    };
    let request = recorder.begin(metric, now, now).expect("nothing holds it back");
    ship(0);
    request.end_unsent(now, local_limit);
    recorder.record_unsent(metric, now, now, local_limit);
    recorder.begin(metric, now, now).expect("nothing holds it back").end(now, Outcome::of_status(200), 1, 1);
    ship(1);
    let accounting = collector.finish().accounting();
    assert_eq!((accounting.sent, accounting.unsent, accounting.recorded), (1, 2, 3));
    assert!(accounting.balances());
}

#[test]
fn request_without_budget_or_membership_is_recorded_as_fenced() {
    let now = Instant::now();
    let budget = SendPermit::new(1);
    let recorder =
        ThreadRecorder::with_limits(RecorderConfig::default(), now, Some((0, budget.clone())), (None, Arc::default()));
    let metric = recorder.metric(MetricKey::request("a"));
    let send =
        || recorder.begin(metric, now, now).map(|request| request.end(now, Outcome::of_status(200), 0, 0)).is_some();
    assert!(send(), "no limit was set");
    budget.raise_limits(&[2]);
    assert_eq!([send(), send()], [true, false]);
    budget.raise_limits(&[10]);
    budget.set_valid_until(now);
    assert!(!send());
    budget.set_valid_until(now + Duration::from_secs(3600));
    assert!(send());
    let (_, errors, engine) = recorder.harvest(0, 0);
    assert_eq!((engine.begun, engine.unsent, engine.recorded), (5, 2, 5));
    let messages: Vec<_> = errors.iter().map(|note| note.message.as_str()).collect();
    assert_eq!(messages, [NO_BUDGET, NO_MEMBERSHIP]);
}

#[test]
fn phases_of_warm_up_requests_are_left_out() {
    let now = Instant::now();
    let config = RecorderConfig { phases: true, ..RecorderConfig::default() };
    let recorder = ThreadRecorder::new(config, now + Duration::from_secs(5));
    let metric = recorder.metric(MetricKey::request("a"));
    let send = |intended: Instant, connect: Duration| {
        let request = recorder.begin(metric, intended, intended).unwrap();
        request.record_phases(&[Duration::ZERO, connect, Duration::ZERO, Duration::ZERO, Duration::ZERO]);
        request.end(intended, Outcome::of_status(200), 1, 1);
    };
    send(now, Duration::from_millis(7));
    send(now + Duration::from_secs(6), Duration::ZERO);
    send(now + Duration::from_secs(7), Duration::from_millis(3));
    let phases = recorder.harvest(0, 0).0.remove(0).phases.expect("phases are recorded");
    assert_eq!((phases[1].count(), phases[1].max()), (1, 3_000_000));
}

#[test]
fn failure_messages_of_requests_due_in_the_warm_up_are_left_out() {
    let now = Instant::now();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), now);
    let metric = recorder.metric(MetricKey::request("a"));
    // It fails after the warm-up, but was due in it.
    recorder.note_error(metric, now - Duration::from_millis(1), Outcome::of_status(500), "due in the warm-up");
    recorder.note_error(metric, now, Outcome::of_status(500), "measured");
    let messages: Vec<_> = recorder.harvest(0, 0).1.into_iter().map(|note| note.message).collect();
    assert_eq!(messages, ["measured"]);
}

#[test]
fn requests_due_before_measurement_count_as_warm_up() {
    let now = Instant::now();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), now + Duration::from_secs(5));
    let metric = recorder.metric(MetricKey::request("a"));
    recorder.begin(metric, now, now).unwrap().end(now, Outcome::of_status(500), 1, 1);
    let (metrics, _, engine) = recorder.harvest(0, 0);
    assert_eq!((metrics.len(), engine.warm_up_requests), (0, 1));
}
