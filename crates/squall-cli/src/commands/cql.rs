//! `squall cql`: cassandra-stress on Squall's engine. Prints what needs no database, and hands runs to
//! `stress_run`. Parses nothing itself: squall-cql does.

mod fleet_scan;
mod fleet_target;
mod input_files;
mod interval_table;
mod output_log;
mod probes;
mod run_plan;
mod run_report;
mod stress_run;
mod summary_text;

use squall_cql::{CqlCommand, parse_command_line, print_distribution};

use crate::{
    args::CqlArgs,
    exit::{CliError, PASSED},
    terminal::print,
};

pub(crate) fn cql(args: CqlArgs) -> Result<u8, CliError> {
    let command = parse_command_line(&args.words).map_err(|error| CliError::new(error.to_string()))?;
    let text = match command {
        CqlCommand::Stress(settings) => return stress_run::run(*settings, args),
        CqlCommand::Help(text) => text,
        CqlCommand::Version => format!("Version: squall {}\n", env!("SQUALL_VERSION")),
        CqlCommand::Print(distribution) => print_distribution(&distribution),
    };
    print::stdout(text.as_bytes())?;
    Ok(PASSED)
}
