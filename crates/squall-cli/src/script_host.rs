//! The interface to scenarios in a script language: how the command line opens, bundles and runs
//! them. Holds no language itself: squall-python implements [`ScriptHost`] inside Python,
//! `installed_python` implements it for the program without Python.

use squall_engine::Driver;
use squall_orchestrator::processes::ProcessIndex;
use squall_scenario::ScenarioOverrides;
use squall_streams::cli::{AppStreamSend, StreamWorkerArgs};
use squall_web::MakeResource;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use crate::{loaded_scenario::LoadedScenario, script_error::ScriptError};

/// A language whose scenarios this process can run.
pub trait ScriptHost: Clone + Send + Sync + 'static {
    type Driver: Driver;

    /// Loads and validates a scenario.
    fn open(&self, options: ScriptOptions) -> Result<LoadedScenario<Self::Driver>, ScriptError>;

    /// Loads a scenario in a fleet's worker, whose process must not be replaced by another program.
    fn open_in_worker(&self, options: ScriptOptions) -> Result<LoadedScenario<Self::Driver>, ScriptError> {
        self.open(options)
    }

    /// The files a worker needs to open the scenario, by path relative to the scenario's folder.
    /// The scenario itself is one of them.
    fn bundle(&self, file: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, ScriptError> {
        let bytes = std::fs::read(file).map_err(|error| ScriptError::Read { path: file.to_owned(), error })?;
        Ok([(file.file_name().map(PathBuf::from).unwrap_or_default(), bytes)].into())
    }

    /// What a scenario declares, for an orchestrator that offers it; `_scenario` if the file has several.
    fn describe(&self, _file: &Path, _scenario: Option<&str>) -> Result<ScriptDescription, ScriptError> {
        Ok(ScriptDescription::default())
    }

    /// Runs the stream processors of an app until they are stopped, and returns the exit code.
    fn run_stream_worker(&self, worker: &StreamWorkerArgs) -> Result<u8, ScriptError>;

    /// Sends records to a stream of an app, and returns the exit code.
    fn send_to_stream(&self, send: &AppStreamSend) -> Result<u8, ScriptError>;

    /// The interpreter that runs this program with `-m squall`; `None` if the program runs by
    /// itself.
    fn interpreter(&self) -> Option<PathBuf> {
        None
    }

    /// This command line again, for a further process of the same run. The caller appends
    /// arguments.
    fn process_command(&self) -> Option<Command> {
        None
    }

    /// Sends what scenarios print to standard error, because standard output carries a document.
    fn redirect_stdout_to_stderr(&self) {}

    /// Whether threads of one process run scenario code in parallel. `--processes` then starts
    /// threads instead of processes.
    fn is_free_threaded(&self) -> bool {
        false
    }
}

/// What a script scenario declares.
#[derive(Default)]
pub struct ScriptDescription {
    pub params: Vec<ScenarioParam>,
    /// Whether the scenario accepts parameters that are not listed.
    pub accepts_any_param: bool,
    /// Names of its resource pools.
    pub resources: Vec<String>,
    /// Names of its probes.
    pub probes: Vec<String>,
    /// Makes resources with the scenario's factories.
    pub make_resource: Option<Arc<MakeResource>>,
}

/// A parameter of a scenario; kind and annotation are in the words of its language.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioParam {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub annotation: Option<String>,
    /// JSON.
    pub default: Option<String>,
}

/// Which script scenario to open, and the settings of the command line for it.
#[derive(Debug, Clone)]
pub struct ScriptOptions {
    pub file: PathBuf,
    /// Settings that replace the scenario's own.
    pub overrides: ScenarioOverrides,
    /// Which scenario, if the file has several.
    pub scenario: Option<String>,
    /// Names and values for the scenario's own use.
    pub params: Vec<(String, String)>,
    /// How the scenario's code runs; the host decides if it is `None`.
    pub mode: Option<String>,
    /// Threads for code that blocks; the host decides if it is `None`.
    pub threads_for_blocking: Option<u16>,
    /// Which of the run's processes this is.
    pub part: ProcessIndex,
    /// The text of a requirements file of pip. The host checks that the packages are installed.
    pub requirements: Option<String>,
}
