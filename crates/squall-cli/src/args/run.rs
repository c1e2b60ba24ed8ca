//! The arguments of `squall run`: input, thresholds, Python, generator and fleet. The load, HTTP,
//! search and output flags have files of their own.

use clap::Args;
use std::{path::PathBuf, time::Duration};

use super::{HttpArgs, LoadArgs, OutputArgs, RequestArgs, SearchArgs};

const EXAMPLES: &str = "\
Examples:
  squall run http://127.0.0.1:8089/health --rate 500 --for 30s
  squall run http://127.0.0.1:8089/health --users 50 --pause 1s -t 'p99<200ms'
  squall run http://127.0.0.1:8089/health --stages 10s:100,30s:500 --html
  squall run shop.toml --target http://127.0.0.1:8089 --json result.json
  squall run shop.toml --check
  squall run shop.py --target http://127.0.0.1:8089 --rate 200 --for 1m
  squall run shop.toml --cluster redis://127.0.0.1:6379
  squall run shop.toml --cluster         on the fleet of `squall up`
  squall run --plan - < plan.json
  squall run shop.py --cluster redis://127.0.0.1 --requirements requirements.txt
  squall run http://127.0.0.1:8089/api/products --find-max 'p99<50ms'
  squall run shop.toml --web --history   watch it in a browser, and keep it
  squall run http://127.0.0.1:8089/health --bearer @token.txt --rate 50

The load is open (--rate: starts follow the clock, even if the target is slow)
or closed (--users: each user waits for its response). Ctrl-C finishes the
iterations that have started and reports; a second Ctrl-C aborts.

SQUALL_RATE, SQUALL_FOR, … or the table [run] of ./squall.toml set flags that
are not given; --check shows where each value comes from.

Exit codes: 0 passed, 1 threshold breached or nothing measured, 2 usage,
3 target not reached, 4 load not made, 130 interrupted.";

/// Arguments of `squall run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The arguments as typed, without the program name
    #[arg(skip)]
    pub(crate) raw_args: Vec<String>,
    /// Where the flags come from
    #[arg(skip)]
    pub(crate) origins: Vec<crate::preset_flags::FlagOrigin>,
    /// A URL, or a scenario file (.toml, .py)
    #[arg(value_name = "URL|FILE")]
    pub(crate) input: Option<String>,
    /// Run a LoadPilot plan (JSON); - is standard input. Implies --json-lines, unless --json is
    /// given
    #[arg(long, value_name = "FILE|-", conflicts_with = "input")]
    pub(crate) plan: Option<PathBuf>,
    /// Base URL, instead of the one in the scenario
    #[arg(long, value_name = "URL")]
    pub(crate) target: Option<String>,
    /// Name of the run in reports
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Validate the scenario, print the plan and send nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Threshold of the run, e.g. 'p99<500ms', 'error_rate<1%', 'browse:p95[10s]<1s !abort';
    /// repeatable
    #[arg(long = "threshold", value_name = "THRESHOLD", short = 't')]
    pub(crate) thresholds: Vec<String>,
    /// Exit with 4 if the generator could not keep its schedule
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let a run pass that made less than 99 % of its planned starts
    #[arg(long, conflicts_with = "strict")]
    pub(crate) allow_missing: bool,
    #[command(flatten, next_help_heading = "Python (with a .py)")]
    pub(crate) script: ScriptArgs,
    #[command(flatten, next_help_heading = "Load")]
    pub(crate) load: LoadArgs,
    #[command(flatten, next_help_heading = "Request (with a URL)")]
    pub(crate) request: RequestArgs,
    #[command(flatten, next_help_heading = "HTTP")]
    pub(crate) http: HttpArgs,
    #[command(flatten, next_help_heading = "Search")]
    pub(crate) search: SearchArgs,
    #[command(flatten, next_help_heading = "Generator")]
    pub(crate) engine: EngineArgs,
    #[command(flatten, next_help_heading = "Fleet")]
    pub(crate) fleet: FleetArgs,
    /// Serve the web UI of the run, and after it while the page is open [without an address:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    #[arg(value_parser = web_address)]
    #[arg(help_heading = "Output", conflicts_with_all = ["cluster", "plan", "find_max"])]
    pub(crate) web: Option<String>,
    #[command(flatten, next_help_heading = "Output")]
    pub(crate) output: OutputArgs,
}

/// Flags of Python scenarios.
#[derive(Debug, Args)]
pub(crate) struct ScriptArgs {
    /// Which scenario to run, if the file has several
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// Parameter of on_init, or value of a variable of a TOML scenario; repeatable. The value can be
    /// @FILE or $VARIABLE
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// How the tasks run: auto (chosen from the code), static (constant tasks, no Python at run
    /// time), stepped (the engine resumes them), asyncio (on an asyncio loop, for code that awaits
    /// more than the client). With the name of a load profile, the same as --profile
    #[arg(
        long,
        value_name = "MODE",
        value_parser = ["auto", "stepped", "static", "asyncio", "constant", "ramp", "step", "spike"]
    )]
    pub(crate) mode: Option<String>,
    /// Number of processes that share the load, if one interpreter is too slow [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) processes: Option<u16>,
    /// Threads for plain functions that block, such as time.sleep or requests; 0 runs them on the
    /// thread of all users [default: 256, once one of them blocks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub(crate) threads_for_blocking: Option<u16>,
    /// Requirements file of pip; checked here and on each worker before anything is sent
    #[arg(long, value_name = "FILE")]
    pub(crate) requirements: Option<PathBuf>,
    /// Which of the processes this one is, and the run's seed: INDEX/COUNT/SEED
    #[arg(long, hide = true, value_name = "PART")]
    pub(crate) part: Option<String>,
}

/// The fleet to run on.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Run on the workers of the fleet at this Redis server [without a URL: the fleet of `squall up`]
    #[arg(long, value_name = "REDIS-URL", num_args = 0..=1, default_missing_value = "")]
    pub(crate) cluster: Option<String>,
    /// Name of the fleet, if several share a server
    #[arg(
        long,
        value_name = "NAME",
        default_value = "main",
        env = "SQUALL_FLEET",
        value_parser = crate::args::parse_fleet_name
    )]
    pub(crate) fleet: String,
}

/// Settings of the generator.
#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Engine threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Most users of an open load; further starts wait for a free user [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_users: Option<u32>,
    /// Users of an open load that start at once [default: as the load needs them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) start_users: Option<u32>,
    /// How long iterations may take after the end of the load [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = squall_model::parse_duration)]
    pub(crate) grace: Option<Duration>,
    /// Starts this close together share one wake-up of the engine; at most 100ms [default: 600us]
    #[arg(long, value_name = "DURATION", value_parser = parse_slack)]
    pub(crate) slack: Option<Duration>,
    /// A start counts as late after this delay [default: 10ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_late_after)]
    pub(crate) late_after: Option<Duration>,
}

/// Refuses 0, because every start happens a little after it is due.
fn parse_late_after(text: &str) -> Result<Duration, String> {
    let after = squall_model::parse_duration(text).map_err(|error| error.to_string())?;
    if after.is_zero() {
        Err("0 makes every start late: give a longer time, for example 10ms".to_owned())
    } else {
        Ok(after)
    }
}

/// Refuses more than 100 ms, which would be a lag of the generator's own making.
fn parse_slack(text: &str) -> Result<Duration, String> {
    let slack = squall_model::parse_duration(text).map_err(|error| error.to_string())?;
    if slack > Duration::from_millis(100) {
        Err("more than 100ms makes every start late: give at most 100ms".to_owned())
    } else {
        Ok(slack)
    }
}

/// Refuses the scenario of `squall run --web shop.toml`, which would be taken for the address.
fn web_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        true => Ok(text.to_owned()),
        false => Err("write HOST:PORT, or put the scenario before --web".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn scenario_after_web_is_not_taken_for_the_address() {
        use crate::args::Cli;
        use clap::Parser;
        for input in ["shop.toml", "http://127.0.0.1:8089/api"] {
            let error = Cli::try_parse_from(["squall", "run", "--web", input]).expect_err(input).to_string();
            assert!(error.contains("put the scenario before --web"), "{error}");
        }
        Cli::try_parse_from(["squall", "run", "shop.toml", "--web"]).expect("the default address");
        Cli::try_parse_from(["squall", "run", "--web", "127.0.0.1:0", "shop.toml"]).expect("an address");
    }
}
