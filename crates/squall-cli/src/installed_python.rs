//! Python scenarios in the program without Python: hands the whole command line to the `squall`
//! package of the installed `python3`. Runs no Python itself. `lib.rs` passes it to the commands.

use squall_scenario::ScenarioDriver;
use squall_streams::cli::StreamWorkerArgs;
use std::{ffi::OsString, path::Path, process::Command};

use crate::{
    loaded_scenario::LoadedScenario,
    script_host::{ScriptHost, ScriptOptions},
};

/// The script host of the program without Python.
#[derive(Clone)]
pub(crate) struct InstalledPython {
    pub(crate) arguments: Vec<OsString>,
}

impl ScriptHost for InstalledPython {
    type Driver = ScenarioDriver;

    fn open(&self, options: ScriptOptions) -> Result<LoadedScenario<ScenarioDriver>, String> {
        Err(self.exec_python().unwrap_or_else(|| not_installed_message(&options.file)))
    }

    fn open_in_worker(&self, options: ScriptOptions) -> Result<LoadedScenario<ScenarioDriver>, String> {
        let file = options.file.display();
        Err(format!(
            "{file} is a Python scenario, and this worker runs without Python. Start the worker with \
             `python3 -m squall worker …` instead"
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
    /// Replaces this process by `python3 -m squall` with the same arguments. Returns only on
    /// failure: the reason, or `None` if the package is not installed.
    fn exec_python(&self) -> Option<String> {
        let installed = Command::new("python3").args(["-c", "import squall._squall"]).output();
        installed.is_ok_and(|output| output.status.success()).then(|| {
            let mut python = Command::new("python3");
            python.args(["-m", "squall"]).args(self.arguments.iter().skip(1));
            // `exec` returns only if it fails.
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
