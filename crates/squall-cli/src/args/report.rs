//! The arguments of `squall report`.

use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `squall report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall run shop.toml --json result.json ; squall report result.json
  squall report result.json --html report.html --junit junit.xml
  squall report .squall/baseline.json --csv

Writes what the run itself would have written with these flags. Without any,
prints the summary.

Exit codes: 0 rendered, also if the run did not pass, 2 usage.")]
pub(crate) struct ReportArgs {
    /// A result, as `squall run … --json FILE` writes it
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// Write a report with charts as one HTML file [without a path: squall-report.html]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-report.html")]
    pub(crate) html: Option<PathBuf>,
    /// Write the thresholds as JUnit test cases [without a path: squall-junit.xml]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-junit.xml")]
    pub(crate) junit: Option<PathBuf>,
    /// Write CSV, one line per metric [without a path: standard output]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the summary that a run prints [without a path: standard output]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) text: Option<PathBuf>,
}

impl ReportArgs {
    /// The flags of outputs that are written to a path, with their paths.
    pub(crate) fn files(&self) -> Vec<(&'static str, &Path)> {
        let all = [("--html", &self.html), ("--junit", &self.junit), ("--csv", &self.csv), ("--text", &self.text)];
        let given = all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
        given.filter(|(_, path)| path.as_os_str() != "-").collect()
    }
}
