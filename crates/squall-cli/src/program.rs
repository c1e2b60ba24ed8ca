//! What is run: a declared scenario, or one that a host of another language opens (Python's). The command line is the same for both;
//! only who drives the users differs.

use squall_engine::{Driver, DriverError, EngineError};
use squall_metrics::{OutcomeCategory, ErrorNote, MetricKey, Outcome};
use squall_model::{Load, LoadModel, Plan, Profile, PoolContents};
use squall_orchestrator::{
    self as orchestrator, Control, Finished, Observer, RunError, RunOptions,
    processes::{self, Part},
    run_crew, run_local, run_together,
};
use squall_scenario::{Overrides, Scenario, ScenarioDriver};
use squall_streams::cli::WorkerArgs;
use squall_worker::{Hooks, Portion, StockError, lend_here};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// A language whose scenarios this process can run.
pub trait Host: Clone + Send + Sync + 'static {
    type Driver: Driver;

    /// Reads a scenario and judges all of it. The message of a refusal is for people and says what to do.
    fn open(&self, script: Script) -> Result<Program<Self::Driver>, String>;

    /// The same in a process that must stay what it is: a worker of a fleet.
    fn open_here(&self, script: Script) -> Result<Program<Self::Driver>, String> {
        self.open(script)
    }

    /// Everything that has to travel with a scenario so that it can be opened elsewhere, by the path relative to its folder. The
    /// scenario itself is among it.
    fn bundle(&self, file: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
        let bytes = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok([(file.file_name().map(PathBuf::from).unwrap_or_default(), bytes)].into())
    }

    /// The parameters that a scenario takes, and whether it takes others too.
    fn params(&self, _file: &Path) -> Result<(Vec<Param>, bool), String> {
        Ok((Vec::new(), false))
    }

    /// Runs the stream processors of an app until they are stopped, and gives the exit code.
    fn work(&self, worker: &WorkerArgs) -> Result<u8, String>;

    /// The program that runs this one with `-m squall`, if it is not one by itself.
    fn interpreter(&self) -> Option<PathBuf> {
        None
    }

    /// This very command line once more, for a further process of the same run; what is added to it comes last.
    fn again(&self) -> Option<Command> {
        None
    }

    /// From now on standard output carries a document: what the scenarios print goes to standard error.
    fn leave_stdout(&self) {}

    /// Whether threads of one process run its code at the same time, so that nobody needs several processes.
    fn has_free_threads(&self) -> bool {
        false
    }
}

/// A parameter of a scenario, in the words of its language.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub annotation: Option<String>,
    /// JSON.
    pub default: Option<String>,
}

/// A scenario in another language, as the command line names it.
#[derive(Debug, Clone)]
pub struct Script {
    pub file: PathBuf,
    /// What the flags change.
    pub overrides: Overrides,
    /// Which of several scenarios in the file.
    pub scenario: Option<String>,
    /// `name=value`, for the scenario's own use.
    pub params: Vec<(String, String)>,
    /// How it is to be run, if that is not left to the host.
    pub mode: Option<String>,
    /// Which of several processes of the run this is.
    pub part: Part,
    /// What must be installed, as pip writes it down.
    pub requirements: Option<String>,
}

/// A validated scenario with its driver.
pub enum Program<D> {
    /// Needs no host at run time.
    Declared {
        scenario: Scenario,
        /// What the host has to say about it, before the plan.
        remark: String,
    },
    Hosted(Hosted<D>),
}

/// A scenario that its host drives.
pub struct Hosted<D> {
    pub plan: Plan,
    /// The plan in words.
    pub description: String,
    /// Whether times per phase are kept.
    pub phases: bool,
    /// Engine threads, unless the command line says otherwise.
    pub threads: usize,
    /// Makes a driver for one run.
    pub driver: Arc<dyn Fn() -> D>,
    /// The pools that it declares.
    pub stock: Vec<PoolContents>,
    /// What it does once for the whole run.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// The command lines of the processes that share the load; this process makes it alone if there are none.
    pub processes: Processes,
    /// What runs on one timeline, if that is more than the one scenario. `plan` then stands for all of it.
    pub together: Vec<Member<D>>,
}

/// One of several that run on one timeline.
pub struct Member<D> {
    pub plan: Plan,
    pub threads: usize,
    pub driver: Arc<dyn Fn() -> D>,
    /// Makes no load of its own: it ends when the others have.
    pub follows: bool,
}

impl<D> Hosted<D> {
    /// Whether it is more than one scenario.
    pub(crate) fn is_several(&self) -> bool {
        self.together.iter().filter(|member| !member.follows).count() > 1
    }

    /// Everything that runs on its timeline; one member if it is one scenario.
    pub(crate) fn members(&self) -> Vec<Member<D>> {
        match self.together.is_empty() {
            true => {
                let (plan, driver) = (self.plan.clone(), self.driver.clone());
                vec![Member { plan, threads: self.threads, driver, follows: false }]
            }
            false => self.together.clone(),
        }
    }

    /// The same under another plan, which what follows it goes along with. Several scenarios have a plan each, and are never given another.
    fn with_plan(&self, plan: Plan) -> Hosted<D> {
        let mut together = self.together.clone();
        for member in &mut together {
            match member.follows {
                true => member.follow(&plan),
                false => member.plan = plan.clone(),
            }
        }
        Hosted {
            plan,
            description: self.description.clone(),
            phases: self.phases,
            threads: self.threads,
            driver: self.driver.clone(),
            stock: self.stock.clone(),
            hooks: self.hooks.clone(),
            processes: self.processes.clone(),
            together,
        }
    }
}

impl<D> Member<D> {
    /// Lets it last as long as `plan` does.
    fn follow(&mut self, plan: &Plan) {
        let LoadModel::Closed { users, .. } = &mut self.plan.load.model else { return };
        if let Ok(longer) = Profile::constant(users.peak(), plan.duration()) {
            *users = longer;
        }
    }

    /// It for one run.
    pub(crate) fn begin(&self) -> orchestrator::Member<D> {
        let Member { plan, threads, driver, follows } = self;
        orchestrator::Member { plan: plan.clone(), driver: driver(), threads: *threads, follows: *follows }
    }
}

impl<D> Clone for Member<D> {
    fn clone(&self) -> Self {
        let Member { plan, threads, driver, follows } = self;
        Member { plan: plan.clone(), threads: *threads, driver: driver.clone(), follows: *follows }
    }
}

/// Makes the command lines of a run's processes.
pub type Processes = Option<Arc<dyn Fn() -> Vec<Command>>>;

impl<D: Driver> Program<D> {
    pub(crate) fn declared(scenario: Scenario) -> Program<D> {
        Program::Declared { scenario, remark: String::new() }
    }

    pub(crate) fn plan(&self) -> &Plan {
        match self {
            Program::Declared { scenario, .. } => &scenario.plan,
            Program::Hosted(hosted) => &hosted.plan,
        }
    }

    /// The loads that it makes: one for each scenario.
    pub(crate) fn loads(&self) -> Vec<&Load> {
        match self {
            Program::Hosted(hosted) if hosted.is_several() => {
                hosted.together.iter().filter(|member| !member.follows).map(|member| &member.plan.load).collect()
            }
            _ => vec![&self.plan().load],
        }
    }

    /// Whether it is more than one scenario.
    pub(crate) fn is_several(&self) -> bool {
        match self {
            Program::Declared { .. } => false,
            Program::Hosted(hosted) => hosted.is_several(),
        }
    }

    /// The same program under another plan.
    pub(crate) fn with_plan(&self, plan: Plan) -> Program<D> {
        match self {
            Program::Declared { scenario, remark } => {
                let mut scenario = scenario.clone();
                scenario.plan = plan;
                Program::Declared { scenario, remark: remark.clone() }
            }
            Program::Hosted(hosted) => Program::Hosted(hosted.with_plan(plan)),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Program::Declared { scenario, remark } => format!("{remark}{}", scenario.describe()),
            Program::Hosted(hosted) => hosted.description.clone(),
        }
    }

    pub(crate) fn phases(&self) -> bool {
        match self {
            Program::Declared { scenario, .. } => scenario.http().record_phases,
            Program::Hosted(hosted) => hosted.phases,
        }
    }

    /// Engine threads that suit it; `None` leaves it to the engine.
    pub(crate) fn threads(&self) -> Option<usize> {
        match self {
            Program::Declared { .. } => None,
            Program::Hosted(hosted) => Some(hosted.threads),
        }
    }

    /// The pools that it declares.
    pub(crate) fn stock(&self) -> Vec<PoolContents> {
        match self {
            Program::Declared { scenario, .. } => scenario.stock(),
            Program::Hosted(hosted) => hosted.stock.clone(),
        }
    }

    /// What it does once for the whole run.
    pub(crate) fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        match self {
            Program::Declared { .. } => None,
            Program::Hosted(hosted) => hosted.hooks.clone(),
        }
    }

    pub(crate) async fn run(
        &self,
        mut options: RunOptions,
        control: &Control,
        observers: &mut [&mut dyn Observer],
    ) -> Result<Finished, RunError> {
        let (lender, lending) = lend_here(&self.stock(), Portion::ALL).await.map_err(unstocked)?;
        options.lender = Some(lender);
        let made = self.set_up().await?;
        let mut finished = self.run_with(options, control, observers, made.as_deref()).await;
        if let (Some(made), Some(hooks)) = (made, self.hooks()) {
            // What was measured is told in any case.
            if let Err(reason) = hook(move || hooks.tear_down(&made)).await {
                crate::terminal::say(format!("tear-down failed: {reason}\n"));
                if let Ok(finished) = &mut finished {
                    finished.view.errors.push(tear_down_failed(reason));
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
        let made = hook(move || {
            let made = hooks.set_up()?;
            hooks.share(&made).map(|()| made)
        });
        made.await.map(Some).map_err(|reason| refused(format!("set-up failed: {reason}")))
    }

    async fn run_with(
        &self,
        options: RunOptions,
        control: &Control,
        observers: &mut [&mut dyn Observer],
        made: Option<&str>,
    ) -> Result<Finished, RunError> {
        match self {
            Program::Declared { scenario, .. } => {
                run_local(&scenario.plan, scenario.driver(), options, control, observers).await
            }
            Program::Hosted(Hosted { plan, processes: Some(commands), .. }) => {
                let mut commands = commands();
                if let Some(made) = made {
                    for command in &mut commands {
                        command.env(SET_UP, made);
                    }
                }
                let crew = processes::Processes::start(commands).await?;
                run_crew(plan, crew, options, control, observers).await
            }
            Program::Hosted(hosted) if !hosted.together.is_empty() => {
                let members = hosted.together.iter().map(Member::begin).collect();
                run_together(&hosted.plan, members, options, control, observers).await
            }
            Program::Hosted(hosted) => run_local(&hosted.plan, (hosted.driver)(), options, control, observers).await,
        }
    }
}

/// Why there is nothing to borrow from; the names of pools have been looked at before.
pub(crate) fn unstocked(error: StockError) -> RunError {
    refused(error.to_string())
}

/// What remains to be seen to: it fails nothing that was measured.
fn tear_down_failed(message: String) -> ErrorNote {
    let outcome = Outcome::new(OutcomeCategory::Exception, "TEAR_DOWN_FAILED");
    ErrorNote { metric: Arc::new(MetricKey::group("tear_down")), outcome, message, count: 1 }
}

fn refused(reason: String) -> RunError {
    RunError::Engine(EngineError::Driver(DriverError(reason)))
}

/// Where a run's processes find what its set-up made.
pub(crate) const SET_UP: &str = "SQUALL_SET_UP";

/// Runs code of the scenario's beside the loop.
async fn hook<T: Send + 'static>(act: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(act).await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The host of the plain program: it has no Python of its own and hands the whole command line to the installed package.
#[derive(Clone)]
pub(crate) struct InstalledPython {
    pub(crate) arguments: Vec<OsString>,
}

impl Host for InstalledPython {
    type Driver = ScenarioDriver;

    fn open(&self, script: Script) -> Result<Program<ScenarioDriver>, String> {
        Err(self.hand_over().unwrap_or_else(|| not_installed(&script.file)))
    }

    fn open_here(&self, script: Script) -> Result<Program<ScenarioDriver>, String> {
        let file = script.file.display();
        Err(format!(
            "{file} is a Python scenario, and this worker is the plain program. Start it inside Python instead: \
             python3 -m squall worker …"
        ))
    }

    fn work(&self, worker: &WorkerArgs) -> Result<u8, String> {
        let missing = || {
            format!(
                "{} is a Python app, and python3 has no package squall.\n  \
                 Install it where python3 finds it (in Squall's source folder: pip install .), then repeat this command.",
                worker.app
            )
        };
        Err(self.hand_over().unwrap_or_else(missing))
    }
}

impl InstalledPython {
    /// Becomes `python3 -m squall` with the same arguments. Returns only if that cannot be: why, or `None` without the package.
    fn hand_over(&self) -> Option<String> {
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

fn not_installed(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} is a Python scenario, and python3 has no package squall.\n  \
         Install it where python3 finds it (in Squall's source folder: pip install .), then repeat this command.\n  \
         URLs and .toml scenarios need no Python."
    )
}
