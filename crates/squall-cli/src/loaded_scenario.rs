//! A validated scenario with its driver: declarative (TOML or URL), or a script that its host
//! drives. Loads nothing itself: `run_settings` and the script hosts create it, the commands run
//! it.

mod local_run;

use squall_engine::Driver;
use squall_model::{Load, LoadModel, Plan, PoolContents, Profile};
use squall_orchestrator as orchestrator;
use squall_scenario::Scenario;
use squall_worker::ScenarioHooks;
use std::{process::Command, sync::Arc};

pub(crate) use local_run::{SET_UP_ENV, pool_error};

/// A validated scenario with its driver.
pub enum LoadedScenario<D> {
    /// Needs no script host at run time.
    Declarative {
        scenario: Scenario,
        /// Printed before the plan by `--check`: what the host found out about a script that needs
        /// no script code at run time.
        host_notice: String,
    },
    Script(ScriptScenario<D>),
}

/// A scenario that a script host drives.
pub struct ScriptScenario<D> {
    pub plan: Plan,
    /// The plan as `--check` prints it.
    pub description: String,
    /// Whether the HTTP client measures the phases of requests.
    pub phases: bool,
    /// Engine threads, unless `--threads` sets them.
    pub threads: usize,
    /// Makes a driver for one run.
    pub make_driver: Arc<dyn Fn() -> D>,
    /// The resource pools that the scenario declares.
    pub pools: Vec<PoolContents>,
    /// Set-up and tear-down, once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
    /// The command lines of the processes that share the load. Without them, this process makes all
    /// of it.
    pub process_commands: ProcessCommands,
    /// The scenarios and probes that run together. Empty if it is one scenario without probes;
    /// otherwise `plan` is the sum of the scenarios.
    pub concurrent: Vec<ConcurrentScenario<D>>,
}

/// One of several scenarios that run together.
pub struct ConcurrentScenario<D> {
    pub plan: Plan,
    pub threads: usize,
    pub make_driver: Arc<dyn Fn() -> D>,
    /// Whether it makes no load of its own, as probes do; it ends when the other scenarios have
    /// ended.
    pub background: bool,
}

/// Makes the command lines of a run's processes.
pub type ProcessCommands = Option<Arc<dyn Fn() -> Vec<Command>>>;

impl<D: Driver> LoadedScenario<D> {
    pub(crate) fn declarative(scenario: Scenario) -> LoadedScenario<D> {
        LoadedScenario::Declarative { scenario, host_notice: String::new() }
    }

    pub(crate) fn plan(&self) -> &Plan {
        match self {
            LoadedScenario::Declarative { scenario, .. } => &scenario.plan,
            LoadedScenario::Script(script) => &script.plan,
        }
    }

    /// The load of each scenario.
    pub(crate) fn loads(&self) -> Vec<&Load> {
        match self {
            LoadedScenario::Script(script) if script.has_multiple_scenarios() => {
                script.concurrent.iter().filter(|member| !member.background).map(|member| &member.plan.load).collect()
            }
            _ => vec![&self.plan().load],
        }
    }

    pub(crate) fn has_multiple_scenarios(&self) -> bool {
        match self {
            LoadedScenario::Declarative { .. } => false,
            LoadedScenario::Script(script) => script.has_multiple_scenarios(),
        }
    }

    /// The same scenario under another plan. Not for several scenarios, which have a plan each.
    pub(crate) fn with_plan(&self, plan: Plan) -> LoadedScenario<D> {
        match self {
            LoadedScenario::Declarative { scenario, host_notice } => {
                let mut scenario = scenario.clone();
                scenario.plan = plan;
                LoadedScenario::Declarative { scenario, host_notice: host_notice.clone() }
            }
            LoadedScenario::Script(script) => LoadedScenario::Script(script.with_plan(plan)),
        }
    }

    /// The plan as `--check` prints it.
    pub(crate) fn describe(&self) -> String {
        match self {
            LoadedScenario::Declarative { scenario, host_notice } => format!("{host_notice}{}", scenario.describe()),
            LoadedScenario::Script(script) => script.description.clone(),
        }
    }

    pub(crate) fn phases(&self) -> bool {
        match self {
            LoadedScenario::Declarative { scenario, .. } => scenario.http().record_phases,
            LoadedScenario::Script(script) => script.phases,
        }
    }

    /// Engine threads that suit the scenario; `None` leaves the number to the engine.
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            LoadedScenario::Declarative { .. } => None,
            LoadedScenario::Script(script) => Some(script.threads),
        }
    }

    /// The resource pools that the scenario declares.
    pub(crate) fn pools(&self) -> Vec<PoolContents> {
        match self {
            LoadedScenario::Declarative { scenario, .. } => scenario.pool_contents(),
            LoadedScenario::Script(script) => script.pools.clone(),
        }
    }

    pub(crate) fn hooks(&self) -> Option<Arc<dyn ScenarioHooks>> {
        match self {
            LoadedScenario::Declarative { .. } => None,
            LoadedScenario::Script(script) => script.hooks.clone(),
        }
    }
}

impl<D> ScriptScenario<D> {
    pub(crate) fn has_multiple_scenarios(&self) -> bool {
        self.concurrent.iter().filter(|member| !member.background).count() > 1
    }

    /// Every scenario and probe of the run; at least one.
    pub(crate) fn concurrent_scenarios(&self) -> Vec<ConcurrentScenario<D>> {
        match self.concurrent.is_empty() {
            true => {
                let (plan, make_driver) = (self.plan.clone(), self.make_driver.clone());
                vec![ConcurrentScenario { plan, threads: self.threads, make_driver, background: false }]
            }
            false => self.concurrent.clone(),
        }
    }

    fn with_plan(&self, plan: Plan) -> ScriptScenario<D> {
        let mut concurrent = self.concurrent.clone();
        for member in &mut concurrent {
            match member.background {
                true => member.match_duration(&plan),
                false => member.plan = plan.clone(),
            }
        }
        ScriptScenario {
            plan,
            description: self.description.clone(),
            phases: self.phases,
            threads: self.threads,
            make_driver: self.make_driver.clone(),
            pools: self.pools.clone(),
            hooks: self.hooks.clone(),
            process_commands: self.process_commands.clone(),
            concurrent,
        }
    }
}

impl<D> ConcurrentScenario<D> {
    /// Makes it last as long as `plan` does.
    fn match_duration(&mut self, plan: &Plan) {
        let LoadModel::Closed { users, .. } = &mut self.plan.load.model else { return };
        if let Ok(longer) = Profile::constant(users.peak(), plan.duration()) {
            *users = longer;
        }
    }

    /// The scenario with a driver for one run.
    pub(crate) fn instantiate(&self) -> orchestrator::PlannedScenario<D> {
        orchestrator::PlannedScenario {
            plan: self.plan.clone(),
            driver: (self.make_driver)(),
            threads: self.threads,
            background: self.background,
        }
    }
}

impl<D> Clone for ConcurrentScenario<D> {
    fn clone(&self) -> Self {
        ConcurrentScenario {
            plan: self.plan.clone(),
            threads: self.threads,
            make_driver: self.make_driver.clone(),
            background: self.background,
        }
    }
}
