//! Prints the table and the HdrHistogram log of a run, one interval after the other. It ends the run when its
//! rate is known well enough, or when a fleet has read all token ranges.

use squall_cql::{
    OperationCounts, Pacing, RateUncertainty, RunCounts, StopRule, TableRow, hdr_log_header, hdr_log_line,
    labelled_line, table_header,
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
    summary_text::{latencies, operations, rates, shown_latency},
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
    /// Ends the run when its rate is known well enough, or when a fleet has read all token ranges.
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
    lines: Vec<String>,
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
            lines: Vec::new(),
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

    /// The lines of the table with the number of threads before them, for the end of a search.
    pub(super) fn into_lines(self, threads: u32) -> Result<Vec<String>, CliError> {
        let label = format!("{threads} threadCount");
        match self.failure {
            Some(error) => Err(error),
            None => Ok(self.lines.iter().map(|line| labelled_line(&label, LABEL_WIDTH, line)).collect()),
        }
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
        let window = |name| view.window_before(name, seconds, newer);
        let Some(all) = window(None).filter(|all| all.requests > 0) else { return Ok(()) };
        // A partial second says little about the rate.
        if (end - start).as_secs() >= u64::from(self.settings.interval_s) {
            let rates = rates(&all, OperationCounts::default(), end - start);
            self.uncertainty.record(rates.operations);
        }
        let names: Vec<String> = operations(view).iter().map(|metric| metric.key.name.clone()).collect();
        for name in &names {
            let Some(interval) = window(Some(name)).filter(|interval| interval.requests > 0) else { continue };
            if names.len() > 1 {
                self.print_row(name, &interval, start, end)?;
            }
            self.write_histograms(name, &interval, start, end)?;
        }
        self.print_row(TOTAL, &all, start, end)
    }

    fn print_row(&mut self, name: &str, view: &MetricView, start: Duration, end: Duration) -> Result<(), CliError> {
        let counts = self.counts.average((name != TOTAL).then_some(name), view.requests - view.errors);
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
        let line = row.line();
        let repeat = self.settings.header_every.is_some_and(|every| (self.lines.len() as u32).is_multiple_of(every));
        if self.settings.visible && (self.lines.is_empty() || repeat) {
            self.log.line(&table_header())?;
        }
        if self.settings.visible {
            self.log.line(&line)?;
        }
        self.lines.push(line);
        Ok(())
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

/// The row of all operations.
const TOTAL: &str = "total";
/// The width of `1000000 threadCount`.
pub(super) const LABEL_WIDTH: usize = 19;

impl RunObserver for IntervalTable<'_> {
    fn on_update(&mut self, _: &Plan, view: &RunView, live: &LiveStatus) {
        self.counts.follow(view);
        let printed = self.begin().and_then(|()| self.print_closed_intervals(view, live));
        if let Err(error) = printed {
            self.failure.get_or_insert(error);
        }
        let scanned = self.scan.as_mut().map(|scan| scan.progress(&self.counts, view, live));
        if let (Some(ScanProgress::Lost(ranges)), LivePhase::Running) = (scanned, live.phase) {
            self.unread_ranges = ranges;
        }
        let ended =
            self.uncertainty.reached(&self.settings.stop) || scanned.is_some_and(|scan| scan != ScanProgress::Reading);
        // Once: the run tells its observers about each request for its end.
        if ended && !std::mem::replace(&mut self.ended, true) {
            self.control.complete();
        }
    }
}
