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
            let until = self.printed_s + self.settings.interval_s;
            if !has_ended(until, seconds, live) {
                break;
            }
            let until = until.min(seconds);
            self.print_interval(view, until, live)?;
            self.printed_s = until;
        }
        Ok(())
    }

    /// Prints the interval that ends with the second `until`. The last second of a run may be shorter.
    fn print_interval(&mut self, view: &RunView, until: u32, live: &LiveStatus) -> Result<(), CliError> {
        let start = Duration::from_secs(u64::from(self.printed_s));
        let full = Duration::from_secs(u64::from(until));
        let end = if live.phase == LivePhase::Done { full.min(live.elapsed).max(start) } else { full };
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

/// Whether the interval that ends with the second `until` can be printed, when `seconds` are closed. A load that
/// ends closes its last second early; how long that second was is known at the end of the run.
fn has_ended(until: u32, seconds: u32, live: &LiveStatus) -> bool {
    match live.phase {
        LivePhase::Starting | LivePhase::WarmUp | LivePhase::Running => {
            until <= seconds && Duration::from_secs(u64::from(until)) <= live.elapsed
        }
        LivePhase::Draining => until < seconds,
        LivePhase::Done => true,
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
pub(super) mod tests;
