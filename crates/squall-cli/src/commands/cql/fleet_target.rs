//! A run of `squall cql` on a fleet: what cannot run there, the bundle that workers get, and what they have
//! missed. The workers make the load; the machine that starts the run creates the schema and runs the warm-up.

use squall_cql::{Population, RunCounts, SequenceEnd, StopRule, StressSettings, Workload};
use squall_model::{Bundle, EncodedSettings, EngineLimits, Plan, ScheduleRule, StopReason};
use squall_orchestrator::{FleetClient, FleetError, RunControl, RunObserver, RunResult, WorkerInfo};
use std::time::{Duration, Instant};

use crate::{
    args::FleetArgs, bundle::CqlSource, commands::run::run_bundle, exit::CliError, fleet_store, local_fleet_state,
    terminal,
};

/// How long workers that have just started may take to join.
const WORKER_START_TIMEOUT: Duration = Duration::from_secs(5);
const WORKER_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The fleet, and what its workers need besides the plan.
pub(super) struct FleetTarget {
    redis: String,
    fleet: String,
    settings: EncodedSettings,
    schedule_rule: ScheduleRule,
}

impl FleetTarget {
    /// `None` for a run in this process.
    pub(super) fn new(
        args: &FleetArgs,
        settings: &StressSettings,
        workload: &Workload,
        source: CqlSource,
    ) -> Result<Option<FleetTarget>, CliError> {
        let Some(redis) = args.cluster.clone() else { return Ok(None) };
        refuse_on_fleet(settings, workload)?;
        let (redis, fleet) = match redis.is_empty() {
            true => {
                let store = local_fleet_state::running_fleet_store()?;
                (store.redis, store.fleet)
            }
            false => (redis, args.fleet.clone()),
        };
        let settings = source.encode()?;
        Ok(Some(FleetTarget { redis, fleet, settings, schedule_rule: ScheduleRule::default() }))
    }

    /// The same, whose runs the API of the fleet judges by `schedule_rule`.
    pub(super) fn judged_by(self, schedule_rule: ScheduleRule) -> FleetTarget {
        FleetTarget { schedule_rule, ..self }
    }

    /// Waits for the store and for a worker, so that missing ones are known before anything is sent to the database.
    pub(super) async fn check(&self) -> Result<(), CliError> {
        let notify = |notice: &str| terminal::print_stderr(format!("{notice}\n"));
        let fleet = FleetClient::new(fleet_store::open(&self.redis, &self.fleet, notify).await?);
        let began = Instant::now();
        loop {
            // `run_fleet` reports a store that does not respond any more.
            let Ok(status) = fleet.status().await else { return Ok(()) };
            if status.workers.iter().any(WorkerInfo::is_healthy) {
                return Ok(());
            }
            if began.elapsed() >= WORKER_START_TIMEOUT {
                return Err(CliError::new(FleetError::NoWorkers.to_string()));
            }
            tokio::time::sleep(WORKER_CHECK_INTERVAL).await;
        }
    }

    /// Runs `plan` on the workers.
    pub(super) async fn run(
        &self,
        plan: &Plan,
        limits: EngineLimits,
        histogram_window_s: u32,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, CliError> {
        let (settings, schedule_rule) = (self.settings.clone(), self.schedule_rule);
        let bundle = Bundle { settings, schedule_rule, ..Bundle::new(plan.clone(), limits) };
        run_bundle((&self.redis, &self.fleet), &bundle, histogram_window_s, control, observers).await
    }
}

/// The number of operations after which a sequence that does not wrap has ended.
pub(super) fn sequence_limit(settings: &StressSettings) -> Option<u64> {
    match &settings.population.seeds {
        Population::Sequence { sequence, .. } if sequence.end == SequenceEnd::Stop => Some(sequence.count()),
        Population::Sequence { .. } | Population::Drawn(_) => None,
    }
}

/// Names the first option that only a run in one process can carry out.
fn refuse_on_fleet(settings: &StressSettings, workload: &Workload) -> Result<(), CliError> {
    let limited = matches!(settings.command.stop, StopRule::Partitions(_)) || sequence_limit(settings).is_some();
    if let Some(query) = workload.token_range_queries().next().filter(|_| limited) {
        let reason =
            "how many pages there are is not known: leave n= and no-wrap out, the run ends after the last range";
        return Err(CliError::new(format!("a fleet does not support n= with {query}, a token-range query: {reason}")));
    }
    if let (Population::Sequence { read_lookback: Some(_), .. }, Some(_)) =
        (&settings.population.seeds, sequence_limit(settings))
    {
        let reason = "reads that look back take no seed, so how many operations the sequence makes is not known: \
             give n= in place of no-wrap";
        return Err(CliError::new(format!("a fleet does not support no-wrap with read-lookback=: {reason}")));
    }
    let revisits = settings.insert.has_revisits() && matches!(workload, Workload::Profiles(_));
    if revisits && sequence_limit(settings).is_some() {
        let reason = "how many operations the sequence makes is not known: give n= in place of no-wrap";
        return Err(CliError::new(format!("a fleet does not support no-wrap with -insert visits=: {reason}")));
    }
    Ok(())
}

/// Counts the operations that a fleet has not made because the workers that had taken their seeds were lost:
/// the iterations for which no seed was left count as made.
pub(super) fn count_missed_operations(result: &mut RunResult, counts: &RunCounts) {
    let (view, facts) = (&result.view, &mut result.facts);
    let Some(limit) = result.plan.load.iterations.filter(|_| RunCounts::all_used(view)) else { return };
    if let (Some(fleet), StopReason::Completed) = (&mut facts.fleet, facts.stop) {
        let errors = view.all.errors;
        let made = counts.of_run(None, view.all.requests - errors, view).partitions + errors + view.engine.dropped;
        fleet.missed_starts = fleet.missed_starts.max(limit.saturating_sub(made));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::interval_table::tests::view, *};
    use squall_model::{FleetFacts, GeneratorStats, Load, LoadModel, Pause, Profile, RunFacts};

    #[track_caller]
    fn check(seconds: &[&[(&str, &[u64])]], known: u64, expected: u64) {
        let users = Profile::constant(1.0, Duration::from_secs(60)).expect("a profile");
        let model = LoadModel::Closed { users, pause: Pause::NONE };
        let load = Load { model, iterations: Some(10), warm_up: Duration::ZERO };
        let (name, target, tasks, thresholds) = Default::default();
        let second = Duration::from_secs(1);
        let fleet = Some(FleetFacts { workers: Vec::new(), events: Vec::new(), missed_starts: known });
        let facts = RunFacts {
            started_unix_ms: 0,
            active: second,
            elapsed: second,
            stop: StopReason::Completed,
            thresholds: Vec::new(),
            generator: GeneratorStats::default(),
            lost_at_most: 0,
            fleet,
            events: Vec::new(),
        };
        let plan = Plan { name, target, load, tasks, thresholds, seed: 0 };
        let mut result = RunResult { plan, view: view(seconds), facts };
        count_missed_operations(&mut result, &RunCounts::default());
        assert_eq!(result.facts.fleet.map(|fleet| fleet.missed_starts), Some(expected));
    }

    #[test]
    fn operations_whose_seeds_were_lost_are_missed() {
        let written: (&str, &[u64]) = ("WRITE", &[1, 1, 1, 1, 1, 1, 1]);
        check(&[&[written, ("iterations:unused", &[1, 1, 1])]], 0, 3);
        check(&[&[written, ("iterations:unused", &[1])]], 5, 5);
        check(&[&[written]], 2, 2);
    }
}
