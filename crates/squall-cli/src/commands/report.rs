//! `squall report`: renders a saved result as the run itself did. squall-report restores the run and
//! renders it.

use squall_report::{RecordedRun, ReportInput, summary};
use std::{
    path::{Path, PathBuf},
    slice,
};

use super::{
    compare::read_result,
    run::outputs::{ReportDocument, reject_shared_paths, render},
};
use crate::{
    args::ReportArgs,
    exit::{CliError, PASSED, error_chain},
    input_files,
    output_file::OutputFile,
    terminal::{self, print},
};

pub(crate) fn report(args: &ReportArgs) -> Result<u8, CliError> {
    let requested = [
        (ReportDocument::Html, &args.html),
        (ReportDocument::Junit, &args.junit),
        (ReportDocument::Csv, &args.csv),
        (ReportDocument::Text, &args.text),
    ];
    let requested: Vec<(ReportDocument, &PathBuf)> =
        requested.into_iter().filter_map(|(document, path)| Some((document, path.as_ref()?))).collect();
    reject_shared_paths(requested.iter().map(|(_, path)| *path))?;
    input_files::reject_shared_files(&args.files(), slice::from_ref(&args.result))?;
    let run = RecordedRun::restore(&read_result(&args.result)?).map_err(|error| {
        CliError::new(format!(
            "{}: {}. `squall run … --json FILE` writes a result that can be rendered",
            args.result.display(),
            error_chain(&error)
        ))
    })?;
    let run = run.report_input();
    if requested.is_empty() {
        print_summary(&run)?;
    }
    for (document, path) in requested {
        write(document, path, &run)?;
    }
    Ok(PASSED)
}

fn write(document: ReportDocument, path: &Path, run: &ReportInput<'_>) -> Result<(), CliError> {
    let mut file = OutputFile::open(path)?;
    if document == ReportDocument::Text && file.is_stdout() {
        return print_summary(run);
    }
    file.replace_with(render(document, run).as_bytes(), None)?;
    if !file.is_stdout() {
        terminal::print_stderr(format!("wrote {}\n", path.display()));
    }
    Ok(())
}

fn print_summary(run: &ReportInput<'_>) -> Result<(), CliError> {
    print::stdout(summary(run, terminal::stdout_style()).as_bytes())
}
