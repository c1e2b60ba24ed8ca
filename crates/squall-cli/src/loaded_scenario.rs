//! A validated scenario with its driver: declarative (TOML or URL), or a script that its host
//! drives. Loads nothing itself: `run_settings` and the script hosts create it, the commands run
//! it.

mod local_run;

use squall_engine::{Driver, PlannedScenario};
use squall_model::{Load, LoadModel, Plan, PoolContents, Profile};
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
    /// The plan of the run: that of its one scenario, or the sum of several.
    pub plan: Plan,
    /// The plan as `--check` prints it.
    pub description: String,
    /// Whether the HTTP client measures the phases of requests.
    pub phases: bool,
    /// The scenarios and probes that run together; at least one. The first is not a probe.
    pub scenarios: Vec<PlannedScenario<DriverMaker<D>>>,
    /// The resource pools that the scenario declares.
    pub pools: Vec<PoolContents>,
    /// Set-up and tear-down, once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
    /// The command lines of the processes that share the load. Without them, this process makes all
    /// of it.
    pub process_commands: ProcessCommands,
}

/// Makes a driver for one run.
pub type DriverMaker<D> = Arc<dyn Fn() -> D>;

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
                script.load_scenarios().map(|scenario| &scenario.plan.load).collect()
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
            LoadedScenario::Script(script) => script.scenarios.first().and_then(|first| first.threads),
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
    /// The scenarios without the probes.
    fn load_scenarios(&self) -> impl Iterator<Item = &PlannedScenario<DriverMaker<D>>> {
        self.scenarios.iter().filter(|scenario| !scenario.background)
    }

    pub(crate) fn has_multiple_scenarios(&self) -> bool {
        self.load_scenarios().count() > 1
    }

    /// Every scenario and probe, with a driver for one run.
    pub(crate) fn instantiate(&self) -> Vec<PlannedScenario<D>> {
        self.scenarios.iter().map(|scenario| scenario.clone().map_driver(|make_driver| make_driver())).collect()
    }

    fn with_plan(&self, plan: Plan) -> ScriptScenario<D> {
        let mut scenarios = self.scenarios.clone();
        for scenario in &mut scenarios {
            match scenario.background {
                true => match_duration(&mut scenario.plan, &plan),
                false => scenario.plan = plan.clone(),
            }
        }
        ScriptScenario {
            plan,
            description: self.description.clone(),
            phases: self.phases,
            scenarios,
            pools: self.pools.clone(),
            hooks: self.hooks.clone(),
            process_commands: self.process_commands.clone(),
        }
    }
}

/// Makes the plan of a probe last as long as `plan` does.
fn match_duration(probe: &mut Plan, plan: &Plan) {
    let LoadModel::Closed { users, .. } = &mut probe.load.model else { return };
    if let Ok(longer) = Profile::constant(users.peak(), plan.duration()) {
        *users = longer;
    }
}
