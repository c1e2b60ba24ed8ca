//! `squall worker`: where its fleet is and what it is called there.

use clap::{Args, ValueEnum};
use std::{net::SocketAddr, time::Duration};

/// Arguments of `squall worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall worker --redis redis://127.0.0.1:6379
  squall worker --redis rediss://user:secret@redis.internal:6380 --id eu-1
  squall worker --redis redis://127.0.0.1:6379 --listen 127.0.0.1:9180
  python3 -m squall worker --redis redis://127.0.0.1:6379

The last is for scenarios in Python. Runs in the foreground. SIGTERM or Ctrl-C drains: the load moves to others, everything measured is shipped.
A second one ends it at once; what it had not shipped is lost, and the report says how much that is at most.")]
pub(crate) struct LoadWorkerArgs {
    /// The server that the fleet shares
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    pub(crate) redis: String,
    /// Which fleet, where several share a server
    #[arg(long, value_name = "NAME", default_value = "main", env = "SQUALL_FLEET", value_parser = crate::args::parse_fleet_name)]
    pub(crate) fleet: String,
    /// Its name in the fleet; no two workers may share one [default: the host's name and a random part]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// How long the fleet waits for this worker, when it is not heard of, before others take over its load; at least 3s
    #[arg(long, value_name = "TIME", default_value = "3500ms", value_parser = parse_expiry)]
    pub(crate) expires_after: Duration,
    /// Answer /healthz, /readyz and /metrics (Prometheus) here, for example 127.0.0.1:9180 [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", env = "SQUALL_WORKER_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// Let --listen be reached from other machines; it tells numbers only, but has no login
    #[arg(long, env = "SQUALL_ALLOW_REMOTE")]
    pub(crate) allow_remote: bool,
    /// How to log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
}

fn parse_expiry(text: &str) -> Result<Duration, String> {
    let expiry = squall_model::parse_duration(text).map_err(|error| error.to_string())?;
    let sensible = Duration::from_secs(3)..=Duration::from_secs(600);
    if sensible.contains(&expiry) { Ok(expiry) } else { Err("it must be between 3s and 10m".to_owned()) }
}

/// What log lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
