//! The command line as people type it. Says what may be given, with help and examples; judges nothing beyond its grammar, so that
//! a flag and the same key of a file are judged by the same code.

mod compare;
mod fleet;
mod http;
mod load;
mod output;
mod run;
mod search;
mod worker;

use clap::{Args, Parser, Subcommand, builder::styling};
use clap_complete::Shell;
use std::path::PathBuf;

pub(crate) use compare::CompareArgs;
pub(crate) use fleet::{ApiArgs, DownArgs, OrchestratorArgs, StartArgs, StatusArgs, TestCommand, UpArgs};
pub(crate) use http::{HttpArgs, RequestArgs};
pub(crate) use load::LoadArgs;
pub(crate) use output::OutputArgs;
pub(crate) use run::{EngineArgs, RunArgs};
pub(crate) use search::SearchArgs;
pub(crate) use worker::{LoadWorkerArgs, LogFormat};

/// Load tests, measured right.
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
  squall target                          a shop API to try things on
  squall run http://127.0.0.1:8089/health --rate 500 --for 30s
  squall run shop.toml --html report.html
  squall compare before.json after.json
  squall new shop                        a folder to start from
  squall up --workers 3                  a fleet; `squall down` ends it

Exit codes: 0 passed, 1 threshold breached or slower, 2 usage, 3 target not reached, 4 generator too slow (--strict), \
130 interrupted. NO_COLOR turns colours off.";

const STREAM_EXAMPLES: &str = "\
Examples:
  squall stream send myapp.orders '{\"id\":1,\"amount\":99}' --partition-by id
  squall stream sendmany myapp.orders orders.jsonl --partition-by order_id
  squall stream tail myapp.orders --from-start --count 10
  squall stream lag myapp.orders.printer
  squall stream members myapp.orders.printer --json
  squall stream worker shop:app           processors in Python; docs/streams.md

The server is given by --redis or SQUALL_REDIS.";

const TEST_EXAMPLES: &str = "\
Examples:
  squall test start shop.toml --users 50 --for 5m
  squall test status --watch
  squall test scale --users 200
  squall test rate 500
  squall test pause
  squall test stop

The API is given by --api or SQUALL_API, its token by --token or SQUALL_TOKEN.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a load test: a URL, or a scenario in TOML or Python
    Run(Box<RunArgs>),
    /// Tell whether a run got slower than another, with statistics
    Compare(CompareArgs),
    /// Serve a shop API to try load tests on
    Target(TargetArgs),
    /// Make a folder with a scenario to start from
    New(NewArgs),
    /// Be one of a fleet's load generators
    Worker(LoadWorkerArgs),
    /// Lead a fleet and serve its API
    Orchestrator(Box<OrchestratorArgs>),
    /// Start, show and steer the test of a fleet
    #[command(after_help = TEST_EXAMPLES)]
    Test {
        #[command(subcommand)]
        command: TestCommand,
    },
    /// Start a whole fleet on this machine
    Up(UpArgs),
    /// End what `squall up` started
    Down(DownArgs),
    /// Ordered streams on Redis: send records, see who processes them and how far they are
    #[command(after_help = STREAM_EXAMPLES)]
    Stream {
        #[command(subcommand)]
        command: squall_streams::cli::StreamCommand,
    },
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// Arguments of `squall target`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall target
  squall target --listen 127.0.0.1:9000 --threads 2
  curl http://127.0.0.1:8089/            what it serves
  curl http://127.0.0.1:8089/stats       what it has received")]
pub(crate) struct TargetArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8089")]
    pub(crate) listen: String,
    /// Serving threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Listen on an address that others can reach. There is no login: anyone may use it
    #[arg(long)]
    pub(crate) allow_remote: bool,
}

/// Arguments of `squall new`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall new shop
  cd shop && squall run scenario.toml --check")]
pub(crate) struct NewArgs {
    /// The folder to make; nothing that exists is overwritten
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Arguments of `squall completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall completions bash > ~/.local/share/bash-completion/completions/squall
  squall completions zsh > \"${fpath[1]}/_squall\"
  squall completions fish > ~/.config/fish/completions/squall.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell to print it for
    pub(crate) shell: Shell,
}

/// A fleet's name is part of its keys in Redis, between braces.
pub(crate) fn parse_fleet_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() > 100 || !text.chars().all(fits) {
        return Err("a fleet's name has letters, digits, `-`, `_` and `.` only".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every command, with the words that lead to it.
    fn all(command: &clap::Command, words: &str, out: &mut Vec<(String, clap::Command)>) {
        out.push((words.to_owned(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            all(inner, &format!("{words} {}", inner.get_name()), out);
        }
    }

    #[test]
    fn every_command_has_examples_that_fit_a_terminal_of_80_columns() {
        let mut commands = Vec::new();
        all(&Cli::command(), "squall", &mut commands);
        assert!(commands.len() > 25, "{}", commands.len());
        for (words, command) in commands {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).collect();
            assert!(help.contains("Examples:"), "`{words} --help` has no examples");
            assert!(
                examples.iter().any(|line| line.trim_start().starts_with(&words)),
                "`{words}` is in none of {help}"
            );
            for line in examples {
                assert!(line.chars().count() <= 80, "`{words} --help` is torn up: {line}");
            }
        }
    }
}
