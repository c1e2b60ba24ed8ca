//! The arguments of `squall cql`. squall-cql reads the words; clap only passes them on.

use clap::Args;

/// Arguments of `squall cql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall cql write n=1M -rate threads=50 -node 10.0.0.1
  squall cql read duration=5m -rate threads=50 fixed=5000/s -node 10.0.0.1
  squall cql mixed 'ratio(write=1,read=3)' n=100k -rate threads=20
  squall cql help -rate                  the options of one group

Exit codes: 0 passed, 1 an operation failed, 2 usage, 3 database not reached,
130 interrupted.")]
pub(crate) struct CqlArgs {
    /// The command line of cassandra-stress; `squall cql help` explains it
    #[arg(value_name = "WORD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}
