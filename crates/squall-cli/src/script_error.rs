//! Why a script host cannot open, bundle or run a script. The script hosts return it; the commands
//! print it and exit with code 2. Decides no exit code: `exit` does.

use squall_http::ConnectorError;
use std::{io, path::PathBuf};

/// Why a script host cannot do what a command asks.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Mistakes in the scenario, each with its place in the script or the flag that made it.
    #[error("{0}")]
    InvalidScenario(String),
    /// An exception of the script itself, with its traceback.
    #[error("{0}")]
    Exception(String),
    /// The HTTP client refuses the scenario's settings.
    #[error(transparent)]
    HttpSettings(#[from] ConnectorError),
    /// Lines of the requirements file that the installed packages do not meet.
    #[error("the scenario requires packages that are not installed here:\n  {}", missing.join("\n  "))]
    MissingRequirements { missing: Vec<String> },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The installed `python3` cannot import the package `squall`.
    #[error(
        "{} is a Python {}, and python3 has no package squall.\n  \
         Install it where python3 finds it (in Squall's source folder: pip install .), then repeat this command.{}",
        path.display(), kind.name(), kind.advice()
    )]
    PackageNotInstalled { path: PathBuf, kind: ScriptKind },
    /// The package is installed, but its process does not start.
    #[error("cannot start python3 -m squall")]
    StartPython(#[source] io::Error),
    /// A worker without Python cannot replace its process, because it is a member of a fleet.
    #[error(
        "{} is a Python scenario, and this worker runs without Python. Start the worker with \
         `python3 -m squall worker …` instead",
        path.display()
    )]
    WorkerWithoutPython { path: PathBuf },
}

/// What a script holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    Scenario,
    /// Stream processors.
    App,
}

impl ScriptKind {
    fn name(self) -> &'static str {
        match self {
            ScriptKind::Scenario => "scenario",
            ScriptKind::App => "app",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            ScriptKind::Scenario => "\n  URLs and .toml scenarios need no Python.",
            ScriptKind::App => "",
        }
    }
}
