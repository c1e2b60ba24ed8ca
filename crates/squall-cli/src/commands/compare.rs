//! `squall compare`: reads two result files and prints their comparison. squall-report compares
//! them.

use squall_report::{ResultFile, compare as compare_results, comparison_html};
use std::path::Path;

use super::run::read_text;
use crate::{
    args::CompareArgs,
    exit::{CliError, error_chain},
    output_file::OutputFile,
    terminal::{self, print},
};

pub(crate) fn compare(args: &CompareArgs) -> Result<u8, CliError> {
    let (base, new) = match args.results.as_slice() {
        [new] => (read_baseline(&args.baseline)?, read_result(new)?),
        [base, new] => (read_result(base)?, read_result(new)?),
        _ => return Err(CliError::new("give one result file or two")),
    };
    let outputs = ComparisonOutputs { json: args.json, html: args.html.as_deref() };
    print_comparison(&base, &new, args.tolerance, outputs)
}

/// How a comparison is shown.
pub(super) struct ComparisonOutputs<'a> {
    pub(super) json: bool,
    pub(super) html: Option<&'a Path>,
}

/// Compares, prints and writes; returns the exit code.
pub(super) fn print_comparison(
    base: &ResultFile,
    new: &ResultFile,
    tolerance: f64,
    outputs: ComparisonOutputs<'_>,
) -> Result<u8, CliError> {
    let comparison = compare_results(base, new, tolerance);
    if let Some(path) = outputs.html {
        let mut file = OutputFile::open(path)?;
        file.replace_with(comparison_html(&comparison, base, new).as_bytes(), None)?;
        if file.is_stdout() {
            return Ok(comparison.exit_code());
        }
        terminal::print_stderr(format!("wrote {}\n", path.display()));
    }
    let text = match outputs.json {
        true => serde_json::to_string_pretty(&comparison).expect("every field has a JSON form") + "\n",
        false => comparison.table(terminal::stdout_style()),
    };
    print::stdout(text.as_bytes())?;
    Ok(comparison.exit_code())
}

pub(super) fn read_baseline(path: &Path) -> Result<ResultFile, CliError> {
    if !path.exists() {
        return Err(CliError::new(format!(
            "no baseline at {}: make one with `squall run … --save-baseline`, or give two results",
            path.display()
        )));
    }
    read_result(path)
}

/// Reads a result file.
pub(super) fn read_result(path: &Path) -> Result<ResultFile, CliError> {
    let text = read_text(path)?;
    ResultFile::parse(&text).map_err(|error| CliError::new(format!("{}: {}", path.display(), error_chain(&error))))
}
