//! The files that a run reads, so that no output replaces one of them. It notes paths and reads nothing
//! itself. `commands::run` and `bundle` load scenarios through it; `squall report` checks its outputs.

use squall_scenario::ScenarioFiles;
use std::{
    cell::RefCell,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{args::RunArgs, exit::CliError, preset_flags, run_input::RunInput, script_host::ScriptHost, secret_value};

/// Notes the path of every file that a scenario reads.
pub(crate) struct TrackedFiles<'f> {
    files: &'f mut dyn ScenarioFiles,
    paths: &'f RefCell<Vec<PathBuf>>,
}

impl<'f> TrackedFiles<'f> {
    pub(crate) fn new(files: &'f mut dyn ScenarioFiles, paths: &'f RefCell<Vec<PathBuf>>) -> TrackedFiles<'f> {
        TrackedFiles { files, paths }
    }
}

impl ScenarioFiles for TrackedFiles<'_> {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.paths.borrow_mut().push(self.files.locate(path));
        self.files.read(path)
    }

    fn locate(&self, path: &str) -> PathBuf {
        let location = self.files.locate(path);
        self.paths.borrow_mut().push(location.clone());
        location
    }

    fn env(&mut self, name: &str) -> Option<String> {
        self.files.env(name)
    }
}

/// Refuses an output that is one of the run's inputs, also through links. `read` are the files that the
/// scenario has read.
pub(crate) fn reject_outputs_over_inputs<H: ScriptHost>(
    input: &RunInput,
    args: &RunArgs,
    read: Vec<PathBuf>,
    host: &H,
) -> Result<(), CliError> {
    let outputs = args.output.files();
    if outputs.iter().all(|(_, path)| FileIdentity::of(path).is_none()) {
        return Ok(());
    }
    reject_shared_files(&outputs, &input_paths(input, args, read, host))
}

/// Refuses an output that is one of `inputs`, also through links. Each output has the name of its flag.
pub(crate) fn reject_shared_files(outputs: &[(&str, &Path)], inputs: &[PathBuf]) -> Result<(), CliError> {
    for path in inputs {
        let Some(input) = FileIdentity::of(path) else { continue };
        if let Some((flag, output)) = outputs.iter().find(|(_, output)| FileIdentity::of(output) == Some(input)) {
            let (output, path) = (output.display(), path.display());
            return Err(CliError::new(format!(
                "{flag} {output} would replace {path}, which the command reads: give another path"
            )));
        }
    }
    Ok(())
}

fn input_paths<H: ScriptHost>(input: &RunInput, args: &RunArgs, mut paths: Vec<PathBuf>, host: &H) -> Vec<PathBuf> {
    paths.extend(args.plan.clone());
    paths.extend(args.script.requirements.clone());
    paths.extend([&args.http.ca, &args.http.cert, &args.http.key].into_iter().flatten().map(PathBuf::from));
    paths.push(PathBuf::from(preset_flags::FILE));
    paths.extend(secret_files(args));
    match input {
        RunInput::Url(_) => {}
        RunInput::ScenarioFile(path) => paths.push(path.clone()),
        RunInput::Script(path) => {
            paths.push(path.clone());
            // Collecting the modules reads them all, so only an output that looks like code is compared.
            if args.output.files().iter().any(|(_, path)| path.extension().is_some_and(|end| end == "py")) {
                let folder = path.parent().unwrap_or(Path::new(""));
                let modules = host.bundle(path).unwrap_or_default();
                paths.extend(modules.into_keys().map(|module| folder.join(module)));
            }
        }
    }
    paths
}

/// The files of values that are given as `@FILE`.
fn secret_files(args: &RunArgs) -> Vec<PathBuf> {
    let logins = [&args.http.basic, &args.http.bearer].into_iter().flatten().map(String::as_str);
    let headers = args.http.headers.iter().filter_map(|header| Some(header.split_once(':')?.1.trim()));
    let request = &args.request;
    let bodies = [&request.body, &request.body_json].into_iter().flatten().map(String::as_str);
    let pairs = args.script.params.iter().chain(&request.query).chain(&request.form);
    let values = pairs.filter_map(|pair| Some(pair.split_once('=')?.1));
    logins
        .chain(headers)
        .chain(bodies)
        .chain(values)
        .filter_map(secret_value::referenced_file)
        .map(PathBuf::from)
        .collect()
}

/// Device and number of a regular file, which all its names and links share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// `None` if there is no regular file at `path`: devices and pipes can be read and written.
    fn of(path: &Path) -> Option<FileIdentity> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(FileIdentity { device: found.dev(), inode: found.ino() })
    }
}
