//! `squall compare`: reads two result files and prints their comparison. squall-report compares
//! them.

use squall_report::{ResultFile, compare as compare_results};
use std::path::Path;

use crate::{
    args::CompareArgs,
    exit::{CliError, error_chain},
    terminal::{self, print},
};

pub(crate) fn compare(args: &CompareArgs) -> Result<u8, CliError> {
    let (base, new) = match args.results.as_slice() {
        [new] => (read_baseline(&args.baseline)?, read(new)?),
        [base, new] => (read(base)?, read(new)?),
        _ => return Err(CliError::new("give one result file or two")),
    };
    let comparison = compare_results(&base, &new, args.tolerance);
    let text = match args.json {
        true => serde_json::to_string_pretty(&comparison).expect("every field has a JSON form") + "\n",
        false => comparison.table(terminal::stdout_style()),
    };
    print::stdout(text.as_bytes())?;
    Ok(comparison.exit_code())
}

fn read_baseline(path: &Path) -> Result<ResultFile, CliError> {
    if !path.exists() {
        return Err(CliError::new(format!(
            "no baseline at {}: make one with `squall run … --save-baseline`, or give two results",
            path.display()
        )));
    }
    read(path)
}

fn read(path: &Path) -> Result<ResultFile, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| CliError::file_error("read", path, &error))?;
    ResultFile::parse(&text).map_err(|error| CliError::new(format!("{}: {}", path.display(), error_chain(&error))))
}
