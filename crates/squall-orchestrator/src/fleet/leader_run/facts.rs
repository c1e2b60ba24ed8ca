//! The facts of a finished run: why it ended, what each worker contributed, and what is missing.
//! Sums only; the leader stores them.

use squall_coord::FleetStores;
use squall_metrics::RunView;
use squall_model::{FleetEvent, FleetEventKind, FleetFacts, GeneratorStats, LoadModel, RunFacts, RunSpec, StopReason};
use std::time::Duration;

use super::LeaderRun;
use crate::fleet::planned_load::{planned_load_end, planned_loads, queued_starts_end, starts_due_before};

impl<C: FleetStores> LeaderRun<C> {
    /// `load_end` is when the load was over, if workers have noted it. `missed` is the number of
    /// iterations that no worker made, and `begun` the number that can have begun, where these are
    /// known.
    pub(super) fn run_facts(
        &self,
        view: &RunView,
        spec: &RunSpec,
        (elapsed, load_end): (Duration, Option<Duration>),
        (missed, begun): (Option<u64>, Option<u64>),
    ) -> RunFacts {
        let (plan, roster) = (&self.bundle.plan, self.aggregator.roster());
        let planned = planned_load_end(&self.bundle, spec).max(queued_starts_end(&self.bundle, spec));
        let active = load_end.unwrap_or_else(|| self.stopped_at.unwrap_or(elapsed).min(planned));
        let stop = spec.stop.as_ref().map_or(StopReason::Completed, |stop| match stop.abort {
            true => StopReason::Aborted,
            false => stop.reason,
        });
        let (threads, cpu_s) = roster.generator_usage();
        let max_rss_bytes = roster.workers.values().map(|entry| entry.max_rss_bytes).max().unwrap_or(0);
        let saturated_because = self.aggregator.saturation_reasons_at(plan, view, elapsed, stop);
        let unreported = self.max_unreported_requests(view, begun);
        let lost_by_announcements: u64 =
            roster.workers.keys().map(|instance| self.aggregator.lost_at_most(*instance)).sum();
        let lost_at_most = lost_by_announcements.min(unreported);
        let stop_message = spec.stop.as_ref().and_then(|stop| stop.message.clone());
        let stopped = stop_message.map(|text| FleetEvent::new(active.as_secs_f64(), FleetEventKind::Stopped, text));
        let events = self.aggregator.events().into_iter().chain(stopped);
        RunFacts {
            started_unix_ms: spec.start_at_ms.unwrap_or(0),
            active,
            elapsed,
            stop,
            thresholds: self.aggregator.judge().clone().final_results(view, active.saturating_sub(plan.load.warm_up)),
            generator: GeneratorStats {
                threads,
                cpu_s,
                max_rss_bytes,
                saturated: !saturated_because.is_empty(),
                saturated_because,
            },
            lost_at_most,
            events: Vec::new(),
            fleet: Some(FleetFacts {
                workers: self.aggregator.worker_facts(active, unreported),
                events: events.collect(),
                missed_starts: missed.unwrap_or_else(|| self.missed_starts(view, spec, active)),
            }),
        }
    }

    /// Most requests that workers can have sent without reporting them, if `begun` iterations can
    /// have begun. No iteration begins twice.
    fn max_unreported_requests(&self, view: &RunView, begun: Option<u64>) -> u64 {
        let (Some(each), Some(begun)) = (self.aggregator.max_requests_per_iteration(), begun) else { return u64::MAX };
        let accounting = view.accounting();
        begun.saturating_mul(each).saturating_sub(accounting.recorded.saturating_sub(accounting.unsent))
    }

    /// The most starts of an open load that workers can have made before `at`, including the
    /// warm-up. Unknown after a change of the rate: a worker that reads the change late makes starts
    /// at the old rate until then, and these may be more.
    pub(super) fn starts_due_by(&self, at: Duration, spec: &RunSpec) -> Option<u64> {
        let load = &self.bundle.plan.load;
        let is_open = matches!(load.model, LoadModel::Open { .. });
        let as_planned = !self.bundle.has_multiple_scenarios() && spec.profile == *load.model.profile();
        (is_open && as_planned).then(|| starts_due_before(load, &spec.profile, self.bundle.plan.seed, at))
    }

    /// Starts of an open load that were due and were reported neither as made nor as dropped. 0 if a
    /// load is closed, because the number of due starts is then unknown.
    ///
    /// After a change of the rate, the profile in the record decides what was due. A worker that
    /// reads the change late makes starts at the old rate until then. Too few starts count as
    /// missed, and too many hide as many missed ones. This is acceptable, because a worker reads a
    /// change before it takes effect unless the store is slow or a Pub/Sub message is lost, and
    /// because this number is no bound.
    /// The upper bound `lost_at_most` needs [`LeaderRun::starts_due_by`].
    fn missed_starts(&self, view: &RunView, spec: &RunSpec, active: Duration) -> u64 {
        let mut planned = 0;
        for (load, profile) in planned_loads(&self.bundle, spec) {
            // Users of a closed load decide when to start.
            if !matches!(load.model, LoadModel::Open { .. }) {
                return 0;
            }
            let due = |at: Duration| starts_due_before(load, profile, self.bundle.plan.seed, at);
            planned += due(active).saturating_sub(due(load.warm_up));
        }
        planned.saturating_sub(view.engine.iterations + view.engine.dropped)
    }
}
