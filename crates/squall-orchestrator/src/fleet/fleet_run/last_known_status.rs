//! What the command line last knew of a fleet run, and the partial result that it makes of it when
//! no leader has stored a result. It reads nothing from the store. Used by `RunWatch`.

use squall_coord::FleetStores;
use squall_model::{
    Bundle, FleetEvent, FleetEventKind, FleetFacts, GeneratorStats, Plan, RunFacts, RunSpec, StopReason,
    protocol::RunNotes,
};
use std::time::Duration;

use super::unix_ms;
use crate::{
    fleet::{FleetStatus, RunAggregator},
    local_run::RunResult,
};

/// The latest values that polls of the fleet have returned.
#[derive(Debug, Default)]
pub(super) struct LastKnownStatus {
    elapsed: Duration,
    started_unix_ms: Option<u64>,
    cpu_s: f64,
    rss_bytes: u64,
    threads: u32,
    spec: Option<RunSpec>,
}

impl LastKnownStatus {
    pub(super) fn update(&mut self, status: &FleetStatus, elapsed: Duration) {
        let workers = &status.workers;
        let started_unix_ms = status.spec.as_ref().and_then(|spec| spec.start_at_ms);
        self.elapsed = elapsed;
        self.started_unix_ms = started_unix_ms.or(self.started_unix_ms);
        self.cpu_s = workers.iter().map(|worker| worker.cpu_s).sum::<f64>().max(self.cpu_s);
        self.rss_bytes = workers.iter().map(|worker| worker.max_rss_bytes).max().unwrap_or(0).max(self.rss_bytes);
        self.threads = workers.iter().map(|worker| worker.threads).sum::<u32>().max(self.threads);
        self.spec.clone_from(&status.spec);
    }

    /// The plan with the load that was asked for in the end, in a run whose load ended at `end`.
    pub(super) fn plan(&self, planned: &Plan, end: Duration) -> Plan {
        let mut plan = planned.clone();
        if let Some(spec) = &self.spec {
            plan.load.model.set_profile(spec.profile_until(end));
        }
        plan
    }

    /// The run as far as it is known here; `reason` says why the leader's result is missing.
    pub(super) fn into_result<C: FleetStores>(
        self,
        mut aggregator: RunAggregator<C>,
        bundle: &Bundle,
        reason: &str,
    ) -> RunResult {
        let plan = self.plan(&bundle.plan, self.elapsed);
        let LastKnownStatus { elapsed, started_unix_ms, cpu_s, rss_bytes, threads, .. } = self;
        aggregator.end_unfinished_workers_with_notes(elapsed, started_unix_ms.is_some(), &RunNotes::default());
        let text = format!("{reason}; the result ends here, and workers may have sent more requests since");
        aggregator.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Other, text));
        let workers = aggregator.worker_facts(elapsed, u64::MAX);
        let view = aggregator.final_view().unwrap_or_else(|| aggregator.view().clone());
        let measured = elapsed.saturating_sub(bundle.plan.load.warm_up);
        // 0 missed starts means unknown here: only the leader computes them.
        let facts = RunFacts {
            started_unix_ms: started_unix_ms.unwrap_or_else(unix_ms),
            active: elapsed,
            elapsed,
            stop: StopReason::Aborted,
            thresholds: aggregator.judge().clone().final_results(&view, measured),
            generator: GeneratorStats { threads, cpu_s, max_rss_bytes: rss_bytes, ..GeneratorStats::default() },
            lost_at_most: workers.iter().map(|worker| worker.lost_at_most).sum(),
            events: Vec::new(),
            fleet: Some(FleetFacts { workers, events: aggregator.events(), missed_starts: 0 }),
        };
        RunResult { plan, view, facts }
    }
}
