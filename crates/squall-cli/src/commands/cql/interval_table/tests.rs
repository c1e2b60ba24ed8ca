//! Tables of views that a test makes second by second.

use super::super::output_log::LogPlace;
use super::*;
use squall_cql::{CqlCommand, UserProfile, Workload, parse_command_line};
use squall_metrics::{
    Collector, Delta, MetricKey, MetricKind, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId,
};
use squall_model::{Load, LoadModel, Pause, Profile};

/// The metrics of a second, each with samples in milliseconds.
type Second<'s> = &'s [(&'s str, &'s [u64])];

/// The lines of the table of these seconds at the end of a run, and whether the table ends the run.
fn print(words: &[&str], seconds: &[Second<'_>], elapsed: Duration) -> (Vec<String>, bool) {
    print_in(&[LivePhase::Done], words, seconds, elapsed)
}

/// The table is updated once in each of the phases.
fn print_in(phases: &[LivePhase], words: &[&str], seconds: &[Second<'_>], elapsed: Duration) -> (Vec<String>, bool) {
    let Ok(CqlCommand::Stress(settings)) = parse_command_line(words) else { panic!("{words:?}") };
    let profile = "keyspace: shop\ntable: cars\nqueries: {by_id: {cql: select 1}}";
    let profiles = vec![UserProfile::parse("p.yaml", profile).expect("a profile")];
    let workload = Workload::new(&settings.command.operation, profiles).expect("the operations exist");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.log");
    let place = LogPlace { quiet: false, stdout_is_taken: false };
    let mut log = OutputLog::open(Some(&path), place).expect("a file");
    let control = RunControl::new();
    let shown = TableSettings {
        pacing: settings.rate.pacing,
        stop: settings.command.stop,
        interval_s: 1,
        header_every: None,
        visible: true,
    };
    let mut table = IntervalTable::new(shown, &mut log, None, control.clone(), (RunCounts::new(&workload), None));
    let view = view(seconds);
    let users = Profile::constant(1.0, Duration::from_secs(60)).expect("a profile");
    let plan = Plan {
        name: String::new(),
        target: String::new(),
        load: Load {
            model: LoadModel::Closed { users, pause: Pause::NONE },
            iterations: None,
            warm_up: Duration::ZERO,
        },
        tasks: Vec::new(),
        thresholds: Vec::new(),
        seed: 0,
    };
    for phase in phases {
        let live = LiveStatus {
            elapsed,
            phase: *phase,
            level_now: 1.0,
            planned_end: elapsed,
            resumes_at: None,
            cpu_s: 0.0,
            rss_bytes: 0,
            busy_users: 0,
            thresholds: Vec::new(),
        };
        table.on_update(&plan, &view, &live);
    }
    let ended = table.ended;
    table.finish().expect("the table is printed");
    let text = std::fs::read_to_string(path).expect("the table is written");
    (text.lines().skip(1).map(str::to_owned).collect(), ended)
}

/// What a run of these seconds has measured.
pub(in super::super) fn view(seconds: &[Second<'_>]) -> RunView {
    let source = SourceId { instance: 0, thread: 0 };
    let mut collector = Collector::new([source], 30);
    for (second, metrics) in seconds.iter().enumerate() {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        for (name, samples) in *metrics {
            let kind = if name.contains(':') { MetricKind::Custom } else { MetricKind::Request };
            let metric = recorder.metric(MetricKey { kind, ..MetricKey::request(*name) });
            for millis in *samples {
                let service = Duration::from_millis(*millis);
                let (wait, outcome, due_in_warm_up) = (Duration::ZERO, Outcome::of_status(200), false);
                recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, due_in_warm_up });
            }
        }
        let (metrics, errors, engine) = recorder.harvest(1, 0);
        let (seq, last) = (second as u64, second + 1 == seconds.len());
        let delta = Delta { source, seq, second: second as u32, metrics, errors, engine, last };
        collector.merge(delta).expect("deltas in order");
    }
    collector.finish()
}

/// The cells of a line after its type.
fn cells(line: &str) -> Vec<&str> {
    line.split(',').skip(1).map(str::trim).collect()
}

#[test]
fn partitions_and_rows_are_those_of_the_interval() {
    let words = ["user", "profile=p.yaml", "ops(insert=1,by_id=1)", "duration=3s", "-rate", "threads=1"];
    let first: Second<'_> = &[
        ("insert", &[1, 1]),
        ("insert:partitions", &[2, 2]),
        ("insert:rows", &[10, 10]),
        ("by_id", &[1]),
        ("by_id:partitions", &[1]),
        ("by_id:rows", &[3]),
    ];
    let second: Second<'_> = &[("insert", &[1]), ("insert:partitions", &[4]), ("insert:rows", &[50])];
    let (lines, _) = print(&words, &[first, second], Duration::from_secs(2));
    let figures: Vec<(&str, Vec<&str>)> =
        lines.iter().map(|line| (line.split(',').next().unwrap_or_default(), cells(line)[1..4].to_vec())).collect();
    let expected = [
        ("by_id", vec!["1", "1", "3"]),
        ("insert", vec!["2", "4", "20"]),
        ("total", vec!["3", "5", "23"]),
        ("insert", vec!["1", "4", "50"]),
        ("total", vec!["1", "4", "50"]),
    ];
    assert_eq!(figures, expected);
}

#[test]
fn intervals_without_operations_count_for_the_standard_error() {
    let words = ["write", "err<0.2", "n>3", "n<200", "-rate", "threads=1"];
    let (busy, idle): (Second<'_>, Second<'_>) = (&[("WRITE", &[1, 1])], &[]);
    let (lines, ended) = print(&words, &[busy, idle, busy, busy], Duration::from_secs(4));
    let errors: Vec<&str> = lines.iter().map(|line| cells(line)[11]).collect();
    assert_eq!(errors, ["0.00000", "0.50000", "0.33333"], "{lines:?}");
    assert!(!ended, "the rate is not known well enough");
    assert!(print(&words, &[busy, busy, busy, busy], Duration::from_secs(4)).1);
}

#[test]
fn only_the_last_interval_is_shorter_than_the_others() {
    let words = ["write", "duration=9s", "-rate", "threads=1"];
    let busy: Second<'_> = &[("WRITE", &[1, 1])];
    let figures = |phases: &[LivePhase], millis| {
        let (lines, _) = print_in(phases, &words, &[busy, busy], Duration::from_millis(millis));
        lines.iter().map(|line| [cells(line)[1].to_owned(), cells(line)[10].to_owned()]).collect::<Vec<_>>()
    };
    let (running, draining, done) = (LivePhase::Running, LivePhase::Draining, LivePhase::Done);
    assert_eq!(figures(&[running], 1500), [["2", "1.0"]], "the load of n= ends in the phase Running");
    assert_eq!(figures(&[draining], 2300), [["2", "1.0"]], "the last second may be a part of one");
    assert_eq!(figures(&[running], 2001), [["2", "1.0"], ["2", "2.0"]]);
    assert_eq!(figures(&[running, draining, done], 1500), [["2", "1.0"], ["4", "1.5"]]);
}

#[test]
fn a_run_ends_when_a_worker_finds_all_partitions_used() {
    let words = ["user", "profile=p.yaml", "ops(insert=1)", "n=1000", "-rate", "threads=1"];
    let working: Second<'_> = &[("insert", &[1]), ("insert:partitions", &[100])];
    let used: Second<'_> = &[("iterations:unused", &[1])];
    assert!(!print(&words, &[working], Duration::from_secs(1)).1);
    assert!(print(&words, &[working, used], Duration::from_secs(2)).1);
}
