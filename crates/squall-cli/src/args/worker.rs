//! The arguments of `squall worker`.

use clap::{Args, ValueEnum};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Arguments of `squall worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall worker --redis redis://127.0.0.1:6379
  squall worker --redis rediss://user:secret@redis.internal:6380 --id eu-1
  squall worker --redis redis://127.0.0.1:6379 --listen 127.0.0.1:9180
  python3 -m squall worker --redis redis://127.0.0.1:6379

The last one runs scenarios in Python too. The worker runs in the foreground.
SIGTERM or Ctrl-C drains: other workers take over the load, and the worker ships
all of its measurements. A second one ends it at once; measurements that it has
not shipped are lost, and the report says how many requests at most.")]
pub(crate) struct LoadWorkerArgs {
    /// Redis server of the fleet
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    pub(crate) redis: String,
    /// Name of the fleet, if several share a server
    #[arg(
        long,
        value_name = "NAME",
        default_value = "main",
        env = "SQUALL_FLEET",
        value_parser = crate::args::parse_fleet_name
    )]
    pub(crate) fleet: String,
    /// Name of this worker, unique in the fleet [default: the host's name and a random part]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// The scenario for tests of vikhry's orchestrator, which needs `--fleet ''`; Squall's orchestrator
    /// sends its own. Of several in a Python file: FILE:CLASS or MODULE:CLASS
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Run the probes of that scenario here; vikhry's orchestrator chooses no worker for them
    #[arg(long, requires = "scenario")]
    pub(crate) run_probes: bool,
    /// Base URL, instead of the one in that scenario
    #[arg(long, value_name = "URL", requires = "scenario")]
    pub(crate) target: Option<String>,
    /// Without heartbeats for this long, other workers take over its load; at least 3s
    #[arg(long, value_name = "TIME", default_value = "3500ms", value_parser = parse_expiry)]
    pub(crate) expires_after: Duration,
    /// Serve /healthz, /readyz and /metrics (Prometheus) here, e.g. 127.0.0.1:9180
    #[arg(long, value_name = "HOST:PORT", env = "SQUALL_WORKER_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// Let --listen use addresses that other machines reach, without authentication
    #[arg(long, env = "SQUALL_ALLOW_REMOTE")]
    pub(crate) allow_remote: bool,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
}

fn parse_expiry(text: &str) -> Result<Duration, String> {
    let expiry = squall_model::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_secs(3)..=Duration::from_secs(600);
    if allowed.contains(&expiry) { Ok(expiry) } else { Err("give 3s to 10m".to_owned()) }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
