//! A run of `squall cql` on a fleet: what cannot run there, and the bundle that workers get. The workers
//! make the load; the machine that starts the run creates the schema and runs the warm-up.

use squall_cql::{Population, SequenceEnd, StopRule, StressSettings, Workload};
use squall_model::{Bundle, EncodedSettings, EngineLimits, Plan, ScheduleRule};
use squall_orchestrator::{RunControl, RunObserver, RunResult};

use crate::{args::FleetArgs, bundle::CqlSource, commands::run::run_bundle, exit::CliError, local_fleet_state};

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
    let revisits = settings.insert.has_revisits() && matches!(workload, Workload::Profiles(_));
    if revisits && sequence_limit(settings).is_some() {
        let reason = "how many operations the sequence makes is not known: give n= in place of no-wrap";
        return Err(CliError::new(format!("a fleet does not support no-wrap with -insert visits=: {reason}")));
    }
    Ok(())
}
