//! Log lines of the worker and orchestrator commands, on standard error. `RUST_LOG` sets the
//! filter.

use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt};

use crate::args::LogFormat;

/// Starts logging, once for the process.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt()
        // A reader that closes the log must not end the process: the default prints the failure to the same place.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false);
    // Fails if the embedding program has set up logging already.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}
