//! Decides when the token-range queries of a fleet have ended: a worker knows only the ranges that it has
//! read itself. It stops nothing; the table does.

use squall_cql::{RunCounts, Workload};
use squall_metrics::RunView;
use squall_orchestrator::LiveStatus;
use std::time::Duration;

/// The token ranges that the workers read.
#[derive(Debug, Clone)]
pub(super) struct FleetScan {
    queries: Vec<String>,
    ranges: u64,
    /// A page that takes longer is read by a worker that was lost.
    longest_page: Duration,
    /// The pages read so far, and since when the workers could have read another one.
    pages: (u64, Duration),
}

/// How far the workers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanProgress {
    Reading,
    AllRead,
    /// The workers that had taken these ranges were lost.
    Lost(u64),
}

impl FleetScan {
    pub(super) fn new(workload: &Workload, ranges: u64, longest_page: Duration) -> FleetScan {
        let queries = workload.token_range_queries().map(str::to_owned).collect();
        FleetScan { queries, ranges, longest_page, pages: (0, Duration::ZERO) }
    }

    pub(super) fn progress(&mut self, counts: &RunCounts, view: &RunView, live: &LiveStatus) -> ScanProgress {
        let of_queries = view.metrics.iter().filter(|metric| self.queries.contains(&metric.key.name));
        let pages = of_queries.map(|metric| metric.requests).sum();
        // A paused run reads no page.
        if live.level_now <= 0.0 {
            self.restart_clock(live.elapsed);
        }
        self.observe(counts.ranges(view), pages, live.elapsed)
    }

    fn restart_clock(&mut self, elapsed: Duration) {
        self.pages.1 = elapsed;
    }

    fn observe(&mut self, read: u64, pages: u64, elapsed: Duration) -> ScanProgress {
        if read >= self.ranges {
            return ScanProgress::AllRead;
        }
        if pages != self.pages.0 {
            self.pages = (pages, elapsed);
        }
        match elapsed.saturating_sub(self.pages.1) > self.longest_page {
            true => ScanProgress::Lost(self.ranges - read),
            false => ScanProgress::Reading,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::Collector;
    use squall_orchestrator::LivePhase;

    #[test]
    fn a_scan_ends_when_all_ranges_are_read_or_no_page_comes_any_more() {
        let at = Duration::from_secs;
        let mut scan = FleetScan { queries: Vec::new(), ranges: 4, longest_page: at(12), pages: (0, at(0)) };
        assert_eq!(scan.observe(0, 0, at(12)), ScanProgress::Reading);
        assert_eq!(scan.observe(1, 9, at(13)), ScanProgress::Reading);
        assert_eq!(scan.observe(3, 40, at(25)), ScanProgress::Reading);
        assert_eq!(scan.observe(3, 40, at(38)), ScanProgress::Lost(1));
        assert_eq!(scan.observe(4, 41, at(39)), ScanProgress::AllRead);
    }

    #[test]
    fn a_paused_scan_has_lost_no_worker() {
        let at = Duration::from_secs;
        let mut scan = FleetScan { queries: Vec::new(), ranges: 4, longest_page: at(12), pages: (0, at(0)) };
        let (counts, collector) = (RunCounts::new(&Workload::Standard(Vec::new())), Collector::new([], 1));
        let mut progress = |seconds, level_now| {
            let live = LiveStatus {
                elapsed: at(seconds),
                phase: LivePhase::Running,
                level_now,
                planned_end: at(3600),
                resumes_at: None,
                cpu_s: 0.0,
                rss_bytes: 0,
                busy_users: 0,
                thresholds: Vec::new(),
            };
            scan.progress(&counts, collector.view(), &live)
        };
        assert_eq!(progress(10, 50.0), ScanProgress::Reading);
        assert_eq!(progress(11, 0.0), ScanProgress::Reading);
        assert_eq!(progress(100, 0.0), ScanProgress::Reading);
        assert_eq!(progress(112, 50.0), ScanProgress::Reading);
        assert_eq!(progress(113, 50.0), ScanProgress::Lost(4));
    }
}
