//! `squall worker`: where its fleet is and what it is called there.

use clap::{Args, ValueEnum};

/// Arguments of `squall worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall worker --redis redis://127.0.0.1:6379
  squall worker --redis rediss://user:secret@redis.internal:6380 --id eu-1 --log json
  python3 -m squall worker --redis redis://127.0.0.1:6379      for scenarios in Python

Runs in the foreground. SIGTERM or Ctrl-C drains: the load moves to others, everything measured is shipped.")]
pub(crate) struct WorkerArgs {
    /// The server that the fleet shares
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    pub(crate) redis: String,
    /// Which fleet, where several share a server
    #[arg(long, value_name = "NAME", default_value = "main", env = "SQUALL_FLEET")]
    pub(crate) fleet: String,
    /// Its name in the fleet; no two workers may share one [default: the host's name and a random part]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// How to log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
}

/// What log lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
