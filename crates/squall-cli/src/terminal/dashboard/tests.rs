//! Tests of the dashboard on a terminal in memory.

use super::*;
use ratatui::{Terminal, backend::TestBackend};
use squall_metrics::{Collector, Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
use squall_model::{Arrivals, Load, LoadModel, Profile, TaskSpec};
use squall_orchestrator::LivePhase;

/// A run of `seconds` in which every tenth request of `buy` fails.
fn view(seconds: u32) -> RunView {
    let source = SourceId { instance: 0, thread: 0 };
    let mut collector = Collector::new([source], 1);
    for second in 0..seconds {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        for (name, requests) in [("browse", 30u64), ("buy", 10)] {
            let metric = recorder.metric(MetricKey::request(name));
            for i in 0..requests {
                recorder.count_begun();
                let status = if name == "buy" && i == 0 { 503 } else { 200 };
                let service = Duration::from_millis(5 + i + u64::from(second % 7) * 3);
                let (wait, outcome) = (Duration::ZERO, Outcome::of_status(status));
                let (bytes_in, bytes_out, due_in_warm_up) = (400, 90, false);
                recorder.record(&Sample { metric, wait, service, outcome, bytes_in, bytes_out, due_in_warm_up });
                recorder.record_iteration(Duration::from_micros(120), false);
            }
        }
        let (metrics, errors, engine) = recorder.harvest(12, 3);
        let last = second + 1 == seconds;
        let delta = Delta { source, seq: second.into(), second, metrics, errors, engine, last };
        collector.merge(delta).expect("deltas in order");
    }
    collector.finish()
}

fn plan() -> Plan {
    let rate = Profile::ramp(50.0, Duration::from_secs(10), Duration::from_secs(30)).expect("a ramp");
    let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    Plan {
        name: "shop\u{1b}[31m".to_owned(),
        target: "http://127.0.0.1:8089".to_owned(),
        load: Load { model, iterations: None, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new("browse"), TaskSpec::new("buy")],
        thresholds: Vec::new(),
        seed: 1,
    }
}

fn render(size: (u16, u16), seconds: u32, presses: u32) -> String {
    let (plan, view) = (plan(), view(seconds));
    let elapsed = Duration::from_secs(seconds.into());
    let judged = |threshold: &str, value: Option<f64>, passed: bool, breached_at_s: Option<u32>| {
        let threshold = threshold.parse().expect("a threshold");
        squall_model::ThresholdResult { threshold, value, passed, breached_at_s }
    };
    let live = LiveStatus {
        elapsed,
        phase: LivePhase::Running,
        level_now: 40.0,
        cpu_s: 1.0,
        rss_bytes: 9 << 20,
        busy_users: 5,
        thresholds: vec![
            judged("p99<500ms", Some(40.5e6), true, None),
            judged("error_rate[5s]<1%", Some(0.025), false, Some(7)),
            judged("checkout:p95<1s", None, false, None),
        ],
    };
    let data = DashboardData { plan: &plan, view: &view, live: &live, cpu: 0.34, presses, colour: true };
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a test terminal");
    terminal.draw(|frame| draw(frame, &data)).expect("a drawing");
    terminal.backend().to_string()
}

#[test]
fn tall_dashboard_shows_every_panel() {
    let text = render((120, 36), 12, 0);
    for part in [
        "RUNNING",
        "0:12 / 0:30",
        "starts/s 40 of 40 planned",
        "response time",
        "browse",
        "buy",
        "all",
        "360",
        "12",
        "HTTP_200",
        "HTTP_503",
        "cpu 34 %",
        "schedule lag p99 120 µs",
        "dropped 0",
        "12 (5 busy)",
        "✗ error_rate[5s]<1% 2.5 %, since 7 s",
        "✓ p99<500ms 40.5 ms",
        "· checkout:p95<1s nothing yet",
        "stop, finish",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn control_characters_in_names_are_not_printed() {
    assert!(!render((120, 36), 1, 0).contains('\u{1b}'));
}

#[test]
fn every_terminal_size_and_an_empty_run_can_be_drawn() {
    for size in [(60, 16), (80, 24), (200, 60), (20, 5), (1, 1)] {
        render(size, 0, 1);
        render(size, 3, 2);
    }
}

#[test]
fn time_labels_of_narrow_charts_are_not_cut() {
    let text = render((40, 36), 12, 0);
    let axes = text.lines().find(|line| line.contains("0:00")).unwrap_or_else(|| panic!("no axis in\n{text}"));
    let shown: Vec<&str> =
        axes.split(|c: char| !c.is_ascii_digit() && c != ':').filter(|part| !part.is_empty()).collect();
    assert_eq!(shown, ["0:00", "0:30", "0:00", "0:30"], "{text}");
}

#[test]
fn draining_dashboard_shows_requests_in_flight() {
    assert!(render((120, 36), 3, 1).contains("draining: 5 in flight"));
}

#[test]
fn narrow_terminals_drop_numbers_and_cut_none() {
    let (slowest, response) = ("p99 46.0 ms", "p50 26.0 ms  p99 46.0 ms");
    for (size, parts) in [
        ((60, 36), vec!["requests", "p99", "360", "12", response, "cpu 34 %", "schedule lag p99 120 µs", "q q  abort"]),
        (
            (80, 24),
            vec!["requests", "p95", "360", response, "dropped 0", "memory 9.0 MiB", "✗ error_rate[5s]<1% 2.5 %"],
        ),
        (
            (80, 36),
            vec!["requests", "p95", "360", response, "dropped 0", "iterations 480", "· checkout:p95<1s nothing"],
        ),
        ((120, 36), vec!["max", slowest]),
    ] {
        let text = render(size, 12, 0);
        for part in parts {
            assert!(text.contains(part), "{part} is missing at {size:?} in\n{text}");
        }
    }
}
