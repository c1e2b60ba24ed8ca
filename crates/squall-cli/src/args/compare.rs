//! The arguments of `squall compare`.

use clap::Args;
use std::path::PathBuf;

use super::search::parse_tolerance;

/// Arguments of `squall compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall compare before.json after.json
  squall run shop.toml --save-baseline   save a run as the baseline
  squall run shop.toml --json now.json ; squall compare now.json
  squall compare before.json after.json --tolerance 10% --json
  squall compare before.json after.json --html compare.html

A change counts if it is significant (Welch's test on batch means) and larger
than the tolerance.

Exit codes: 0 no regression, 1 a significant regression beyond the tolerance,
2 usage, or nothing to compare.")]
pub(crate) struct CompareArgs {
    /// Two results (before, after), or one to compare with the saved baseline
    #[arg(value_name = "RESULT", num_args = 1..=2, required = true)]
    pub(crate) results: Vec<PathBuf>,
    /// The saved baseline, if one result is given
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
}
