//! The arguments of the history: `--history`, `squall runs` and `squall ui`.

use clap::{Args, Subcommand};
use squall_report::RunVerdict;
use std::path::PathBuf;

use super::search::parse_tolerance;

/// The folder of `--history` without a value, relative to the working directory.
pub(crate) const DEFAULT_FOLDER: &str = ".squall/runs";

/// Where finished runs are kept.
#[derive(Debug, Default, Args)]
pub(crate) struct HistoryArgs {
    /// Keep finished runs in this folder, for `squall runs` and the web UI [without a path:
    /// .squall/runs]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = DEFAULT_FOLDER)]
    pub(crate) history: Option<PathBuf>,
    /// Size of the folder in MiB; the oldest runs that Squall saved leave it first [default: 512]
    #[arg(long, value_name = "MIB", requires = "history", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) history_limit: Option<u64>,
}

/// The folder that a command reads.
#[derive(Debug, Args)]
pub(crate) struct FolderArgs {
    /// The folder of the runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_FOLDER)]
    pub(crate) history: PathBuf,
}

pub(crate) const RUNS_EXAMPLES: &str = "\
Examples:
  squall run shop.toml --history         keep the run in .squall/runs
  squall runs list
  squall runs list checkout --verdict passed
  squall runs show latest
  squall runs compare 203550 latest
  squall runs note latest 'after the cache fix'
  squall runs rm 20261117-203550-shop-3f2a91
  squall ui                              the same in a browser

A run is named by its id, by a part of it, or as `latest`.";

/// The subcommands of `squall runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs, the latest first
    List(RunsListArgs),
    /// Print the summary of a run
    Show(RunsShowArgs),
    /// Compare two runs, or one with the baseline, as `squall compare` does
    Compare(RunsCompareArgs),
    /// Write a note on a run
    Note(RunsNoteArgs),
    /// Remove runs
    Rm(RunsRemoveArgs),
}

/// Arguments of `squall runs list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall runs list
  squall runs list checkout peak         runs with both words
  squall runs list --verdict threshold_breached
  squall runs list --json | jq '.runs[0].p99_ms'
  squall runs list --history results/    a folder of result files")]
pub(crate) struct RunsListArgs {
    /// Words that must be in the id, name, target, load or note
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Only runs with this verdict
    #[arg(long, value_name = "VERDICT", value_parser = parse_verdict)]
    pub(crate) verdict: Option<RunVerdict>,
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Arguments of `squall runs show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall runs show latest
  squall runs show 203550 --json > result.json
  squall runs show latest --html report.html")]
pub(crate) struct RunsShowArgs {
    /// The run: its id, a part of it, or `latest`
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Print the result file
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
    /// Write the report as one HTML file [without a path: squall-report.html]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-report.html")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Arguments of `squall runs compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall runs compare 203550 latest
  squall runs compare latest             with the saved baseline
  squall runs compare 203550 latest --html

Exit codes: those of `squall compare`.")]
pub(crate) struct RunsCompareArgs {
    /// Two runs (before, after), or one to compare with the saved baseline
    #[arg(value_name = "RUN", num_args = 1..=2, required = true)]
    pub(crate) runs: Vec<String>,
    /// The saved baseline, if one run is given
    #[arg(long, value_name = "PATH", default_value = crate::baseline::DEFAULT_PATH)]
    pub(crate) baseline: PathBuf,
    /// Smaller changes are not a regression
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_tolerance)]
    pub(crate) tolerance: f64,
    /// Print the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the comparison as one HTML file too [without a path: squall-compare.html]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-compare.html")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Arguments of `squall runs note`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall runs note latest 'after the cache fix'
  squall runs note latest ''             removes the note")]
pub(crate) struct RunsNoteArgs {
    /// The run: its id, a part of it, or `latest`
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The note; an empty one removes it
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Arguments of `squall runs rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall runs rm 20261117-203550-shop-3f2a91
  squall runs rm 203550 204012

Removes nothing if one of the runs is unknown.")]
pub(crate) struct RunsRemoveArgs {
    /// The runs: ids or parts of them
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<String>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
}

/// Arguments of `squall ui`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall ui
  squall ui results/ --listen 127.0.0.1:9000

Serves the pages History and Compare for a folder of result files, in the
foreground until Ctrl-C. The web UI of a fleet is part of `squall up`, that of
a run part of `squall run --web`.")]
pub(crate) struct UiArgs {
    /// The folder of the results
    #[arg(value_name = "DIR", default_value = DEFAULT_FOLDER)]
    pub(crate) folder: PathBuf,
    /// Address of the page; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// The result to compare with
    #[arg(long, value_name = "PATH", default_value = crate::baseline::DEFAULT_PATH)]
    pub(crate) baseline: PathBuf,
    /// Token that the page asks for; required to listen beyond this machine
    #[arg(long, value_name = "TOKEN", env = "SQUALL_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<super::Secret>,
}

fn parse_verdict(text: &str) -> Result<RunVerdict, String> {
    let wanted = text.replace([' ', '-'], "_");
    RunVerdict::ALL.into_iter().find(|verdict| verdict.name() == wanted).ok_or_else(|| {
        let names = RunVerdict::ALL.map(RunVerdict::name);
        format!("`{text}` is not a verdict: give one of {}", names.join(", "))
    })
}
