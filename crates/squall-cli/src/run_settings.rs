//! The settings of one run: the scenario, and what the flags change about it. It checks that the
//! flags fit the kind of scenario; squall-scenario validates their values when `load` is called. A
//! fleet's bundle carries the settings in JSON, so that a worker loads the same scenario without a
//! command line. Reads no files of the scenario: `load` takes them from its caller, `commands::run`
//! or `bundle`.

use serde::{Deserialize, Serialize};
use squall_engine::Driver;
use squall_orchestrator::processes::ProcessIndex;
use squall_scenario::{Scenario, ScenarioFiles, ScenarioOverrides, SourceLocation, Sourced, UrlRequest};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    args::RunArgs, command_line::without_credentials, exit::CliError, flag_settings, loaded_scenario::LoadedScenario,
    run_input::RunInput, script_error::ScriptError, script_host::ScriptOptions,
};

/// The target that `--check` and the orchestrator assume for a script without one: nothing is sent.
pub(crate) const CHECK_TARGET: &str = "http://no-target-yet.invalid";

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunSettings {
    pub(crate) source: ScenarioSource,
    /// What the flags change about the scenario.
    pub(crate) overrides: ScenarioOverrides,
}

/// Where the scenario comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ScenarioSource {
    Url(Box<UrlRequest>),
    Toml { file: String, text: String },
    Script(ScriptSource),
}

/// A script and the flags that only scripts have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptSource {
    pub(crate) file: PathBuf,
    /// Which scenario, if the file has several.
    pub(crate) scenario: Option<String>,
    /// How the script's tasks run; the script host decides if it is `None`.
    pub(crate) mode: Option<String>,
    /// Threads for plain functions that block; the script host decides if it is `None`.
    #[serde(default)]
    pub(crate) threads_for_blocking: Option<u16>,
    /// The text of the requirements file.
    pub(crate) requirements: Option<String>,
}

impl RunSettings {
    /// Takes the settings from `args`. Rejects flags that do not fit the kind of scenario, but validates
    /// no values. `read_text` reads the scenario and the requirements.
    pub(crate) fn from_args(
        input: &RunInput,
        args: &RunArgs,
        read_text: impl Fn(&Path) -> Result<String, CliError>,
    ) -> Result<RunSettings, CliError> {
        let mut overrides = flag_settings::overrides(args)?;
        let source = match input {
            RunInput::Url(_) if args.target.is_some() => {
                let text = "--target replaces the base URL of a scenario file: leave it out, or change the URL";
                return Err(CliError::new(text));
            }
            RunInput::Url(url) => {
                if args.output.show_values && overrides.name.is_none() {
                    overrides.name = Some(Sourced::from_flag("--show-values", without_credentials(url)));
                }
                ScenarioSource::Url(Box::new(flag_settings::url_request(
                    url,
                    &args.request,
                    &mut overrides.flag_errors,
                )))
            }
            RunInput::ScenarioFile(path) => {
                overrides.flag_errors.extend(misplaced_flag(path, args));
                ScenarioSource::Toml { file: path.display().to_string(), text: read_text(path)? }
            }
            RunInput::Script(path) => {
                overrides.flag_errors.extend(misplaced_flag(path, args));
                overrides.placeholder_target = args.check.then_some(CHECK_TARGET);
                let requirements = args.script.requirements.as_deref().map(&read_text).transpose()?;
                let (scenario, mode) = (args.script.scenario.clone(), flag_settings::script_mode(args));
                let mode = mode.map(str::to_owned);
                let threads_for_blocking = args.script.threads_for_blocking;
                let file = path.clone();
                ScenarioSource::Script(ScriptSource { file, scenario, mode, threads_for_blocking, requirements })
            }
        };
        match flag_settings::script_only_flag(args) {
            Some(flag) if !matches!(source, ScenarioSource::Script(_)) => {
                Err(CliError::new(format!("{flag} is for Python scenarios: leave it out, or run a .py file")))
            }
            _ => Ok(RunSettings { source, overrides }),
        }
    }

    /// Loads the scenario with its files out of `files`; `open` opens a script.
    pub(crate) fn load<D: Driver>(
        self,
        params: BTreeMap<String, String>,
        part: ProcessIndex,
        files: &mut dyn ScenarioFiles,
        open: impl FnOnce(ScriptOptions) -> Result<LoadedScenario<D>, ScriptError>,
    ) -> Result<LoadedScenario<D>, CliError> {
        let RunSettings { source, mut overrides } = self;
        let variable = |(name, value): (String, String)| (name, Sourced::from_flag("--param", value));
        let scenario = match source {
            ScenarioSource::Script(ScriptSource { file, scenario, mode, threads_for_blocking, requirements }) => {
                check_flag_errors(&overrides)?;
                let params = params.into_iter().collect();
                let options =
                    ScriptOptions { file, overrides, scenario, params, mode, threads_for_blocking, part, requirements };
                return Ok(open(options)?);
            }
            ScenarioSource::Url(request) => {
                overrides.variables = params.into_iter().map(variable).collect();
                Scenario::from_url(*request, files, overrides)
            }
            ScenarioSource::Toml { file, text } => {
                overrides.variables = params.into_iter().map(variable).collect();
                Scenario::parse(&file, &text, files, overrides)
            }
        };
        scenario.map(LoadedScenario::declarative).map_err(|errors| CliError::new(errors.to_string()))
    }
}

/// A flag that describes the one request of `squall run URL`, given with a file.
fn misplaced_flag(path: &Path, args: &RunArgs) -> Option<Sourced<String>> {
    let flag = flag_settings::url_only_flag(&args.request)?;
    let path = path.display();
    Some(Sourced::from_flag(flag, format!("it belongs to `squall run URL`; {path} has its own requests")))
}

/// Script hosts do not report flag errors; declarative scenarios report them with their own.
fn check_flag_errors(overrides: &ScenarioOverrides) -> Result<(), CliError> {
    let text = |error: &Sourced<String>| match &error.location {
        SourceLocation::Flag(flag) => format!("{flag}: {}", error.value),
        SourceLocation::File(_) | SourceLocation::Code(_) | SourceLocation::Unknown => error.value.clone(),
    };
    let errors: Vec<String> = overrides.flag_errors.iter().map(text).collect();
    if errors.is_empty() { Ok(()) } else { Err(CliError::new(errors.join("\n"))) }
}
