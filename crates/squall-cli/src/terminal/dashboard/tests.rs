//! Tests of the dashboard on a terminal in memory.

use super::*;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend};
use squall_metrics::{Collector, Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
use squall_model::{Arrivals, Load, LoadModel, Profile, TaskSpec};
use squall_orchestrator::LivePhase;
use squall_report::{ErrorJson, LiveMetric, LiveTimes};

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

pub(super) fn plan() -> Plan {
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

/// A run of `plan` after this many seconds.
pub(super) fn live_run(plan: &Plan, seconds: u32) -> LiveRun {
    let judged = |threshold: &str, value: Option<f64>, passed: bool, breached_at_s: Option<u32>| {
        let threshold = threshold.parse().expect("a threshold");
        squall_model::ThresholdResult { threshold, value, passed, breached_at_s }
    };
    let live = LiveStatus {
        elapsed: Duration::from_secs(seconds.into()),
        phase: LivePhase::Running,
        level_now: 40.0,
        planned_end: plan.duration(),
        resumes_at: None,
        cpu_s: 1.0,
        rss_bytes: 9 << 20,
        busy_users: 5,
        thresholds: vec![
            judged("p99<500ms", Some(40.5e6), true, None),
            judged("error_rate[5s]<1%", Some(0.025), false, Some(7)),
            judged("checkout:p95<1s", None, false, None),
        ],
    };
    crate::tick::live_run(plan, &view(seconds), &live, MAX_SPAN_S as usize)
}

/// A run with many metrics: the later ones have more requests and are faster.
fn run_with_metrics(names: impl IntoIterator<Item = String>) -> LiveRun {
    let mut run = live_run(&plan(), 12);
    let metric = |(i, name): (usize, String)| LiveMetric {
        name,
        kind: "request".to_owned(),
        requests: 100 + i as u64,
        errors: i as u64 % 3,
        rate_now: 10.0,
        response: Some(LiveTimes { p50_ms: 10.0, p95_ms: 20.0, p99_ms: 90.0 - i as f64, max_ms: 100.0 }),
    };
    run.metrics = names.into_iter().enumerate().map(metric).collect();
    run
}

/// Draws `run` after these keys.
fn draw_after(run: &LiveRun, size: (u16, u16), quit: QuitKey, keys: &[KeyCode]) -> String {
    let mut state = DashboardState::default();
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a test terminal");
    let data = DashboardData { run, cpu: 0.34, quit, notice: None, colour: true };
    for key in keys {
        // A page is as long as the last drawing.
        terminal.draw(|frame| draw(frame, &data, &mut state)).expect("a drawing");
        state.handle(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)));
    }
    terminal.draw(|frame| draw(frame, &data, &mut state)).expect("a drawing");
    terminal.backend().to_string()
}

fn render(size: (u16, u16), seconds: u32, presses: u32) -> String {
    draw_after(&live_run(&plan(), seconds), size, QuitKey::StopsRun { presses }, &[])
}

const KEYS: fn(&str) -> Vec<KeyCode> = |text| text.chars().map(KeyCode::Char).collect();
const OWN: QuitKey = QuitKey::StopsRun { presses: 0 };

/// The names in the metric table, from the top.
fn metric_names(screen: &str) -> Vec<&str> {
    let names = screen.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with("task-")));
    names.collect()
}

#[test]
fn overview_of_a_running_test() {
    insta::assert_snapshot!(render((100, 34), 12, 0));
}

#[test]
fn overview_of_a_paused_test_on_a_small_terminal() {
    let mut run = live_run(&plan(), 12);
    (run.state.level, run.state.resumes_at) = (0.0, Some(40.0));
    insta::assert_snapshot!(draw_after(&run, (80, 24), QuitKey::Leaves, &[]));
}

#[test]
fn help_page_explains_the_keys() {
    insta::assert_snapshot!(draw_after(&live_run(&plan(), 3), (80, 24), OWN, &KEYS("?")));
}

#[test]
fn errors_page_shows_count_code_metric_and_message() {
    let mut run = live_run(&plan(), 12);
    let error = |count, code: &str, message: &str| ErrorJson {
        metric: "buy".to_owned(),
        category: "exception".to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        count,
    };
    run.errors = vec![
        error(9, "HTTP_503", "no stock\u{1b}[2J"),
        error(3, "EXCEPTION", "Traceback (most recent call last):\n  File \"shop.py\", line 3\nKeyError: 'id'"),
    ];
    insta::assert_snapshot!(draw_after(&run, (80, 24), OWN, &KEYS("e")));
    let filtered = draw_after(&run, (80, 24), OWN, &KEYS("e/keyerror"));
    assert!(filtered.contains("KeyError") && !filtered.contains("no stock"), "{filtered}");
    assert!(filtered.contains("filter: keyerror"), "{filtered}");
}

#[test]
fn metrics_scroll_and_their_title_says_which_are_visible() {
    let run = run_with_metrics((1..=40).map(|i| format!("task-{i:02}")));
    let screen = draw_after(&run, (100, 38), OWN, &[]);
    assert_eq!(metric_names(&screen), (1..=10).map(|i| format!("task-{i:02}")).collect::<Vec<_>>(), "{screen}");
    assert!(screen.contains("metrics 1–10 of 40"), "{screen}");
    let screen = draw_after(&run, (100, 38), OWN, &[KeyCode::PageDown, KeyCode::Down]);
    assert!(screen.contains("metrics 12–21 of 40") && metric_names(&screen)[0] == "task-12", "{screen}");
    let screen = draw_after(&run, (100, 38), OWN, &[KeyCode::End, KeyCode::Down]);
    assert!(screen.contains("metrics 31–40 of 40"), "{screen}");
}

#[test]
fn metrics_are_sorted_and_filtered() {
    let run = run_with_metrics((1..=40).map(|i| format!("task-{i:02}")));
    let by_requests = draw_after(&run, (100, 38), OWN, &KEYS("s"));
    assert!(by_requests.contains("by requests ↓") && metric_names(&by_requests)[0] == "task-40", "{by_requests}");
    let by_p99 = draw_after(&run, (100, 38), OWN, &KEYS("ssssss"));
    assert!(by_p99.contains("by p99 ↓") && metric_names(&by_p99)[0] == "task-01", "{by_p99}");
    let turned = draw_after(&run, (100, 38), OWN, &KEYS("ssssssS"));
    assert!(turned.contains("by p99 ↑") && metric_names(&turned)[0] == "task-40", "{turned}");
    let mut keys = KEYS("/TASK-1");
    keys.push(KeyCode::Enter);
    let filtered = draw_after(&run, (100, 38), OWN, &keys);
    assert_eq!(metric_names(&filtered), (10..=19).map(|i| format!("task-{i}")).collect::<Vec<_>>(), "{filtered}");
    assert!(filtered.contains("metrics 10 of 40 with “TASK-1”"), "{filtered}");
}

#[test]
fn answer_to_a_load_command_replaces_the_keys_for_a_while() {
    let mut notice = Notice::of_load_change(&Ok(LoadChange::Level { before: 50.0, now: 55.0 }), LevelUnit::Rate);
    let run = live_run(&plan(), 12);
    let data = DashboardData { run: &run, cpu: 0.0, quit: OWN, notice: Some(&notice), colour: true };
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a test terminal");
    terminal.draw(|frame| draw(frame, &data, &mut DashboardState::default())).expect("a drawing");
    let screen = terminal.backend().to_string();
    assert!(screen.contains("55/s instead of 50/s, until the planned end"), "{screen}");
    assert!(notice.is_current(12.0));
    notice.shown(12.0);
    assert!(notice.is_current(15.0) && !notice.is_current(16.0));
}

#[test]
fn tall_dashboard_shows_every_panel() {
    let text = render((120, 36), 12, 0);
    for part in [
        "RUNNING",
        "0:12 / 0:30",
        "starts/s 40 of 50 planned",
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
        " q  stop",
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
        ((60, 36), vec!["requests", "p99", "360", "12", response, "cpu 34 %", "schedule lag p99 120 µs", " q  stop"]),
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
