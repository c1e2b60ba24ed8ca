//! Python scenarios in the program without Python: hands the whole command line to the `squall`
//! package of the installed `python3`. Runs no Python itself. `lib.rs` passes it to the commands.

use squall_scenario::ScenarioDriver;
use squall_streams::cli::{AppStreamSend, StreamWorkerArgs};
use std::{ffi::OsString, path::Path, process::Command};

use crate::{
    loaded_scenario::LoadedScenario,
    script_error::{ScriptError, ScriptKind},
    script_host::{ScriptHost, ScriptOptions},
};

/// The script host of the program without Python.
#[derive(Clone)]
pub(crate) struct InstalledPython {
    pub(crate) arguments: Vec<OsString>,
}

impl ScriptHost for InstalledPython {
    type Driver = ScenarioDriver;

    fn open(&self, options: ScriptOptions) -> Result<LoadedScenario<ScenarioDriver>, ScriptError> {
        Err(self.exec_python(&options.file, ScriptKind::Scenario))
    }

    fn open_in_worker(&self, options: ScriptOptions) -> Result<LoadedScenario<ScenarioDriver>, ScriptError> {
        Err(ScriptError::WorkerWithoutPython { path: options.file })
    }

    fn run_stream_worker(&self, worker: &StreamWorkerArgs) -> Result<u8, ScriptError> {
        Err(self.exec_python(Path::new(&worker.app), ScriptKind::App))
    }

    fn send_to_stream(&self, send: &AppStreamSend) -> Result<u8, ScriptError> {
        Err(self.exec_python(Path::new(&send.stream), ScriptKind::App))
    }
}

impl InstalledPython {
    /// Replaces this process by `python3 -m squall` with the same arguments. Returns only on
    /// failure. `script` is what needs Python. With `-P`, Python does not import a `squall.py` of
    /// the current folder instead.
    fn exec_python(&self, script: &Path, kind: ScriptKind) -> ScriptError {
        let installed = Command::new("python3").args(["-P", "-c", "import squall._squall"]).output();
        if !installed.is_ok_and(|output| output.status.success()) {
            return ScriptError::PackageNotInstalled { path: script.to_owned(), kind };
        }
        let mut python = Command::new("python3");
        python.args(["-P", "-m", "squall"]).args(self.arguments.iter().skip(1));
        // `exec` returns only if it fails.
        ScriptError::StartPython(std::os::unix::process::CommandExt::exec(&mut python))
    }
}
