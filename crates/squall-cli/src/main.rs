//! The `squall` program: hands its arguments to the library and its answer to the system.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(squall_cli::main(std::env::args_os()))
}
