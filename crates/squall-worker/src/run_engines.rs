//! The engines of a worker's run before they are prepared: their settings, the requests that each
//! thread may send at first, and how iterations are limited. It starts nothing; `worker_run` calls
//! it.

use squall_engine::{
    Driver, EngineConfig, EngineSpec, NumberQuota, PlannedScenario, ResourceClient, SendPermit, SharedCounter,
};
use squall_model::{Bundle, EngineLimits, ITERATIONS_COUNTER, Load, LoadModel, Plan, Profile, ShareSet};
use std::time::Duration;

/// Requests of a thread of a closed model in the worker's first announcement, when the thread's
/// pace is unknown.
const INITIAL_BUDGET: u64 = 1000;
/// Users that pause get less: the requests that their pauses allow in this time, about as long as a
/// worker may work without the store.
const INITIAL_BUDGET_SECONDS: f64 = 5.0;
/// Requests of every thread beyond those that the load model predicts.
const MIN_INITIAL_BUDGET: u64 = 64;

/// Longer than any run.
const UNBOUNDED_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Most engine threads of one scenario.
const MAX_THREADS: usize = 1024;

/// How a run's number of iterations is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IterationLimit {
    Unlimited,
    /// By the schedule of an open load, or only in an additional scenario.
    Scheduled,
    /// Users of a closed load draw iterations from a shared counter, so no worker knows when the
    /// load ends.
    Drawn,
}

/// The engines of a run, one for each scenario, and what they share.
pub(crate) struct RunEngines<D> {
    pub(crate) specs: Vec<EngineSpec<D>>,
    pub(crate) send_permit: SendPermit,
    /// Requests that each thread of all engines may send before its pace is known.
    pub(crate) initial_budgets: Vec<u64>,
    /// Requests of one iteration, if the run has one scenario and its driver knows them.
    pub(crate) requests_per_iteration: Option<u64>,
    /// The counter from which the first scenario draws its iterations, if it does.
    pub(crate) iteration_counter: Option<SharedCounter>,
    pub(crate) iteration_limit: IterationLimit,
}

impl<D: Driver> RunEngines<D> {
    pub(crate) fn new(
        scenarios: Vec<PlannedScenario<D>>,
        bundle: &Bundle,
        instance: u64,
        resources: &ResourceClient,
    ) -> RunEngines<D> {
        let requests_per_iteration = match scenarios.as_slice() {
            [only] => only.driver.requests_per_iteration().map(|requests| requests.direct),
            _ => None,
        };
        let (quota, iteration_counter) = scenarios.first().and_then(|first| iteration_quota(&first.plan.load)).unzip();
        let plans = scenarios.iter().map(|scenario| &scenario.plan);
        let iteration_limit = IterationLimit::of(quota.is_some(), plans);
        let mut specs: Vec<_> = scenarios.into_iter().map(|one| engine_spec(one, bundle, instance)).collect();
        if let Some(first) = specs.first_mut() {
            first.config.iteration_quota = quota;
        }
        let initial_budgets: Vec<u64> = specs.iter().flat_map(|engine| initial_budgets(&engine.config)).collect();
        let send_permit = SendPermit::new(initial_budgets.len());
        for EngineSpec { config, .. } in &mut specs {
            config.send_permit = Some(send_permit.clone());
            config.resources = Some(resources.clone());
        }
        RunEngines { specs, send_permit, initial_budgets, requests_per_iteration, iteration_counter, iteration_limit }
    }

    /// The planned profile of each scenario.
    pub(crate) fn profiles(&self) -> Vec<Profile> {
        self.specs.iter().map(|engine| engine.config.load.model.profile().clone()).collect()
    }
}

impl IterationLimit {
    fn of<'a>(has_quota: bool, mut plans: impl Iterator<Item = &'a Plan>) -> IterationLimit {
        if has_quota {
            IterationLimit::Drawn
        } else if plans.any(|plan| plan.load.iterations.is_some()) {
            IterationLimit::Scheduled
        } else {
            IterationLimit::Unlimited
        }
    }
}

/// The quota of a closed load with an iteration limit. An open load has its limit in its schedule.
fn iteration_quota(load: &Load) -> Option<(NumberQuota, SharedCounter)> {
    let limit = load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))?;
    let (quota, refill) = NumberQuota::with_refill();
    Some((quota, SharedCounter { name: ITERATIONS_COUNTER.to_owned(), limit, refill }))
}

/// Requests that each thread may send before its pace is known. The clock sets the pace of an open
/// model.
fn initial_budgets(config: &EngineConfig) -> Vec<u64> {
    let budget = match &config.load.model {
        LoadModel::Closed { users, pause } if !pause.is_none() => {
            let per_user = 1.0 + INITIAL_BUDGET_SECONDS / pause.pick(0.5).as_secs_f64();
            let per_thread = users.peak() / config.threads as f64 * per_user;
            (MIN_INITIAL_BUDGET + per_thread.ceil() as u64).min(INITIAL_BUDGET)
        }
        LoadModel::Closed { .. } => INITIAL_BUDGET,
        LoadModel::Open { rate, .. } => MIN_INITIAL_BUDGET + (rate.peak() / config.threads as f64).ceil() as u64,
    };
    vec![budget; config.threads]
}

fn engine_spec<D>(scenario: PlannedScenario<D>, bundle: &Bundle, instance: u64) -> EngineSpec<D> {
    let PlannedScenario { driver, threads, mut plan, background } = scenario;
    if background && let LoadModel::Closed { users, .. } = &mut plan.load.model {
        // It ends with the other scenarios, and a pause may extend those beyond any planned time.
        let unbounded = Profile::constant(users.peak(), UNBOUNDED_DURATION);
        *users = unbounded.unwrap_or_else(|_| users.clone());
    }
    let mut config = engine_config(bundle, &plan, threads, instance);
    if background {
        config.threads = 1;
    }
    EngineSpec { driver, config, background }
}

/// The engine settings for `plan`, without send permit and resources.
fn engine_config(bundle: &Bundle, plan: &Plan, threads: Option<usize>, instance: u64) -> EngineConfig {
    let limits = EngineLimits { threads: bundle.limits.threads.or(threads), ..bundle.limits.clone() };
    let mut config = EngineConfig::with_limits(plan.load.clone(), plan.tasks.clone(), limits);
    config.threads = config.threads.min(MAX_THREADS);
    config.instance = instance;
    config.shares = ShareSet::NONE;
    config.seed = bundle.plan.seed;
    config
}
