//! The `squall` program. Passes its arguments to the library and exits with the returned code.

// The futures of a fleet on a Redis cluster are deeply nested.
#![recursion_limit = "256"]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(squall_cli::main(std::env::args_os()))
}
