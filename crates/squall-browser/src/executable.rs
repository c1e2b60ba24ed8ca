//! Finds the browser on this machine. Installs nothing. Called by [`Browser::launch`](crate::Browser).

use std::path::{Path, PathBuf};

/// Where packages install Chromium, the cheapest first: the headless shell needs a quarter of the CPU
/// time and memory of Chromium. The scripts in /usr/bin of Debian come last, because they start the
/// browser as another process.
const KNOWN_PATHS: [&str; 6] = [
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
];

/// Why there is no browser to start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutableError {
    #[error(
        "there is no Chromium on this machine: install one (Debian: apt install chromium-headless-shell), or name \
         it with executable = \"/path\" in [browser]"
    )]
    NotFound,
    #[error("there is no file {}, which `executable` in [browser] names", .0.display())]
    NoSuchFile(PathBuf),
}

/// The browser to start: `given`, or the first one that is installed.
pub fn find_executable(given: Option<&Path>) -> Result<PathBuf, ExecutableError> {
    match given {
        Some(given) if given.is_file() => Ok(given.to_owned()),
        Some(given) => Err(ExecutableError::NoSuchFile(given.to_owned())),
        None => {
            let installed = KNOWN_PATHS.iter().map(Path::new).find(|path| path.is_file());
            installed.map(Path::to_owned).ok_or(ExecutableError::NotFound)
        }
    }
}
