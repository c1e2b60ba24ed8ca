//! What is run: a declared scenario, or one that a host of another language opens (Python's). The command line is the same for both;
//! only who drives the users differs.

use squall_engine::{Driver, DriverError, EngineError};
use squall_metrics::{ErrorNote, MetricKey, Outcome, OutcomeCategory};
use squall_model::{Load, LoadModel, Plan, PoolContents, Profile};
use squall_orchestrator::{
    self as orchestrator, RunControl, RunError, RunObserver, RunOptions, RunResult,
    processes::{self, ProcessIndex},
    run_local, run_scenarios, run_with_generator,
};
use squall_scenario::{Scenario, ScenarioDriver, ScenarioOverrides};
use squall_streams::cli::StreamWorkerArgs;
use squall_worker::{PoolFillError, PoolSlice, ScenarioHooks, serve_local_pools};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// A language whose scenarios this process can run.
pub trait ScriptHost: Clone + Send + Sync + 'static {
    type Driver: Driver;

    /// Reads a scenario and judges all of it. The message of a refusal is for people and says what to do.
    fn open(&self, script: ScriptRequest) -> Result<LoadedScenario<Self::Driver>, String>;

    /// The same in a process that must stay what it is: a worker of a fleet.
    fn open_in_worker(&self, script: ScriptRequest) -> Result<LoadedScenario<Self::Driver>, String> {
        self.open(script)
    }

    /// Everything that has to travel with a scenario so that it can be opened elsewhere, by the path relative to its folder. The
    /// scenario itself is among it.
    fn bundle(&self, file: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
        let bytes = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok([(file.file_name().map(PathBuf::from).unwrap_or_default(), bytes)].into())
    }

    /// The parameters that a scenario takes, and whether it takes others too.
    fn params(&self, _file: &Path) -> Result<(Vec<ScenarioParam>, bool), String> {
        Ok((Vec::new(), false))
    }

    /// Runs the stream processors of an app until they are stopped, and gives the exit code.
    fn run_stream_worker(&self, worker: &StreamWorkerArgs) -> Result<u8, String>;

    /// The program that runs this one with `-m squall`, if it is not one by itself.
    fn interpreter(&self) -> Option<PathBuf> {
        None
    }

    /// This very command line once more, for a further process of the same run; what is added to it comes last.
    fn process_command(&self) -> Option<Command> {
        None
    }

    /// From now on standard output carries a document: what the scenarios print goes to standard error.
    fn redirect_stdout_to_stderr(&self) {}

    /// Whether threads of one process run its code at the same time, so that nobody needs several processes.
    fn is_free_threaded(&self) -> bool {
        false
    }
}

/// A parameter of a scenario, in the words of its language.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioParam {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub annotation: Option<String>,
    /// JSON.
    pub default: Option<String>,
}

/// A scenario in another language, as the command line names it.
#[derive(Debug, Clone)]
pub struct ScriptRequest {
    pub file: PathBuf,
    /// What the flags change.
    pub overrides: ScenarioOverrides,
    /// Which of several scenarios in the file.
    pub scenario: Option<String>,
    /// `name=value`, for the scenario's own use.
    pub params: Vec<(String, String)>,
    /// How it is to be run, if that is not left to the host.
    pub mode: Option<String>,
    /// Which of several processes of the run this is.
    pub part: ProcessIndex,
    /// What must be installed, as pip writes it down.
    pub requirements: Option<String>,
}

/// A validated scenario with its driver.
pub enum LoadedScenario<D> {
    /// Needs no host at run time.
    Declarative {
        scenario: Scenario,
        /// What the host has to say about it, before the plan.
        host_notice: String,
    },
    Script(ScriptScenario<D>),
}

/// A scenario that its host drives.
pub struct ScriptScenario<D> {
    pub plan: Plan,
    /// The plan in words.
    pub description: String,
    /// Whether times per phase are kept.
    pub phases: bool,
    /// Engine threads, unless the command line says otherwise.
    pub threads: usize,
    /// Makes a driver for one run.
    pub make_driver: Arc<dyn Fn() -> D>,
    /// The pools that it declares.
    pub pools: Vec<PoolContents>,
    /// What it does once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
    /// The command lines of the processes that share the load; this process makes it alone if there are none.
    pub process_commands: ProcessCommands,
    /// What runs on one timeline, if that is more than the one scenario. `plan` then stands for all of it.
    pub concurrent: Vec<ConcurrentScenario<D>>,
}

/// One of several that run on one timeline.
pub struct ConcurrentScenario<D> {
    pub plan: Plan,
    pub threads: usize,
    pub make_driver: Arc<dyn Fn() -> D>,
    /// Makes no load of its own: it ends when the others have.
    pub background: bool,
}

impl<D> ScriptScenario<D> {
    /// Whether it is more than one scenario.
    pub(crate) fn has_multiple_scenarios(&self) -> bool {
        self.concurrent.iter().filter(|member| !member.background).count() > 1
    }

    /// Everything that runs on its timeline; one member if it is one scenario.
    pub(crate) fn concurrent_scenarios(&self) -> Vec<ConcurrentScenario<D>> {
        match self.concurrent.is_empty() {
            true => {
                let (plan, make_driver) = (self.plan.clone(), self.make_driver.clone());
                vec![ConcurrentScenario { plan, threads: self.threads, make_driver, background: false }]
            }
            false => self.concurrent.clone(),
        }
    }

    /// The same under another plan, which what follows it goes along with. Several scenarios have a plan each, and are never given another.
    fn with_plan(&self, plan: Plan) -> ScriptScenario<D> {
        let mut together = self.concurrent.clone();
        for member in &mut together {
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
            concurrent: together,
        }
    }
}

impl<D> ConcurrentScenario<D> {
    /// Lets it last as long as `plan` does.
    fn match_duration(&mut self, plan: &Plan) {
        let LoadModel::Closed { users, .. } = &mut self.plan.load.model else { return };
        if let Ok(longer) = Profile::constant(users.peak(), plan.duration()) {
            *users = longer;
        }
    }

    /// It for one run.
    pub(crate) fn instantiate(&self) -> orchestrator::PlannedScenario<D> {
        let ConcurrentScenario { plan, threads, make_driver: driver, background: follows } = self;
        orchestrator::PlannedScenario { plan: plan.clone(), driver: driver(), threads: *threads, background: *follows }
    }
}

impl<D> Clone for ConcurrentScenario<D> {
    fn clone(&self) -> Self {
        let ConcurrentScenario { plan, threads, make_driver: driver, background: follows } = self;
        ConcurrentScenario { plan: plan.clone(), threads: *threads, make_driver: driver.clone(), background: *follows }
    }
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
            LoadedScenario::Script(hosted) => &hosted.plan,
        }
    }

    /// The loads that it makes: one for each scenario.
    pub(crate) fn loads(&self) -> Vec<&Load> {
        match self {
            LoadedScenario::Script(hosted) if hosted.has_multiple_scenarios() => {
                hosted.concurrent.iter().filter(|member| !member.background).map(|member| &member.plan.load).collect()
            }
            _ => vec![&self.plan().load],
        }
    }

    /// Whether it is more than one scenario.
    pub(crate) fn has_multiple_scenarios(&self) -> bool {
        match self {
            LoadedScenario::Declarative { .. } => false,
            LoadedScenario::Script(hosted) => hosted.has_multiple_scenarios(),
        }
    }

    /// The same program under another plan.
    pub(crate) fn with_plan(&self, plan: Plan) -> LoadedScenario<D> {
        match self {
            LoadedScenario::Declarative { scenario, host_notice: remark } => {
                let mut scenario = scenario.clone();
                scenario.plan = plan;
                LoadedScenario::Declarative { scenario, host_notice: remark.clone() }
            }
            LoadedScenario::Script(hosted) => LoadedScenario::Script(hosted.with_plan(plan)),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            LoadedScenario::Declarative { scenario, host_notice: remark } => format!("{remark}{}", scenario.describe()),
            LoadedScenario::Script(hosted) => hosted.description.clone(),
        }
    }

    pub(crate) fn phases(&self) -> bool {
        match self {
            LoadedScenario::Declarative { scenario, .. } => scenario.http().record_phases,
            LoadedScenario::Script(hosted) => hosted.phases,
        }
    }

    /// Engine threads that suit it; `None` leaves it to the engine.
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            LoadedScenario::Declarative { .. } => None,
            LoadedScenario::Script(hosted) => Some(hosted.threads),
        }
    }

    /// The pools that it declares.
    pub(crate) fn pools(&self) -> Vec<PoolContents> {
        match self {
            LoadedScenario::Declarative { scenario, .. } => scenario.pool_contents(),
            LoadedScenario::Script(hosted) => hosted.pools.clone(),
        }
    }

    /// What it does once for the whole run.
    pub(crate) fn hooks(&self) -> Option<Arc<dyn ScenarioHooks>> {
        match self {
            LoadedScenario::Declarative { .. } => None,
            LoadedScenario::Script(hosted) => hosted.hooks.clone(),
        }
    }

    pub(crate) async fn run(
        &self,
        mut options: RunOptions,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, RunError> {
        let (lender, lending) = serve_local_pools(&self.pools(), PoolSlice::ALL).await.map_err(pool_error)?;
        options.resources = Some(lender);
        let made = self.set_up().await?;
        let mut finished = self.run_with_setup(options, control, observers, made.as_deref()).await;
        if let (Some(made), Some(hooks)) = (made, self.hooks()) {
            // What was measured is told in any case.
            if let Err(reason) = run_hook(move || hooks.tear_down(&made)).await {
                crate::terminal::print_stderr(format!("tear-down failed: {reason}\n"));
                if let Ok(finished) = &mut finished {
                    finished.view.errors.push(tear_down_error_note(reason));
                }
            }
        }
        // The pools end with the run, whatever is still held.
        lending.abort();
        finished
    }

    /// Sets the run up, if the scenario does; gives what that made.
    async fn set_up(&self) -> Result<Option<String>, RunError> {
        let Some(hooks) = self.hooks() else { return Ok(None) };
        let made = run_hook(move || {
            let made = hooks.set_up()?;
            hooks.apply_set_up_data(&made).map(|()| made)
        });
        made.await.map(Some).map_err(|reason| driver_error(DriverError::SetUp { reason }))
    }

    async fn run_with_setup(
        &self,
        options: RunOptions,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
        made: Option<&str>,
    ) -> Result<RunResult, RunError> {
        match self {
            LoadedScenario::Declarative { scenario, .. } => {
                run_local(&scenario.plan, scenario.driver(), options, control, observers).await
            }
            LoadedScenario::Script(ScriptScenario { plan, process_commands: Some(commands), .. }) => {
                let mut commands = commands();
                if let Some(made) = made {
                    for command in &mut commands {
                        command.env(SET_UP_ENV, made);
                    }
                }
                let crew = processes::GeneratorProcesses::start(commands).await?;
                run_with_generator(plan, crew, options, control, observers).await
            }
            LoadedScenario::Script(hosted) if !hosted.concurrent.is_empty() => {
                let members = hosted.concurrent.iter().map(ConcurrentScenario::instantiate).collect();
                run_scenarios(&hosted.plan, members, options, control, observers).await
            }
            LoadedScenario::Script(hosted) => {
                run_local(&hosted.plan, (hosted.make_driver)(), options, control, observers).await
            }
        }
    }
}

/// Why there is nothing to borrow from; the names of pools have been looked at before.
pub(crate) fn pool_error(error: PoolFillError) -> RunError {
    driver_error(DriverError::Pools { reason: error.to_string() })
}

/// What remains to be seen to: it fails nothing that was measured.
fn tear_down_error_note(message: String) -> ErrorNote {
    let outcome = Outcome::new(OutcomeCategory::Exception, "TEAR_DOWN_FAILED");
    ErrorNote { metric: Arc::new(MetricKey::group("tear_down")), outcome, message, count: 1 }
}

fn driver_error(error: DriverError) -> RunError {
    RunError::Engine(EngineError::Driver(error))
}

/// Where a run's processes find what its set-up made.
pub(crate) const SET_UP_ENV: &str = "SQUALL_SET_UP";

/// Runs code of the scenario's beside the loop.
async fn run_hook<T: Send + 'static>(act: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(act).await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The host of the plain program: it has no Python of its own and hands the whole command line to the installed package.
#[derive(Clone)]
pub(crate) struct InstalledPython {
    pub(crate) arguments: Vec<OsString>,
}

impl ScriptHost for InstalledPython {
    type Driver = ScenarioDriver;

    fn open(&self, script: ScriptRequest) -> Result<LoadedScenario<ScenarioDriver>, String> {
        Err(self.exec_python().unwrap_or_else(|| not_installed_message(&script.file)))
    }

    fn open_in_worker(&self, script: ScriptRequest) -> Result<LoadedScenario<ScenarioDriver>, String> {
        let file = script.file.display();
        Err(format!(
            "{file} is a Python scenario, and this worker is the plain program. Start it inside Python instead: \
             python3 -m squall worker …"
        ))
    }

    fn run_stream_worker(&self, worker: &StreamWorkerArgs) -> Result<u8, String> {
        let missing = || {
            format!(
                "{} is a Python app, and python3 has no package squall.\n  \
                 Install it where python3 finds it (in Squall's source folder: pip install .), then repeat this command.",
                worker.app
            )
        };
        Err(self.exec_python().unwrap_or_else(missing))
    }
}

impl InstalledPython {
    /// Becomes `python3 -m squall` with the same arguments. Returns only if that cannot be: why, or `None` without the package.
    fn exec_python(&self) -> Option<String> {
        let installed = Command::new("python3").args(["-c", "import squall._squall"]).output();
        installed.is_ok_and(|answer| answer.status.success()).then(|| {
            let mut python = Command::new("python3");
            python.args(["-m", "squall"]).args(self.arguments.iter().skip(1));
            // Only a failure returns.
            let failure = std::os::unix::process::CommandExt::exec(&mut python);
            format!("cannot start python3 -m squall: {failure}")
        })
    }
}

fn not_installed_message(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} is a Python scenario, and python3 has no package squall.\n  \
         Install it where python3 finds it (in Squall's source folder: pip install .), then repeat this command.\n  \
         URLs and .toml scenarios need no Python."
    )
}
