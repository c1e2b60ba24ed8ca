//! Sets up the log of a streams worker that has its own process: to standard error, as text or as
//! JSON lines. `squall.streams` calls it.

use pyo3::{exceptions::PyValueError, prelude::*};
use std::io::{IsTerminal, stderr};
use tracing::Level;

/// Logs events of this level and above. Only the first call in a process has an effect.
#[pyfunction]
pub(crate) fn stream_logs(level: &str, json: bool) -> PyResult<()> {
    let level = match level {
        "error" | "critical" => Level::ERROR,
        "warning" => Level::WARN,
        "info" => Level::INFO,
        "debug" => Level::DEBUG,
        other => {
            return Err(PyValueError::new_err(format!(
                "`{other}` is not a log level; use critical, error, warning, info or debug"
            )));
        }
    };
    let colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).with_ansi(colours);
    // This fails if the process has already set up its log, which then stays.
    let _ = if json { logs.json().flatten_event(true).try_init() } else { logs.with_target(false).try_init() };
    Ok(())
}
