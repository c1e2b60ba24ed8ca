//! Where the engine's events go when a worker is a process of its own: to standard error, for people or as JSON lines.

use pyo3::{exceptions::PyValueError, prelude::*};
use std::io::{IsTerminal, stderr};
use tracing::Level;

/// Logs events of at least this level from now on. Only the first call of a process counts.
#[pyfunction]
pub(crate) fn stream_logs(level: &str, json: bool) -> PyResult<()> {
    let level = match level {
        "error" | "critical" => Level::ERROR,
        "warning" => Level::WARN,
        "info" => Level::INFO,
        "debug" => Level::DEBUG,
        other => {
            return Err(PyValueError::new_err(format!(
                "`{other}` is not a level; there are error, warning, info, debug"
            )));
        }
    };
    let colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).with_ansi(colours);
    // Somebody who has set up logging before keeps it.
    let _ = if json { logs.json().flatten_event(true).try_init() } else { logs.with_target(false).try_init() };
    Ok(())
}
