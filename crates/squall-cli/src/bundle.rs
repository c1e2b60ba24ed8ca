//! Scenarios that travel: from a command line to a bundle with every file in it, and back to a driver on a worker.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Parser;
use squall_engine::Driver;
use squall_model::{Bundle, EngineLimits, Load, LoadModel};
use squall_scenario::{BundledFiles, DiskFiles, RecordingFiles};
use squall_worker::{AdditionalScenario, RunnableBundle};
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    any_driver::AnyDriver,
    args::{Cli, CliCommand, RunArgs},
    command_line,
    commands::run::{load_scenario_from, read_text, resolve_input, run_options},
    exit::CliError,
    loaded_scenario::{ConcurrentScenario, LoadedScenario, ScriptHost},
    run_input::RunInput,
    settings,
};

/// Largest bundle, all files together.
const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// The name of the scenario itself among a bundle's files.
const SCENARIO_FILE: &str = "scenario";

/// The name of what must be installed among a bundle's files.
const REQUIREMENTS_FILE: &str = "requirements";

/// Bundles what `squall run` with these `args` would run; also gives the plan in words.
pub(crate) fn build<H: ScriptHost>(what: &RunInput, args: &RunArgs, host: &H) -> Result<(Bundle, String), CliError> {
    let mut files = match what {
        RunInput::Url(_) => RecordingFiles::new(DiskFiles::relative_to_working_dir()),
        RunInput::ScenarioFile(path) | RunInput::Script(path) => {
            RecordingFiles::new(DiskFiles::relative_to_scenario(path))
        }
    };
    let program = load_scenario_from(what, args, &mut files, read_text, |script| host.open(script))?;
    settings::reject_unused_flags(args, &program.loads())?;
    let together = concurrent_loads(&program)?;
    let (read, env) = files.into_parts();
    let mut packed: BTreeMap<String, String> =
        read.into_iter().map(|(name, bytes)| (format!("file:{name}"), STANDARD.encode(bytes))).collect();
    match what {
        RunInput::Url(_) => {}
        RunInput::ScenarioFile(path) => {
            let text = read_text(path)?;
            packed.insert(SCENARIO_FILE.to_owned(), STANDARD.encode(text));
        }
        RunInput::Script(path) => {
            for (name, bytes) in host.bundle(path).map_err(CliError::new)? {
                packed.insert(format!("module:{}", name.display()), STANDARD.encode(bytes));
            }
            if let Some(file) = &args.script.requirements {
                packed.insert(REQUIREMENTS_FILE.to_owned(), STANDARD.encode(read_text(file)?));
            }
        }
    }
    let size: usize = packed.values().map(String::len).sum();
    if size > MAX_BUNDLE_BYTES {
        let text = format!(
            "the scenario and its files are {} MiB; a fleet takes up to {} MiB",
            size >> 20,
            MAX_BUNDLE_BYTES >> 20
        );
        return Err(CliError::new(text));
    }
    let bundle = Bundle {
        plan: program.plan().clone(),
        arguments: command_line::worker_arguments(&args.raw_args),
        files: packed,
        env,
        limits: EngineLimits {
            threads: args.engine.threads.map(usize::from),
            ..run_options(&args.engine, &program).limits
        },
        hooks: program.hooks().is_some(),
        together,
    };
    Ok((bundle, program.describe()))
}

/// The loads of several scenarios that run together; none if it is one.
fn concurrent_loads<D: Driver>(program: &LoadedScenario<D>) -> Result<Vec<Load>, CliError> {
    if !program.has_multiple_scenarios() {
        return Ok(Vec::new());
    }
    let loads: Vec<Load> = program.loads().into_iter().cloned().collect();
    let counted = |load: &Load| matches!(load.model, LoadModel::Closed { .. }) && load.iterations.is_some();
    match loads.iter().any(counted) {
        true => Err(CliError::new(
            "several scenarios on a fleet cannot have a number of iterations and a number of users: give a duration, rates with the \
             number, or one of them with --scenario",
        )),
        false => Ok(loads),
    }
}

/// Opens bundles on a worker.
pub(crate) struct BundleOpener<H> {
    script_host: H,
    /// Of the latest run.
    unpacked: Mutex<Option<UnpackedBundle>>,
}

impl<H: ScriptHost> BundleOpener<H> {
    pub(crate) fn new(host: H) -> BundleOpener<H> {
        BundleOpener { script_host: host, unpacked: Mutex::new(None) }
    }

    fn load_scenario(&self, bundle: &Bundle) -> Result<LoadedScenario<H::Driver>, CliError> {
        let words = ["squall".to_owned(), "run".to_owned()].into_iter().chain(bundle.arguments.iter().cloned());
        let CliCommand::Run(mut args) =
            Cli::try_parse_from(words).map_err(|error| CliError::new(error.to_string()))?.command
        else {
            return Err(CliError::new("the plan was not made by `squall run`"));
        };
        // A seed that was drawn where the run was started.
        args.load.seed = Some(bundle.plan.seed);
        let what = resolve_input(&mut args)?;
        let folder = UnpackedBundle::new(bundle)?;
        let mut files = BundledFiles { files: folder.files.clone(), env: bundle.env.clone() };
        let what = match what {
            RunInput::Script(path) => RunInput::Script(folder.path.join(path.file_name().unwrap_or_default())),
            other => other,
        };
        let text = |path: &Path| {
            let name =
                if args.script.requirements.as_deref() == Some(path) { REQUIREMENTS_FILE } else { SCENARIO_FILE };
            let missing = || CliError::new(format!("the plan travelled without `{name}`"));
            let bytes = decode(name, bundle.files.get(name).ok_or_else(missing)?)?;
            String::from_utf8(bytes).map_err(|_| CliError::new(format!("`{name}` is no text")))
        };
        // One run at a time: the files of the one before go.
        *self.unpacked.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
        load_scenario_from(&what, &args, &mut files, text, |script| self.script_host.open_in_worker(script))
    }
}

impl<H: ScriptHost> squall_worker::DriverFactory for BundleOpener<H> {
    type Driver = AnyDriver<H::Driver>;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<AnyDriver<H::Driver>>, String> {
        let program = self.load_scenario(bundle).map_err(|refusal| refusal.to_string())?;
        if program.plan().tasks != bundle.plan.tasks {
            return Err("this worker reads the scenario differently: is it of another version?".to_owned());
        }
        let (threads, stock, hooks) = (program.threads(), program.pools(), program.hooks());
        let (mut plan, mut beside) = (None, Vec::new());
        let (driver, rations) = match program {
            LoadedScenario::Declarative { scenario, .. } => {
                let (driver, rations) = scenario.driver_with_shared_counters();
                (AnyDriver::Declarative(driver), rations)
            }
            LoadedScenario::Script(hosted) => {
                let mut members = hosted.concurrent_scenarios().into_iter();
                plan = members.next().map(|first| first.plan).filter(|_| bundle.has_multiple_scenarios());
                beside = members.map(additional_engine).collect();
                (AnyDriver::Script((hosted.make_driver)()), Vec::new())
            }
        };
        Ok(RunnableBundle { driver, threads, plan, additional: beside, pools: stock, shared_counters: rations, hooks })
    }
}

fn additional_engine<D: Driver>(member: ConcurrentScenario<D>) -> AdditionalScenario<AnyDriver<D>> {
    let driver = AnyDriver::Script((member.make_driver)());
    AdditionalScenario { driver, threads: Some(member.threads), plan: member.plan, background: member.background }
}

/// The files of a bundle in a folder of their own. Scripts import from it while they run, so it goes with the next bundle or the process.
struct UnpackedBundle {
    path: PathBuf,
    /// By the names that the scenario uses.
    files: BTreeMap<String, PathBuf>,
}

impl Drop for UnpackedBundle {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the files of a run stay behind");
        }
    }
}

impl UnpackedBundle {
    fn new(bundle: &Bundle) -> Result<UnpackedBundle, CliError> {
        // From here on it is removed, whatever fails.
        let mut folder = UnpackedBundle { path: create_temp_folder()?, files: BTreeMap::new() };
        let path = folder.path.clone();
        for (at, (name, content)) in bundle.files.iter().enumerate() {
            let place = if let Some(module) = name.strip_prefix("module:") {
                path.join(checked_relative_path(module)?)
            } else if let Some(file) = name.strip_prefix("file:") {
                // A name of ours: the scenario's may lead anywhere.
                let place = path.join("files").join(at.to_string());
                folder.files.insert(file.to_owned(), place.clone());
                place
            } else {
                continue;
            };
            let write = || {
                fs::create_dir_all(place.parent().unwrap_or(&path))?;
                fs::write(&place, decode(name, content).unwrap_or_default())
            };
            decode(name, content)?;
            write().map_err(|error| CliError::file_error("write", &place, &error))?;
        }
        Ok(folder)
    }
}

fn decode(name: &str, content: &str) -> Result<Vec<u8>, CliError> {
    STANDARD.decode(content).map_err(|_| CliError::new(format!("`{name}` did not travel whole")))
}

/// A path that stays within the folder it is joined to.
fn checked_relative_path(path: &str) -> Result<&Path, CliError> {
    let path = Path::new(path);
    match path.components().all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(path),
        false => Err(CliError::new(format!("`{}` would be written outside the scenario's folder", path.display()))),
    }
}

fn create_temp_folder() -> Result<PathBuf, CliError> {
    let name = format!("squall-{}-{}", std::process::id(), squall_coord::MemberId::unique());
    let path = std::env::temp_dir().join(name);
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700)
        .create(&path)
        .map_err(|error| CliError::file_error("create", &path, &error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_stay_within_their_folder() {
        assert!(checked_relative_path("a/b.py").is_ok());
        for path in ["../a.py", "/etc/x", "a/../../b"] {
            assert!(checked_relative_path(path).is_err(), "{path}");
        }
    }
}
