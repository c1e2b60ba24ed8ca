//! `squall runs`: lists, shows, compares, annotates and removes the runs of a folder. squall-history
//! reads and writes the files, squall-report compares and renders.

use squall_history::{RunEntry, RunFilter, RunFolder, RunId, RunList};
use squall_report::{RecordedRun, ResultFile, summary};
use std::{
    io::{self, IsTerminal},
    path::Path,
};

use super::{
    compare::{self, ComparisonOutputs},
    run::outputs::{ReportDocument, render},
};
use crate::{
    args::{RunsCommand, RunsCompareArgs, RunsListArgs, RunsRemoveArgs, RunsShowArgs},
    exit::{CliError, PASSED, error_chain},
    output_file::OutputFile,
    run_history,
    terminal::{
        self,
        format::{count, time},
        print,
    },
};

pub(crate) fn runs(command: &RunsCommand) -> Result<u8, CliError> {
    match command {
        RunsCommand::List(args) => list(args),
        RunsCommand::Show(args) => show(args),
        RunsCommand::Compare(args) => compare_runs(args),
        RunsCommand::Note(args) => {
            let folder = run_history::read_only(&args.folder.history);
            let id = find(&folder, &args.run)?;
            folder.set_note(&id, &args.text).map_err(|error| CliError::new(error_chain(&error)))?;
            Ok(PASSED)
        }
        RunsCommand::Rm(args) => remove(args),
    }
}

fn list(args: &RunsListArgs) -> Result<u8, CliError> {
    let folder = run_history::read_only(&args.folder.history);
    let mut list = folder.list().map_err(|error| CliError::new(error_chain(&error)))?;
    let filter = RunFilter { search: args.words.join(" "), verdict: args.verdict };
    let total = list.runs.len();
    list.runs.retain(|run| filter.matches(run));
    if args.json {
        let text = serde_json::to_string_pretty(&list).expect("every field has a JSON form") + "\n";
        print::stdout(text.as_bytes())?;
        return Ok(PASSED);
    }
    let text = match (total, list.runs.len()) {
        (0, _) => format!("no runs in {}: `squall run … --history` keeps one\n", folder.path().display()),
        (total, 0) => format!("none of the {total} runs in {} matches\n", folder.path().display()),
        _ => table(&list, io::stdout().is_terminal().then(|| terminal::stdout_style().width)),
    };
    print::stdout(text.as_bytes())?;
    for skipped in &list.skipped {
        let file = folder.path().join(&skipped.file);
        terminal::print_stderr(format!("skipped {}: {}\n", file.display(), skipped.reason));
    }
    Ok(PASSED)
}

/// One line for each run, cut to the width of a terminal.
fn table(list: &RunList, width: Option<usize>) -> String {
    let head = ["RUN", "LOAD", "LENGTH", "VERDICT", "REQUESTS", "P99", "ERRORS", "NOTE"].map(str::to_owned);
    let rows: Vec<[String; 8]> = [head].into_iter().chain(list.runs.iter().map(cells)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    // Numbers are right-aligned.
    let is_number = |column: usize| matches!(column, 2 | 4 | 5 | 6);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if is_number(column) { pad + cell } else { format!("{cell}{pad}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += squall_report::truncate_to_width(line.trim_end(), width.unwrap_or(usize::MAX)).as_ref();
        text.push('\n');
    }
    text
}

fn cells(run: &RunEntry) -> [String; 8] {
    let clean = |text: &str| text.replace(char::is_control, " ");
    [
        run.id.to_string(),
        clean(&run.load),
        time(run.active_s * 1e9),
        run.verdict.name().replace('_', " "),
        count(run.requests),
        time(run.p99_ms * 1e6),
        count(run.errors),
        clean(&run.note),
    ]
}

fn show(args: &RunsShowArgs) -> Result<u8, CliError> {
    let folder = run_history::read_only(&args.folder.history);
    let id = find(&folder, &args.run)?;
    if args.json {
        let text = folder.read_text(&id).map_err(|error| CliError::new(error_chain(&error)))?;
        print::stdout(text.as_bytes())?;
        return Ok(PASSED);
    }
    let run = RecordedRun::restore(&read(&folder, &id)?)
        .map_err(|error| CliError::new(format!("{id}: {}", error_chain(&error))))?;
    let run = run.report_input();
    if let Some(path) = &args.html {
        return write_html(path, &render(ReportDocument::Html, &run));
    }
    let note = folder.get(&id).map(|run| run.note).unwrap_or_default();
    let mut text = summary(&run, terminal::stdout_style());
    if !note.is_empty() {
        text += &format!("\n  note: {}\n", note.replace(char::is_control, " "));
    }
    print::stdout(text.as_bytes())?;
    Ok(PASSED)
}

fn write_html(path: &Path, text: &str) -> Result<u8, CliError> {
    let mut file = OutputFile::open(path)?;
    file.replace_with(text.as_bytes(), None)?;
    if !file.is_stdout() {
        terminal::print_stderr(format!("wrote {}\n", path.display()));
    }
    Ok(PASSED)
}

fn compare_runs(args: &RunsCompareArgs) -> Result<u8, CliError> {
    let folder = run_history::read_only(&args.folder.history);
    let read = |word: &String| read(&folder, &find(&folder, word)?);
    let (base, new) = match args.runs.as_slice() {
        [new] => (compare::read_baseline(&args.baseline)?, read(new)?),
        [base, new] => (read(base)?, read(new)?),
        _ => return Err(CliError::new("give one run or two")),
    };
    let outputs = ComparisonOutputs { json: args.json, html: args.html.as_deref() };
    compare::print_comparison(&base, &new, args.tolerance, outputs)
}

fn remove(args: &RunsRemoveArgs) -> Result<u8, CliError> {
    let folder = run_history::read_only(&args.folder.history);
    let ids = args.runs.iter().map(|word| find(&folder, word)).collect::<Result<Vec<RunId>, _>>()?;
    for id in ids {
        folder.remove(&id).map_err(|error| CliError::new(error_chain(&error)))?;
        terminal::print_stderr(format!("removed {id}\n"));
    }
    Ok(PASSED)
}

fn find(folder: &RunFolder, word: &str) -> Result<RunId, CliError> {
    folder.find(word).map_err(|error| {
        CliError::new(format!(
            "{}; `squall runs list --history {}` lists them",
            error_chain(&error).trim_end_matches('?'),
            folder.path().display()
        ))
    })
}

fn read(folder: &RunFolder, id: &RunId) -> Result<ResultFile, CliError> {
    folder.read(id).map_err(|error| CliError::new(error_chain(&error)))
}
