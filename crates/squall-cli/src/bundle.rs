//! Builds the bundle of a fleet run and opens it on a worker. The bundle holds the validated
//! settings and every file that the scenario reads, so a worker needs neither a command line nor
//! the files. Runs nothing: `squall run --cluster`, `squall test start` and the orchestrator build
//! bundles, the worker opens them.

#[cfg(feature = "cql")]
mod cql_source;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use squall_engine::{Driver, PlannedScenario};
use squall_model::{Bundle, BundleVersion, EncodedSettings, EngineLimits, Load, LoadModel};
use squall_scenario::{BundledFiles, DiskFiles, RecordingFiles, Sourced};
use squall_worker::{OpenBundleError, RunnableBundle};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    any_driver::AnyDriver,
    args::RunArgs,
    commands::run::{read_text, run_options, schedule_rule},
    exit::CliError,
    flag_settings::{self, ONLY_PROCESS},
    input_files::{self, TrackedFiles},
    loaded_scenario::LoadedScenario,
    run_input::RunInput,
    run_settings::{RunSettings, ScenarioSource},
    script_host::ScriptHost,
};

#[cfg(feature = "cql")]
pub(crate) use cql_source::{CqlSource, ProfileFile, workload};

/// Largest bundle: the encoded files and the settings together.
const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// Prefix of a file that the scenario reads; its name follows.
const DATA_FILE_PREFIX: &str = "file:";

/// Prefix of a file that a script imports; its path relative to the script's folder follows.
const MODULE_PREFIX: &str = "module:";

/// Bundles what `squall run` with these `args` would run. Also returns the description of the plan.
pub(crate) fn build<H: ScriptHost>(input: &RunInput, args: &RunArgs, host: &H) -> Result<(Bundle, String), CliError> {
    let mut settings = RunSettings::from_args(input, args, read_text)?;
    let params = flag_settings::parse_params(args)?;
    let mut files = match input {
        RunInput::Url(_) => DiskFiles::relative_to_working_dir(),
        RunInput::ScenarioFile(path) | RunInput::Script(path) => DiskFiles::relative_to_scenario(path),
    };
    let read = RefCell::default();
    let mut recorder = RecordingFiles::new(TrackedFiles::new(&mut files, &read));
    let scenario = settings.clone().load(params.clone(), ONLY_PROCESS, &mut recorder, |script| host.open(script))?;
    let (data_files, env) = recorder.into_parts();
    input_files::reject_outputs_over_inputs(input, args, read.into_inner(), host)?;
    flag_settings::reject_unused_flags(args, &scenario.loads())?;
    let together = concurrent_loads(&scenario)?;
    let mut files: BTreeMap<String, String> = data_files
        .into_iter()
        .map(|(name, bytes)| (format!("{DATA_FILE_PREFIX}{name}"), STANDARD.encode(bytes)))
        .collect();
    if let ScenarioSource::Script(script) = &mut settings.source {
        for (path, bytes) in host.bundle(&script.file)? {
            files.insert(format!("{MODULE_PREFIX}{}", path.display()), STANDARD.encode(bytes));
        }
        // The worker unpacks the script's folder elsewhere.
        script.file = script.file.file_name().map(PathBuf::from).unwrap_or_default();
    }
    // All workers use the seed that was drawn here.
    settings.overrides.seed = Some(Sourced::from_flag("--seed", scenario.plan().seed));
    check_size(&files, &settings)?;
    let encoded = EncodedSettings::encode(&settings)
        .map_err(|error| CliError::new(format!("the settings of the run cannot be sent to workers: {error}")))?;
    let bundle = Bundle {
        version: BundleVersion,
        plan: scenario.plan().clone(),
        settings: encoded,
        params,
        files,
        env,
        limits: EngineLimits {
            // Without `--threads`, each worker chooses for its own machine.
            threads: args.engine.threads.map(usize::from),
            ..run_options(&args.engine, &scenario).limits
        },
        hooks: scenario.hooks().is_some(),
        together,
        schedule_rule: schedule_rule(args),
    };
    Ok((bundle, scenario.describe()))
}

fn check_size(files: &BTreeMap<String, String>, settings: &RunSettings) -> Result<(), CliError> {
    let text = match &settings.source {
        ScenarioSource::Toml { text, .. } => text.len(),
        ScenarioSource::Url(_) | ScenarioSource::Script(_) => 0,
    };
    let size = text + files.values().map(String::len).sum::<usize>();
    match size > MAX_BUNDLE_BYTES {
        true => Err(CliError::new(format!(
            "the scenario and its files are {} MiB; a fleet takes up to {} MiB: use smaller data files",
            size >> 20,
            MAX_BUNDLE_BYTES >> 20
        ))),
        false => Ok(()),
    }
}

/// The loads of several scenarios that run together; empty for one scenario.
fn concurrent_loads<D: Driver>(scenario: &LoadedScenario<D>) -> Result<Vec<Load>, CliError> {
    if !scenario.has_multiple_scenarios() {
        return Ok(Vec::new());
    }
    let loads: Vec<Load> = scenario.loads().into_iter().cloned().collect();
    let is_counted = |load: &Load| matches!(load.model, LoadModel::Closed { .. }) && load.iterations.is_some();
    match loads.iter().any(is_counted) {
        true => Err(CliError::new(
            "several scenarios on a fleet cannot have both a number of users and a number of iterations: give a \
             duration, or a rate with the number of iterations, or run one of them with --scenario",
        )),
        false => Ok(loads),
    }
}

/// Opens bundles on a worker.
pub(crate) struct BundleOpener<H> {
    script_host: H,
    /// The files of the latest run, which scripts may import from while they run.
    unpacked: Mutex<Option<UnpackedBundle>>,
}

impl<H: ScriptHost> BundleOpener<H> {
    pub(crate) fn new(host: H) -> BundleOpener<H> {
        BundleOpener { script_host: host, unpacked: Mutex::new(None) }
    }

    fn load_scenario(&self, bundle: &Bundle) -> Result<LoadedScenario<H::Driver>, CliError> {
        let mut settings: RunSettings = bundle.settings.decode().map_err(|error| {
            CliError::new(format!("the bundle's settings cannot be read: {error}; is this worker of another version?"))
        })?;
        let folder = UnpackedBundle::new(bundle)?;
        if let ScenarioSource::Script(script) = &mut settings.source {
            script.file = folder.path.join(script.file.file_name().unwrap_or_default());
        }
        let mut files = BundledFiles { files: folder.files.clone(), env: bundle.env.clone() };
        // A worker has one run at a time, so the files of the last run are removed here.
        *self.unpacked.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
        let open = |script| self.script_host.open_in_worker(script);
        settings.load(bundle.params.clone(), ONLY_PROCESS, &mut files, open)
    }
}

impl<H: ScriptHost> squall_worker::DriverFactory for BundleOpener<H> {
    type Driver = AnyDriver<H::Driver>;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<AnyDriver<H::Driver>>, OpenBundleError> {
        #[cfg(feature = "cql")]
        if let Some(source) = CqlSource::of(bundle) {
            return source.open(bundle);
        }
        let scenario = self.load_scenario(bundle).map_err(|error| OpenBundleError::Scenario(error.to_string()))?;
        if scenario.plan().tasks != bundle.plan.tasks {
            return Err(OpenBundleError::OtherTasks);
        }
        let (pools, hooks) = (scenario.pools(), scenario.hooks());
        let (mut scenarios, shared_counters) = match scenario {
            LoadedScenario::Declarative { scenario, .. } => {
                let (driver, shared_counters) = scenario.driver_with_shared_counters();
                let (plan, driver) = (scenario.plan, AnyDriver::Declarative(driver));
                (vec![PlannedScenario { plan, driver, threads: None, background: false }], shared_counters)
            }
            LoadedScenario::Script(script) => {
                let scenarios = script.instantiate().into_iter();
                (scenarios.map(|scenario| scenario.map_driver(AnyDriver::Script)).collect(), Vec::new())
            }
        };
        if let (Some(first), false) = (scenarios.first_mut(), bundle.has_multiple_scenarios()) {
            first.plan = bundle.plan.clone();
        }
        Ok(RunnableBundle { scenarios, pools, shared_counters, hooks })
    }
}

/// The files of a bundle, unpacked in a temporary folder. Dropping it removes the folder.
struct UnpackedBundle {
    path: PathBuf,
    /// The scenario's data files, by the names that the scenario uses.
    files: BTreeMap<String, PathBuf>,
}

impl Drop for UnpackedBundle {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove the files of a run");
        }
    }
}

impl UnpackedBundle {
    fn new(bundle: &Bundle) -> Result<UnpackedBundle, CliError> {
        // Created first: its drop removes the folder when a later step fails.
        let mut folder = UnpackedBundle { path: create_temp_folder()?, files: BTreeMap::new() };
        for (index, (name, content)) in bundle.files.iter().enumerate() {
            let path = if let Some(module) = name.strip_prefix(MODULE_PREFIX) {
                folder.path.join(checked_relative_path(module)?)
            } else if let Some(file) = name.strip_prefix(DATA_FILE_PREFIX) {
                // Numbered, because the scenario's own name may point outside the folder.
                let path = folder.path.join("files").join(index.to_string());
                folder.files.insert(file.to_owned(), path.clone());
                path
            } else {
                continue;
            };
            let bytes = decode(name, content)?;
            let write = || {
                fs::create_dir_all(path.parent().unwrap_or(&folder.path))?;
                fs::write(&path, bytes)
            };
            write().map_err(|error| CliError::file_error("write", &path, &error))?;
        }
        Ok(folder)
    }
}

fn decode(name: &str, content: &str) -> Result<Vec<u8>, CliError> {
    STANDARD
        .decode(content)
        .map_err(|_| CliError::new(format!("`{name}` in the bundle is not Base64: start the run again")))
}

/// Refuses a path that could leave the folder it is joined to.
fn checked_relative_path(path: &str) -> Result<&Path, CliError> {
    let path = Path::new(path);
    match path.components().all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(path),
        false => Err(CliError::new(format!("`{}` would be written outside the scenario's folder", path.display()))),
    }
}

fn create_temp_folder() -> Result<PathBuf, CliError> {
    let name = format!("squall-{}-{}", std::process::id(), squall_coord::unique_id());
    let path = std::env::temp_dir().join(name);
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700)
        .create(&path)
        .map_err(|error| CliError::file_error("create", &path, &error))?;
    Ok(path)
}

#[cfg(test)]
mod tests;
