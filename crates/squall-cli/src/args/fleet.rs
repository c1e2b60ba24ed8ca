//! The arguments of the fleet commands: `squall orchestrator`, `squall test`, `squall up`, `squall
//! down`.

use clap::{Args, Subcommand};
use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use super::{HistoryArgs, LogFormat, RunArgs};

/// A secret on the command line. Its debug output hides it.
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

Runs in the foreground. Several orchestrators may run: one leads, all serve the
API. SIGTERM or Ctrl-C hands the lead over and ends.
docs/api.md documents the API; GET /openapi.json describes it for programs.")]
pub(crate) struct OrchestratorArgs {
    /// Redis server of the fleet
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    #[arg(required_unless_present = "memory_workers")]
    pub(crate) redis: Option<String>,
    /// Address of the API; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Name of the fleet, if several share a server
    #[arg(
        long,
        alias = "name",
        value_name = "NAME",
        default_value = "main",
        env = "SQUALL_FLEET",
        value_parser = crate::args::parse_fleet_name
    )]
    pub(crate) fleet: String,
    /// Name of this orchestrator, for the log [default: orchestrator-PID]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    /// The scenario that POST /start_test starts. Of several in a Python file: FILE:CLASS or
    /// MODULE:CLASS
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Base URL, instead of the one in the scenario. A Python scenario without any gets it from the
    /// parameters of the test
    #[arg(long, value_name = "URL", requires = "scenario")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) shown: WebUiArgs,
    /// Let web pages of this origin use the API, e.g. http://localhost:5173; repeatable
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Bearer token that clients must send; required to listen beyond this machine
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Serve HTTPS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
    /// Run a whole fleet in this process, without Redis; `squall up` uses it without a Redis server
    #[arg(long, value_name = "N", hide = true, conflicts_with = "redis")]
    pub(crate) memory_workers: Option<u16>,
}

/// What the web UI offers beside the fleet.
#[derive(Debug, Args)]
pub(crate) struct WebUiArgs {
    /// Offer the .toml and .py scenarios of this folder in the web UI
    #[arg(long, value_name = "DIR")]
    pub(crate) scenarios: Option<PathBuf>,
    /// Show the streams of this namespace on the same Redis server [default: squall]
    #[arg(long, value_name = "NAMESPACE", num_args = 0..=1, default_missing_value = "squall")]
    pub(crate) streams: Option<String>,
    /// Show the browser grid of this name on the same Redis server [default: main]
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "main")]
    pub(crate) grid: Option<String>,
}

impl WebUiArgs {
    /// The flags again, for the orchestrator that `squall up` starts.
    pub(crate) fn words(&self) -> Vec<String> {
        let folder = self.scenarios.as_ref().map(|folder| folder.display().to_string());
        let given = [("--scenarios", folder), ("--streams", self.streams.clone()), ("--grid", self.grid.clone())];
        given.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten().collect()
    }
}

/// The API of a fleet and its credentials.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// URL of the API [default: that of `squall up`, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "SQUALL_API", hide_env_values = true)]
    pub(crate) api: Option<String>,
    /// Bearer token of the API
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    /// Trust only the certificates of this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) api_ca: Option<PathBuf>,
}

/// The subcommands of `squall test`.
#[derive(Debug, Subcommand)]
pub(crate) enum TestCommand {
    /// Start a test and return, or wait for its end; takes the flags of `squall run`
    Start(Box<StartArgs>),
    /// Show the current test, or the result of the last one
    Status(StatusArgs),
    /// Change the number of users of the running test
    Scale(ScaleArgs),
    /// Change the rate of the running test
    Rate(RateArgs),
    /// Pause the load until `resume`
    Pause(PauseResumeArgs),
    /// Continue a paused test at its previous level
    Resume(PauseResumeArgs),
    /// Stop the test after the iterations that have started
    Stop(StopArgs),
}

/// Arguments of `squall test start`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test start shop.toml --users 50 --for 5m
  squall test start http://127.0.0.1:8089/ --rate 500 --api http://10.0.0.5:8080
  squall test start shop.py --rate 200 --param region=eu
  squall test start shop.toml --wait
  squall test start shop.toml --html report.html --junit junit.xml

Returns when the test has been started; `squall test status --watch` follows it.
With --wait or an output it returns when the test has ended, with the exit codes
of `squall run`; then Ctrl-C stops the test, and a second Ctrl-C aborts it.")]
#[command(mut_args(hide_unsupported))]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Wait for the end of the test and print its summary; implied by the outputs, --strict and
    /// --allow-missing
    #[arg(long, help_heading = "Output")]
    pub(crate) wait: bool,
    // Last, because clap puts all following arguments under a heading.
    #[command(flatten, next_help_heading = "API")]
    pub(crate) api: ApiArgs,
}

impl StartArgs {
    /// Whether the command returns after the end of the test.
    pub(crate) fn waits_for_end(&mut self) -> bool {
        let has_outputs = self.run.output.optional_path_flags().iter().any(|(value, _)| value.is_some());
        self.wait || has_outputs || self.run.strict || self.run.allow_missing
    }
}

/// Flags of `squall run` that `squall test start` refuses. It accepts them first, so that its
/// message can say what to do instead.
const UNSUPPORTED_FLAGS: [&str; 12] = [
    "web",
    "plan",
    "processes",
    "find_max",
    "find_max_precision",
    "find_max_probe",
    "cluster",
    "fleet",
    "hdr",
    "json_lines",
    "prometheus",
    "allow_remote",
];

fn hide_unsupported(arg: clap::Arg) -> clap::Arg {
    let unsupported = UNSUPPORTED_FLAGS.contains(&arg.get_id().as_str());
    if unsupported { arg.hide(true) } else { arg }
}

/// Arguments of `squall test status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test status
  squall test status --watch
  squall test status --json | jq .live.current_rps

The dashboard's keys change the test: p pauses and resumes it, + and - change
its load, ? lists all. q leaves the dashboard, and the test continues.")]
pub(crate) struct StatusArgs {
    /// Print the response of the API as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the dashboard of the test until its end; without a terminal, print the status once a second
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch: print the status once a second instead of the dashboard
    #[arg(long, requires = "watch")]
    pub(crate) no_tui: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Arguments of `squall test scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall test scale --users 200")]
pub(crate) struct ScaleArgs {
    /// New number of users
    #[arg(
        long,
        short = 'c',
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(0..=squall_web::MAX_USERS)
    )]
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
    /// New rate: starts per second, minute or hour
    #[arg(value_name = "RATE", value_parser = parse_rate_or_zero)]
    pub(crate) rate: f64,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Parses a rate that may be 0.
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
    /// Abort the iterations that have started
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
  squall up --history                    keep finished runs in .squall/runs

Starts redis-server (or valkey-server) from the PATH on a private port, unless
--redis is given; without either, the whole fleet runs in one process.
`squall down` stops the processes that `squall up` started.")]
pub(crate) struct UpArgs {
    /// Number of workers
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Use this Redis server instead of starting one
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) redis: Option<String>,
    /// Address of the API
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Name of the fleet, if several share a server
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) fleet: String,
    /// The scenario that POST /start_test starts. Of several in a Python file: FILE:CLASS or
    /// MODULE:CLASS
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Base URL, instead of the one in the scenario. A Python scenario without any gets it from the
    /// parameters of the test
    #[arg(long, value_name = "URL", requires = "scenario")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) shown: WebUiArgs,
    /// Let web pages of this origin use the API, e.g. http://localhost:5173; repeatable
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Bearer token that clients must send; required to listen beyond this machine
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Secret>,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Run the whole fleet in one process, without Redis
    #[arg(long, conflicts_with = "redis")]
    pub(crate) in_memory: bool,
}

/// Arguments of `squall down`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall down")]
pub(crate) struct DownArgs {}
