//! Prints the table and the HdrHistogram log of a run, one interval after the other. It ends the run when its
//! rate is known well enough, or when a fleet has used all partitions or read all token ranges.

use squall_cql::{
    OperationCounts, Pacing, RateUncertainty, RunCounts, StopRule, TableRow, hdr_log_header, hdr_log_line, table_header,
};
use squall_metrics::{MetricView, RunView};
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus, RunControl, RunObserver};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    fleet_scan::{FleetScan, ScanProgress},
    output_log::{HdrLog, OutputLog},
    summary_text::{TOTAL, latencies, operations, rates, shown_latency},
};
use crate::exit::CliError;

/// How a run is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableSettings {
    pub(super) pacing: Pacing,
    pub(super) stop: StopRule,
    /// Whole seconds of one interval, at least 1.
    pub(super) interval_s: u32,
    pub(super) header_every: Option<u32>,
    /// Whether lines are printed.
    pub(super) visible: bool,
}

/// Prints the intervals of one run.
pub(super) struct IntervalTable<'o> {
    settings: TableSettings,
    log: &'o mut OutputLog,
    hdr: Option<&'o mut HdrLog>,
    /// Ends the run.
    control: RunControl,
    base_time: Option<Duration>,
    printed_s: u32,
    totals: BTreeMap<String, u64>,
    counts: RunCounts,
    uncertainty: RateUncertainty,
    /// The token ranges that a fleet reads.
    scan: Option<FleetScan>,
    unread_ranges: u64,
    /// Whether the end of the run was asked for.
    ended: bool,
    rows: u32,
    failure: Option<CliError>,
}

impl<'o> IntervalTable<'o> {
    pub(super) fn new(
        settings: TableSettings,
        log: &'o mut OutputLog,
        hdr: Option<&'o mut HdrLog>,
        control: RunControl,
        (counts, scan): (RunCounts, Option<FleetScan>),
    ) -> IntervalTable<'o> {
        IntervalTable {
            settings,
            log,
            hdr,
            control,
            base_time: None,
            printed_s: 0,
            totals: BTreeMap::new(),
            counts,
            uncertainty: RateUncertainty::default(),
            scan,
            unread_ranges: 0,
            ended: false,
            rows: 0,
            failure: None,
        }
    }

    /// Seconds of full histograms that the table needs: several seconds may close at once.
    pub(super) fn histogram_window_s(interval_s: u32) -> u32 {
        interval_s.saturating_add(30)
    }

    /// The token ranges whose workers were lost.
    pub(super) fn unread_ranges(&self) -> u64 {
        self.unread_ranges
    }

    /// The standard error of the rate, if everything was printed.
    pub(super) fn finish(self) -> Result<f64, CliError> {
        self.failure.map_or(Ok(self.uncertainty.standard_error()), Err)
    }

    fn print_closed_intervals(&mut self, view: &RunView, live: &LiveStatus) -> Result<(), CliError> {
        let seconds = view.timeline.len() as u32;
        while self.printed_s < seconds {
            let complete = self.printed_s + self.settings.interval_s <= seconds;
            if !complete && live.phase != LivePhase::Done {
                break;
            }
            let until = (self.printed_s + self.settings.interval_s).min(seconds);
            self.print_interval(view, until, live.elapsed)?;
            self.printed_s = until;
        }
        Ok(())
    }

    /// Prints the interval that ends with the second `until`. The last second of a run may be shorter.
    fn print_interval(&mut self, view: &RunView, until: u32, elapsed: Duration) -> Result<(), CliError> {
        let start = Duration::from_secs(u64::from(self.printed_s));
        let end = Duration::from_secs(u64::from(until)).min(elapsed).max(start);
        let (seconds, newer) = (until - self.printed_s, view.timeline.len() - until as usize);
        let window = |name: Option<&str>| view.window_before(name, seconds, newer);
        let Some(all) = window(None) else { return Ok(()) };
        // A partial second says little about the rate. An interval in which no operation ended says much.
        if (end - start).as_secs() >= u64::from(self.settings.interval_s) {
            let rates = rates(&all, OperationCounts::default(), end - start);
            self.uncertainty.record(rates.operations);
        }
        if all.requests == 0 {
            return Ok(());
        }
        let names: Vec<String> = operations(view).iter().map(|metric| metric.key.name.clone()).collect();
        for name in &names {
            let Some(interval) = window(Some(name)).filter(|interval| interval.requests > 0) else { continue };
            if names.len() > 1 {
                let counts =
                    self.counts.of_window(Some(name), interval.requests - interval.errors, |name| window(Some(name)));
                self.print_row(name, &interval, counts, (start, end))?;
            }
            self.write_histograms(name, &interval, start, end)?;
        }
        let counts = self.counts.of_window(None, all.requests - all.errors, |name| window(Some(name)));
        self.print_row(TOTAL, &all, counts, (start, end))
    }

    fn print_row(
        &mut self,
        name: &str,
        view: &MetricView,
        counts: OperationCounts,
        (start, end): (Duration, Duration),
    ) -> Result<(), CliError> {
        let total = self.totals.entry(name.to_owned()).or_default();
        *total += view.requests;
        let row = TableRow {
            name,
            total_operations: *total,
            rates: rates(view, counts, end - start),
            latencies: latencies(shown_latency(view, self.settings.pacing)),
            elapsed: end,
            standard_error: self.uncertainty.standard_error(),
            errors: view.errors,
        };
        if !self.settings.visible {
            return Ok(());
        }
        let repeat = self.settings.header_every.is_some_and(|every| self.rows.is_multiple_of(every));
        if self.rows == 0 || repeat {
            self.log.line(&table_header())?;
        }
        self.rows += 1;
        self.log.line(&row.line())
    }

    fn write_histograms(
        &mut self,
        name: &str,
        view: &MetricView,
        start: Duration,
        end: Duration,
    ) -> Result<(), CliError> {
        let (Some(hdr), Some(base)) = (&mut self.hdr, self.base_time) else { return Ok(()) };
        // The log counts from the full second in which the run began.
        let start_in_log = start + Duration::from_nanos(u64::from(base.subsec_nanos()));
        let scheduled = self.settings.pacing != Pacing::Unlimited;
        let response = scheduled.then_some(("rt", &view.response));
        let wait = scheduled.then_some(("wt", &view.wait));
        for (kind, histogram) in [Some(("st", &view.service)), response, wait].into_iter().flatten() {
            let tag = format!("{name}-{kind}");
            if let Some(line) = hdr_log_line(&tag, start_in_log, end - start, &histogram.to_hdr()) {
                hdr.write(&line)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), CliError> {
        if self.base_time.is_none() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.base_time = Some(now);
            if let Some(hdr) = &mut self.hdr {
                hdr.write(&hdr_log_header(now))?;
            }
        }
        Ok(())
    }
}

impl RunObserver for IntervalTable<'_> {
    fn on_update(&mut self, _: &Plan, view: &RunView, live: &LiveStatus) {
        let printed = self.begin().and_then(|()| self.print_closed_intervals(view, live));
        if let Err(error) = printed {
            self.failure.get_or_insert(error);
        }
        let scanned = self.scan.as_mut().map(|scan| scan.progress(&self.counts, view, live));
        if let (Some(ScanProgress::Lost(ranges)), LivePhase::Running) = (scanned, live.phase) {
            self.unread_ranges = ranges;
        }
        let ended = self.uncertainty.reached(&self.settings.stop)
            || RunCounts::all_used(view)
            || scanned.is_some_and(|scan| scan != ScanProgress::Reading);
        // Once: the run tells its observers about each request for its end.
        if ended && !std::mem::replace(&mut self.ended, true) {
            self.control.complete();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::output_log::LogPlace;
    use super::*;
    use squall_cql::{CqlCommand, UserProfile, Workload, parse_command_line};
    use squall_metrics::{
        Collector, Delta, MetricKey, MetricKind, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId,
    };
    use squall_model::{Load, LoadModel, Pause, Profile};

    /// The metrics of a second, each with samples in milliseconds.
    type Second<'s> = &'s [(&'s str, &'s [u64])];

    /// The lines of the table of these seconds, and whether the table ends the run.
    fn print(words: &[&str], seconds: &[Second<'_>], elapsed: Duration) -> (Vec<String>, bool) {
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
        let live = LiveStatus {
            elapsed,
            phase: LivePhase::Done,
            level_now: 1.0,
            planned_end: elapsed,
            resumes_at: None,
            cpu_s: 0.0,
            rss_bytes: 0,
            busy_users: 0,
            thresholds: Vec::new(),
        };
        table.on_update(&plan, &view, &live);
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
                    recorder.record(&Sample {
                        metric,
                        wait,
                        service,
                        outcome,
                        bytes_in: 0,
                        bytes_out: 0,
                        due_in_warm_up,
                    });
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
    fn a_run_ends_when_a_worker_finds_all_partitions_used() {
        let words = ["user", "profile=p.yaml", "ops(insert=1)", "n=1000", "-rate", "threads=1"];
        let working: Second<'_> = &[("insert", &[1]), ("insert:partitions", &[100])];
        let used: Second<'_> = &[("iterations:unused", &[1])];
        assert!(!print(&words, &[working], Duration::from_secs(1)).1);
        assert!(print(&words, &[working, used], Duration::from_secs(2)).1);
    }
}
