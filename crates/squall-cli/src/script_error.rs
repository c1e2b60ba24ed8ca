//! Why a script host cannot open, bundle or run a script. The script hosts return it; the commands
//! print it and exit with code 2. Decides no exit code: `exit` does.

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

#[cfg(test)]
mod tests {
    use super::*;
    use squall_model::error_chain;

    #[track_caller]
    fn check(error: &ScriptError, expected: &str) {
        assert_eq!(error_chain(error), expected);
    }

    #[test]
    fn errors_without_python_name_the_script_and_the_remedy() {
        let install = "python3 has no package squall.\n  Install it where python3 finds it (in Squall's source folder: \
                       pip install .), then repeat this command.";
        let missing = |path: &str, kind| ScriptError::PackageNotInstalled { path: path.into(), kind };
        let scenario =
            format!("shop.py is a Python scenario, and {install}\n  URLs and .toml scenarios need no Python.");
        check(&missing("shop.py", ScriptKind::Scenario), &scenario);
        check(&missing("shop:app", ScriptKind::App), &format!("shop:app is a Python app, and {install}"));
        check(
            &ScriptError::WorkerWithoutPython { path: "shop.py".into() },
            "shop.py is a Python scenario, and this worker runs without Python. Start the worker with `python3 -m \
             squall worker …` instead",
        );
    }

    #[test]
    fn error_of_a_file_names_the_file_and_the_cause() {
        let error = ScriptError::Read { path: "shop.py".into(), error: io::Error::other("no such file") };
        check(&error, "cannot read shop.py: no such file");
    }
}
