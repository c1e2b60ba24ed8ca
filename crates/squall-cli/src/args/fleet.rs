//! The commands around a fleet: `squall orchestrator`, `squall test`, `squall up`, `squall down`.

use clap::{Args, Subcommand};
use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use super::{LogFormat, RunArgs};

/// A secret on the command line; never shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Secret, Self::Err> {
        Ok(Secret(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Arguments of `squall orchestrator`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall orchestrator --redis redis://127.0.0.1:6379
  squall orchestrator --redis redis://127.0.0.1:6379 --scenario shop.toml
  SQUALL_TOKEN=… squall orchestrator --redis rediss://redis.internal:6380 \\
      --listen 0.0.0.0:8443 --tls-cert api.pem --tls-key api.key --log json

Runs in the foreground. Any number may run: one leads, all serve the API. SIGTERM or Ctrl-C hands over and ends.
docs/api.md has the API; GET /openapi.json describes it for programs.")]
pub(crate) struct OrchestratorArgs {
    /// The server that the fleet shares
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    #[arg(required_unless_present = "memory_workers")]
    pub(crate) redis: Option<String>,
    /// Where the API listens; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Which fleet, where several share a server
    #[arg(long, alias = "name", value_name = "NAME", default_value = "main", env = "SQUALL_FLEET", value_parser = crate::args::parse_fleet_name)]
    pub(crate) fleet: String,
    /// Its name among orchestrators, for the log [default: the process]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// The scenario that POST /start_test starts
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// What callers of the API must send as bearer token; needed to listen beyond this machine
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Serve HTTPS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// How to log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
    /// A whole fleet in this process, without a server; what `squall up` starts where there is none
    #[arg(long, value_name = "N", hide = true, conflicts_with = "redis")]
    pub(crate) memory_workers: Option<u16>,
}

/// Where the API is and how to get in.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// The API of the fleet [default: that of `squall up`, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "SQUALL_API", hide_env_values = true)]
    pub(crate) api: Option<String>,
    /// The token that the orchestrator was started with
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Trust the certificates of this PEM file and no others
    #[arg(long, value_name = "FILE")]
    pub(crate) api_ca: Option<PathBuf>,
}

/// What to do to a test on a fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum TestCommand {
    /// Start a test and return; takes the load flags of `squall run`
    Start(Box<StartArgs>),
    /// Show the current test, or how the last one was
    Status(StatusArgs),
    /// Change the number of users of the running test
    Scale(ScaleArgs),
    /// Change the rate of the running test
    Rate(RateArgs),
    /// Make no load until `resume`
    Pause(PauseResumeArgs),
    /// Go on with everything that was left at the pause
    Resume(PauseResumeArgs),
    /// End the test; what is under way is finished
    Stop(StopArgs),
}

/// Arguments of `squall test start`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test start shop.toml --users 50 --for 5m
  squall test start http://127.0.0.1:8089/ --rate 500 --api http://10.0.0.5:8080
  squall test start shop.py --rate 200 --param region=eu

It returns when the workers have been told. `squall test status --watch` follows the test;
`squall run … --cluster redis://…` starts one, waits for its end and writes reports.")]
#[command(mut_args(hide_unsupported))]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    // Last: what follows a heading stands under it.
    #[command(flatten, next_help_heading = "API")]
    pub(crate) api: ApiArgs,
}

/// Flags of `squall run` that a test cannot be started with. They are known, so that each is refused with what to do instead.
const UNSUPPORTED_FLAGS: [&str; 17] = [
    "plan",
    "strict",
    "processes",
    "find_max",
    "find_max_precision",
    "find_max_probe",
    "cluster",
    "fleet",
    "json",
    "html",
    "junit",
    "csv",
    "hdr",
    "json_lines",
    "save_baseline",
    "prometheus",
    "allow_remote",
];

fn hide_unsupported(arg: clap::Arg) -> clap::Arg {
    let refused = UNSUPPORTED_FLAGS.contains(&arg.get_id().as_str());
    if refused { arg.hide(true) } else { arg }
}

/// Arguments of `squall test status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test status
  squall test status --watch
  squall test status --json | jq .live.current_rps")]
pub(crate) struct StatusArgs {
    /// Print the API's answer
    #[arg(long)]
    pub(crate) json: bool,
    /// Once a second until the test is over
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Arguments of `squall test scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test scale --users 200")]
pub(crate) struct ScaleArgs {
    /// How many users there shall be
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(0..=squall_web::MAX_USERS))]
    pub(crate) users: u64,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Arguments of `squall test rate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test rate 500
  squall test rate 90/m")]
pub(crate) struct RateArgs {
    /// Starts per second, minute or hour
    #[arg(value_name = "RATE", value_parser = parse_rate_or_zero)]
    pub(crate) rate: f64,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// A rate that may be 0: a test can be slowed down to nothing.
fn parse_rate_or_zero(text: &str) -> Result<f64, String> {
    if text.trim() == "0" { Ok(0.0) } else { squall_model::parse_rate(text).map_err(|error| error.to_string()) }
}

/// Arguments of `squall test pause` and `resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test pause
  squall test resume --api http://127.0.0.1:8080")]
pub(crate) struct PauseResumeArgs {
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Arguments of `squall test stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test stop
  squall test stop --abort")]
pub(crate) struct StopArgs {
    /// Cut off what is under way
    #[arg(long)]
    pub(crate) abort: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Arguments of `squall up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall up --workers 3
  squall up --workers 2 --redis redis://127.0.0.1:6379 --listen 127.0.0.1:9000
  squall up --scenario shop.toml

Uses redis-server (or valkey-server) from the PATH on a private port, or --redis; with neither, everything lives in one
process. `squall down` ends exactly what was started.")]
pub(crate) struct UpArgs {
    /// How many workers
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Use this server instead of starting one
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) redis: Option<String>,
    /// Where the API listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Which fleet, where several share a server
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) fleet: String,
    /// The scenario that POST /start_test starts
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// What callers of the API must send as bearer token; needed to listen beyond this machine
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Start no server even if there is one: everything in one process
    #[arg(long, conflicts_with = "redis")]
    pub(crate) in_memory: bool,
}

/// Arguments of `squall down`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall down")]
pub(crate) struct DownArgs {}
