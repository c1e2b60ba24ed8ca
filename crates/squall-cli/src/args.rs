//! The command line: commands, flags, help texts and examples. Validates only its grammar:
//! squall-scenario validates the values, so that a flag and the same key of a file are checked by
//! the same code.

mod compare;
#[cfg(feature = "cql")]
mod cql;
mod fleet;
#[cfg(feature = "grid")]
mod grid;
mod history;
mod http;
mod load;
mod output;
mod report;
mod run;
mod search;
mod suggestions;
mod worker;

use clap::{Args, Parser, Subcommand, builder::styling};
use clap_complete::Shell;
use std::path::PathBuf;

pub(crate) use compare::CompareArgs;
#[cfg(feature = "cql")]
pub(crate) use cql::{CqlArgs, move_cql_flags};
pub(crate) use fleet::{ApiArgs, DownArgs, OrchestratorArgs, Secret, StartArgs, StatusArgs, TestCommand, UpArgs};
#[cfg(feature = "grid")]
pub(crate) use grid::{
    BrowserName, FileAccessArg, GridBrowserArgs, GridClientArgs, GridCommand, GridKeyCommand, GridKeyCreateArgs,
    GridKeyRevokeArgs, GridServeArgs, GridStatusArgs, GridUpArgs, GridWorkerArgs, IsolationArg, KeyScopeArg, Switch,
};
pub(crate) use history::{
    HistoryArgs, RunsCommand, RunsCompareArgs, RunsListArgs, RunsRemoveArgs, RunsShowArgs, UiArgs,
};
pub(crate) use http::{HttpArgs, RequestArgs};
pub(crate) use load::LoadArgs;
pub(crate) use output::{LineStyle, OutputArgs, PrometheusNames};
pub(crate) use report::ReportArgs;
#[cfg(feature = "cql")]
pub(crate) use run::FleetArgs;
pub(crate) use run::{EngineArgs, RunArgs};
pub(crate) use search::SearchArgs;
pub(crate) use suggestions::{add_suggestion, run_flag_hint};
pub(crate) use worker::{LoadWorkerArgs, LogFormat};

/// Load testing with correct measurements.
#[derive(Debug, Parser)]
#[command(name = "squall", version = env!("SQUALL_VERSION"), styles = STYLES, arg_required_else_help = true)]
#[command(after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

const STYLES: styling::Styles = styling::Styles::styled()
    .header(styling::AnsiColor::Green.on_default().bold())
    .usage(styling::AnsiColor::Green.on_default().bold())
    .literal(styling::AnsiColor::Cyan.on_default().bold())
    .placeholder(styling::AnsiColor::Cyan.on_default());

const EXAMPLES: &str = "\
Examples:
  squall target                          a shop API to test against
  squall run http://127.0.0.1:8089/health --rate 500 --for 30s
  squall run shop.toml --html report.html
  squall compare before.json after.json
  squall report result.json --html       a report of a saved result
  squall run shop.toml --history ; squall runs list
  squall new shop                        a folder with a scenario
  squall up --workers 3                  a fleet; `squall down` stops it

Exit codes: 0 passed, 1 threshold breached, nothing measured or slower, 2 usage,
3 target not reached, 4 load not made, 130 interrupted.
NO_COLOR turns colours off.";

const STREAM_EXAMPLES: &str = "\
Examples:
  squall stream send myapp.orders '{\"id\":1,\"amount\":99}' --partition-by id
  squall stream sendmany myapp.orders orders.jsonl --partition-by order_id
  squall stream tail myapp.orders --from-start --count 10
  squall stream lag myapp.orders.printer
  squall stream members myapp.orders.printer --json
  squall stream worker shop:app           processors in Python; docs/streams.md

--redis or SQUALL_REDIS sets the server.";

const TEST_EXAMPLES: &str = "\
Examples:
  squall test start shop.toml --users 50 --for 5m
  squall test status --watch
  squall test scale --users 200
  squall test rate 500
  squall test pause
  squall test stop

--api or SQUALL_API sets the API, --token or SQUALL_TOKEN its token.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a load test: a URL, or a scenario in TOML or Python
    Run(Box<RunArgs>),
    /// Compare two runs: is one significantly slower?
    Compare(CompareArgs),
    /// Render a saved result again: as text, HTML, JUnit or CSV
    Report(ReportArgs),
    /// The history: list, show, compare, annotate and remove runs
    #[command(after_help = history::RUNS_EXAMPLES)]
    Runs {
        #[command(subcommand)]
        command: RunsCommand,
    },
    /// Serve the web UI for a folder of results
    Ui(UiArgs),
    /// Serve a shop API to run load tests against
    Target(TargetArgs),
    /// Create a folder with a scenario to start from
    New(NewArgs),
    /// Run a worker: one load generator of a fleet
    Worker(LoadWorkerArgs),
    /// Run an orchestrator: leads a fleet and serves its API
    Orchestrator(Box<OrchestratorArgs>),
    /// Start, show and control the test of a fleet
    #[command(after_help = TEST_EXAMPLES)]
    Test {
        #[command(subcommand)]
        command: TestCommand,
    },
    /// Start a fleet on this machine
    Up(UpArgs),
    /// Stop the fleet that `squall up` started
    Down(DownArgs),
    /// Ordered streams on Redis: send records, show processors and their lag
    #[command(after_help = STREAM_EXAMPLES)]
    Stream {
        #[command(subcommand)]
        command: squall_streams::cli::StreamCommand,
    },
    /// Load a CQL database with the command line of cassandra-stress
    #[cfg(feature = "cql")]
    Cql(Box<CqlArgs>),
    /// Load a CQL database (not in this build)
    #[cfg(not(feature = "cql"))]
    Cql(LeftOutArgs),
    /// A Playwright browser grid: one WebSocket URL, many browsers
    #[cfg(feature = "grid")]
    #[command(after_help = grid::GRID_EXAMPLES)]
    Grid {
        #[command(subcommand)]
        command: GridCommand,
    },
    /// A Playwright browser grid (not in this build)
    #[cfg(not(feature = "grid"))]
    Grid(LeftOutArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// The words after a command that this build does not have.
#[cfg(not(all(feature = "cql", feature = "grid")))]
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LeftOutArgs {
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    _words: Vec<String>,
}

/// Arguments of `squall target`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall target
  squall target --listen 127.0.0.1:9000 --threads 2
  curl http://127.0.0.1:8089/            its endpoints
  curl http://127.0.0.1:8089/stats       the requests it has received")]
pub(crate) struct TargetArgs {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8089")]
    pub(crate) listen: String,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Let --listen use addresses that other machines reach, without authentication
    #[arg(long)]
    pub(crate) allow_remote: bool,
}

/// Arguments of `squall new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall new shop
  squall new shop --python
  cd shop && squall run scenario.toml --check")]
pub(crate) struct NewArgs {
    /// The folder to create; existing files are not overwritten
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Write the scenario in Python instead of TOML
    #[arg(long)]
    pub(crate) python: bool,
}

/// Arguments of `squall completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall completions bash > ~/.local/share/bash-completion/completions/squall
  squall completions zsh > \"${fpath[1]}/_squall\"
  squall completions fish > ~/.config/fish/completions/squall.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Parses the name of a fleet. It is part of the fleet's Redis keys, between braces.
pub(crate) fn parse_fleet_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() > 100 || !text.chars().all(fits) {
        return Err("use up to 100 letters, digits, `-`, `_` and `.`".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Adds the command and its subcommands to `out`, with the words that call each.
    fn collect(command: &clap::Command, words: &str, out: &mut Vec<(String, clap::Command)>) {
        out.push((words.to_owned(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            collect(inner, &format!("{words} {}", inner.get_name()), out);
        }
    }

    #[test]
    fn help_of_every_command_has_examples_and_fits_in_80_columns() {
        let mut commands = Vec::new();
        collect(&Cli::command(), "squall", &mut commands);
        assert!(commands.len() > 25, "{}", commands.len());
        for (words, command) in commands {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).collect();
            assert!(help.contains("Examples:"), "`{words} --help` has no examples");
            assert!(
                examples.iter().any(|line| line.trim_start().starts_with(&words)),
                "`{words}` is in none of {help}"
            );
            // The help of `squall stream` is in squall-streams; only its examples are checked here.
            let lines = if words.starts_with("squall stream ") { examples } else { help.lines().collect() };
            for line in lines {
                assert!(line.chars().count() <= 80, "`{words} --help` has a line over 80 columns: {line}");
            }
        }
    }
}
