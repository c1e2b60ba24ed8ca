//! Scenarios that travel: from a command line to a bundle with every file in it, and back to a driver on a worker.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Parser;
use squall_engine::Driver;
use squall_model::{Bundle, WorkerLimits, Load, LoadModel};
use squall_scenario::{Disk, Recording, Travelled};
use squall_worker::{Beside, Opened};
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    any_driver::AnyDriver,
    args::{Cli, Command, RunArgs},
    command_line,
    commands::run::{options, read_from, read_text, subject},
    exit::Refusal,
    program::{Host, Member, Program},
    settings,
    subject::Subject,
};

/// Largest bundle, all files together.
const LARGEST: usize = 64 << 20;

/// The name of the scenario itself among a bundle's files.
const SCENARIO: &str = "scenario";

/// The name of what must be installed among a bundle's files.
const REQUIREMENTS: &str = "requirements";

/// Bundles what `squall run` with these `args` would run; also gives the plan in words.
pub(crate) fn of_run<H: Host>(what: &Subject, args: &RunArgs, host: &H) -> Result<(Bundle, String), Refusal> {
    let mut files = match what {
        Subject::Url(_) => Recording::new(Disk::here()),
        Subject::File(path) | Subject::Script(path) => Recording::new(Disk::beside(path)),
    };
    let program = read_from(what, args, &mut files, read_text, |script| host.open(script))?;
    settings::refuse_unused(args, &program.loads())?;
    let together = loads(&program)?;
    let (read, env) = files.into_parts();
    let mut packed: BTreeMap<String, String> =
        read.into_iter().map(|(name, bytes)| (format!("file:{name}"), STANDARD.encode(bytes))).collect();
    match what {
        Subject::Url(_) => {}
        Subject::File(path) => {
            let text = read_text(path)?;
            packed.insert(SCENARIO.to_owned(), STANDARD.encode(text));
        }
        Subject::Script(path) => {
            for (name, bytes) in host.bundle(path).map_err(Refusal::new)? {
                packed.insert(format!("module:{}", name.display()), STANDARD.encode(bytes));
            }
            if let Some(file) = &args.script.requirements {
                packed.insert(REQUIREMENTS.to_owned(), STANDARD.encode(read_text(file)?));
            }
        }
    }
    let size: usize = packed.values().map(String::len).sum();
    if size > LARGEST {
        let text =
            format!("the scenario and its files are {} MiB; a fleet takes up to {} MiB", size >> 20, LARGEST >> 20);
        return Err(Refusal::new(text));
    }
    let limits = options(&args.engine, &program);
    let bundle = Bundle {
        plan: program.plan().clone(),
        arguments: command_line::travelling(&args.words),
        files: packed,
        env,
        limits: WorkerLimits {
            threads: args.engine.threads.map(usize::from),
            max_users: limits.max_users,
            grace: limits.grace,
            slack: limits.slack,
            late_after: limits.late_after,
            phases: limits.phases,
        },
        hooks: program.hooks().is_some(),
        together,
    };
    Ok((bundle, program.describe()))
}

/// The loads of several scenarios that run together; none if it is one.
fn loads<D: Driver>(program: &Program<D>) -> Result<Vec<Load>, Refusal> {
    if !program.is_several() {
        return Ok(Vec::new());
    }
    let loads: Vec<Load> = program.loads().into_iter().cloned().collect();
    let counted = |load: &Load| matches!(load.model, LoadModel::Closed { .. }) && load.iterations.is_some();
    match loads.iter().any(counted) {
        true => Err(Refusal::new(
            "several scenarios on a fleet cannot have a number of iterations and a number of users: give a duration, rates with the \
             number, or one of them with --scenario",
        )),
        false => Ok(loads),
    }
}

/// Opens bundles on a worker.
pub(crate) struct BundleHost<H> {
    host: H,
    /// Of the latest run.
    unpacked: Mutex<Option<Unpacked>>,
}

impl<H: Host> BundleHost<H> {
    pub(crate) fn new(host: H) -> BundleHost<H> {
        BundleHost { host, unpacked: Mutex::new(None) }
    }

    fn program(&self, bundle: &Bundle) -> Result<Program<H::Driver>, Refusal> {
        let words = ["squall".to_owned(), "run".to_owned()].into_iter().chain(bundle.arguments.iter().cloned());
        let Command::Run(mut args) =
            Cli::try_parse_from(words).map_err(|error| Refusal::new(error.to_string()))?.command
        else {
            return Err(Refusal::new("the plan was not made by `squall run`"));
        };
        // A seed that was drawn where the run was started.
        args.load.seed = Some(bundle.plan.seed);
        let what = subject(&mut args)?;
        let folder = Unpacked::new(bundle)?;
        let mut files = Travelled { files: folder.files.clone(), env: bundle.env.clone() };
        let what = match what {
            Subject::Script(path) => Subject::Script(folder.path.join(path.file_name().unwrap_or_default())),
            other => other,
        };
        let text = |path: &Path| {
            let name = if args.script.requirements.as_deref() == Some(path) { REQUIREMENTS } else { SCENARIO };
            let missing = || Refusal::new(format!("the plan travelled without `{name}`"));
            let bytes = decode(name, bundle.files.get(name).ok_or_else(missing)?)?;
            String::from_utf8(bytes).map_err(|_| Refusal::new(format!("`{name}` is no text")))
        };
        // One run at a time: the files of the one before go.
        *self.unpacked.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
        read_from(&what, &args, &mut files, text, |script| self.host.open_here(script))
    }
}

impl<H: Host> squall_worker::Host for BundleHost<H> {
    type Driver = AnyDriver<H::Driver>;

    fn open(&self, bundle: &Bundle) -> Result<Opened<AnyDriver<H::Driver>>, String> {
        let program = self.program(bundle).map_err(|refusal| refusal.to_string())?;
        if program.plan().tasks != bundle.plan.tasks {
            return Err("this worker reads the scenario differently: is it of another version?".to_owned());
        }
        let (threads, stock, hooks) = (program.threads(), program.stock(), program.hooks());
        let (mut plan, mut beside) = (None, Vec::new());
        let (driver, rations) = match program {
            Program::Declared { scenario, .. } => {
                let (driver, rations) = scenario.driver_rationed();
                (AnyDriver::Declared(driver), rations)
            }
            Program::Hosted(hosted) => {
                let mut members = hosted.members().into_iter();
                plan = members.next().map(|first| first.plan).filter(|_| bundle.has_multiple_scenarios());
                beside = members.map(stand_beside).collect();
                (AnyDriver::Hosted((hosted.driver)()), Vec::new())
            }
        };
        Ok(Opened { driver, threads, plan, beside, stock, rations, hooks })
    }
}

fn stand_beside<D: Driver>(member: Member<D>) -> Beside<AnyDriver<D>> {
    let driver = AnyDriver::Hosted((member.driver)());
    Beside { driver, threads: Some(member.threads), plan: member.plan, follows: member.follows }
}

/// The files of a bundle in a folder of their own. Scripts import from it while they run, so it goes with the next bundle or the process.
struct Unpacked {
    path: PathBuf,
    /// By the names that the scenario uses.
    files: BTreeMap<String, PathBuf>,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the files of a run stay behind");
        }
    }
}

impl Unpacked {
    fn new(bundle: &Bundle) -> Result<Unpacked, Refusal> {
        // From here on it is removed, whatever fails.
        let mut folder = Unpacked { path: fresh_folder()?, files: BTreeMap::new() };
        let path = folder.path.clone();
        for (at, (name, content)) in bundle.files.iter().enumerate() {
            let place = if let Some(module) = name.strip_prefix("module:") {
                path.join(inside(module)?)
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
            write().map_err(|error| Refusal::file("write", &place, &error))?;
        }
        Ok(folder)
    }
}

fn decode(name: &str, content: &str) -> Result<Vec<u8>, Refusal> {
    STANDARD.decode(content).map_err(|_| Refusal::new(format!("`{name}` did not travel whole")))
}

/// A path that stays within the folder it is joined to.
fn inside(path: &str) -> Result<&Path, Refusal> {
    let path = Path::new(path);
    match path.components().all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(path),
        false => Err(Refusal::new(format!("`{}` would be written outside the scenario's folder", path.display()))),
    }
}

fn fresh_folder() -> Result<PathBuf, Refusal> {
    let name = format!("squall-{}-{}", std::process::id(), squall_coord::MemberId::unique());
    let path = std::env::temp_dir().join(name);
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700)
        .create(&path)
        .map_err(|error| Refusal::file("create", &path, &error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_stay_within_their_folder() {
        assert!(inside("a/b.py").is_ok());
        for path in ["../a.py", "/etc/x", "a/../../b"] {
            assert!(inside(path).is_err(), "{path}");
        }
    }
}
