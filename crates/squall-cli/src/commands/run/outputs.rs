//! The outputs of a run: report documents, live outputs and the Prometheus endpoint. Opened before
//! the run, so that a path that cannot be written is refused before anything is sent. squall-report
//! renders them; `commands::run` calls it.

mod live_outputs;

use squall_history::RunFolder;
use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LiveStatus, RunObserver};
use squall_report::{ReportInput, RunVerdict, TerminalStyle, verdict};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    args::OutputArgs,
    exit::CliError,
    output_file::OutputFile,
    prometheus::{FINAL_SCRAPE_TIMEOUT, PrometheusEndpoint},
    run_history,
    stop_button::StopButton,
    terminal,
};
use live_outputs::{FinishedOutput, LiveOutputs};

/// Everything that a run writes, except its display on the terminal.
pub(crate) struct RunOutputs {
    documents: Vec<(ReportDocument, OutputFile)>,
    live_outputs: LiveOutputs,
    endpoint: Option<PrometheusEndpoint>,
    history: Option<RunFolder>,
    /// Complete live outputs, which are still to be closed.
    unread_outputs: Vec<FinishedOutput>,
}

/// A notice for each output that was written and an error for each that was not.
#[derive(Debug, Default)]
pub(crate) struct WrittenOutputs {
    pub(crate) notices: Vec<String>,
    pub(crate) errors: Vec<CliError>,
}

/// A document that is written at the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportDocument {
    Json,
    Html,
    Junit,
    Csv,
    Baseline,
    /// The summary without colours; `squall report` writes it.
    Text,
}

impl RunOutputs {
    pub(crate) fn open(args: &OutputArgs) -> Result<RunOutputs, CliError> {
        let requested = [
            (ReportDocument::Json, &args.json),
            (ReportDocument::Html, &args.html),
            (ReportDocument::Junit, &args.junit),
            (ReportDocument::Csv, &args.csv),
            (ReportDocument::Baseline, &args.save_baseline),
        ];
        reject_shared_paths(requested.iter().map(|(_, path)| *path).chain([&args.json_lines, &args.hdr]).flatten())?;
        let mut documents = Vec::new();
        for (document, path) in requested {
            if let Some(path) = path {
                if document == ReportDocument::Baseline {
                    create_parent_folder(path)?;
                }
                documents.push((document, OutputFile::open(path)?));
            }
        }
        let endpoint = args
            .prometheus
            .map(|addr| PrometheusEndpoint::start(addr, args.allow_remote, args.prometheus_names))
            .transpose()?;
        if let Some(endpoint) = endpoint.as_ref().filter(|_| !args.quiet) {
            terminal::print_stderr(format!("metrics for Prometheus: http://{}/metrics\n", endpoint.addr()));
        }
        Ok(RunOutputs {
            documents,
            live_outputs: LiveOutputs::open(args)?,
            endpoint,
            history: run_history::open(&args.history)?,
            unread_outputs: Vec::new(),
        })
    }

    /// Whether standard output carries an output, so nothing else may be printed there.
    pub(crate) fn uses_stdout(&self) -> bool {
        self.documents.iter().any(|(_, file)| file.is_stdout()) || self.live_outputs.uses_stdout()
    }

    /// Whether lines appear on standard output during the run, where they would disturb the
    /// dashboard.
    pub(crate) fn writes_live_to_stdout(&self) -> bool {
        self.live_outputs.uses_stdout()
    }

    /// How many seconds of full histograms the run must keep for the outputs.
    pub(crate) fn histogram_window_s(&self) -> u32 {
        self.live_outputs.histogram_window_s()
    }

    /// Writes the outputs that wait for no reader. The next press of the button ends the process.
    pub(crate) fn write_files(&mut self, report: &ReportInput<'_>, button: &StopButton) -> WrittenOutputs {
        if let Some(endpoint) = &self.endpoint {
            endpoint.publish_final(report);
        }
        self.unread_outputs = self.live_outputs.finish(report);
        let (files, others) = self.documents.drain(..).partition(|(_, file)| file.is_regular_file());
        self.documents = others;
        let mut written = WrittenOutputs::default();
        written.write_documents(files, report, button);
        match self.history.take().map(|folder| run_history::save(&folder, report)) {
            Some(Ok(notice)) => written.notices.push(notice),
            Some(Err(error)) => written.errors.push(error),
            None => {}
        }
        button.exit_on_next_press();
        written
    }

    /// Writes the outputs whose readers may not read: pipes, devices and standard output.
    pub(crate) fn write_to_readers(
        &mut self,
        report: &ReportInput<'_>,
        button: &StopButton,
        written: &mut WrittenOutputs,
    ) {
        written.write_documents(std::mem::take(&mut self.documents), report, button);
        for output in self.unread_outputs.drain(..) {
            match output.close(button.flush_timeout()) {
                Ok(path) => written.notices.extend(path.map(|path| format!("wrote {path}"))),
                Err(error) => written.errors.push(error),
            }
        }
    }

    /// Waits for a scrape of the final metrics, unless the user has stopped the run.
    pub(crate) fn wait_for_final_scrape(self, button: &StopButton, quiet: bool) {
        let Some(endpoint) = self.endpoint.filter(|endpoint| endpoint.awaits_final_scrape() && button.presses() == 0)
        else {
            return;
        };
        button.keep_process_on_next_press();
        if !quiet {
            let timeout = FINAL_SCRAPE_TIMEOUT.as_secs();
            terminal::print_stderr(format!(
                "waiting up to {timeout} s for the last scrape of Prometheus; Ctrl-C ends the wait\n"
            ));
        }
        endpoint.wait_for_final_scrape(button);
    }
}

impl RunObserver for RunOutputs {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        self.live_outputs.record_second(plan, view, live);
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.on_update(plan, view, live);
        }
    }
}

impl WrittenOutputs {
    /// Each document is closed before the next is written, because the reader of a pipe waits for its end.
    fn write_documents(
        &mut self,
        documents: Vec<(ReportDocument, OutputFile)>,
        report: &ReportInput<'_>,
        button: &StopButton,
    ) {
        // A partial run is not comparable with later ones.
        let is_partial = matches!(
            verdict(report),
            RunVerdict::Interrupted
                | RunVerdict::TargetUnreachable
                | RunVerdict::NothingMeasured
                | RunVerdict::ScheduleMissed
        );
        for (document, mut file) in documents {
            let path = file.path().display().to_string();
            if document == ReportDocument::Baseline && is_partial {
                self.notices.push(format!("{path} is unchanged: a run without a complete result cannot be a baseline"));
                continue;
            }
            match file.replace_with(render(document, report).as_bytes(), button.flush_timeout()) {
                Ok(()) if file.is_stdout() => {}
                Ok(()) => self.notices.push(format!("wrote {path}")),
                Err(error) => self.errors.push(error),
            }
        }
    }
}

/// Refuses two outputs with one path, because the second would overwrite the first.
pub(crate) fn reject_shared_paths<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), CliError> {
    let mut used = HashSet::new();
    for path in paths {
        if path.as_os_str() == "-" && !used.insert(path.clone()) {
            return Err(CliError::new("only one output can go to standard output: give the others a path"));
        }
        if path.as_os_str() != "-" && !is_device(path) && !used.insert(canonical_path(path)) {
            return Err(CliError::new(format!("two outputs have the path {}: give each its own", path.display())));
        }
    }
    Ok(())
}

/// The absolute path without links, also of a file that does not exist yet.
fn canonical_path(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_folder = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn create_parent_folder(path: &Path) -> Result<(), CliError> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|error| CliError::file_error("create", folder, &error)),
        None => Ok(()),
    }
}

/// The content of `document`.
pub(crate) fn render(document: ReportDocument, report: &ReportInput<'_>) -> String {
    match document {
        ReportDocument::Json | ReportDocument::Baseline => squall_report::build_result(report).to_json(),
        ReportDocument::Html => squall_report::html(report),
        ReportDocument::Junit => squall_report::junit(report),
        ReportDocument::Csv => squall_report::csv(report),
        ReportDocument::Text => squall_report::summary(report, TerminalStyle::PLAIN),
    }
}
