//! Everything that a run leaves behind. It is opened before the run, so that a path that cannot be written is refused before
//! anything is sent; a document replaces an older one only when it is whole.

mod live_outputs;

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LiveStatus, RunObserver};
use squall_report::{ReportInput, RunVerdict, verdict};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    args::OutputArgs,
    exit::CliError,
    output_file::OutputFile,
    prometheus::{FINAL_SCRAPE_TIMEOUT, PrometheusEndpoint},
    stop_button::StopButton,
    terminal,
};
use live_outputs::LiveOutputs;

/// Everything that a run writes, except what it shows.
pub(crate) struct RunOutputs {
    documents: Vec<(ReportDocument, OutputFile)>,
    live_outputs: LiveOutputs,
    endpoint: Option<PrometheusEndpoint>,
}

/// A file that is written when the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportDocument {
    Json,
    Html,
    Junit,
    Csv,
    Baseline,
}

impl RunOutputs {
    pub(crate) fn open(args: &OutputArgs) -> Result<RunOutputs, CliError> {
        let wanted = [
            (ReportDocument::Json, &args.json),
            (ReportDocument::Html, &args.html),
            (ReportDocument::Junit, &args.junit),
            (ReportDocument::Csv, &args.csv),
            (ReportDocument::Baseline, &args.save_baseline),
        ];
        reject_shared_paths(wanted.iter().map(|(_, path)| *path).chain([&args.json_lines, &args.hdr]).flatten())?;
        let mut documents = Vec::new();
        for (document, path) in wanted {
            if let Some(path) = path {
                if document == ReportDocument::Baseline {
                    create_parent_folder(path)?;
                }
                documents.push((document, OutputFile::open(path)?));
            }
        }
        let endpoint = args.prometheus.map(|addr| PrometheusEndpoint::start(addr, args.allow_remote)).transpose()?;
        if let Some(endpoint) = endpoint.as_ref().filter(|_| !args.quiet) {
            terminal::print_stderr(format!("metrics for Prometheus: http://{}/metrics\n", endpoint.addr()));
        }
        Ok(RunOutputs { documents, live_outputs: LiveOutputs::open(args)?, endpoint })
    }

    /// Whether standard output carries a document, so that nothing else may be printed there.
    pub(crate) fn uses_stdout(&self) -> bool {
        self.documents.iter().any(|(_, file)| file.is_stdout()) || self.live_outputs.uses_stdout()
    }

    /// Whether lines appear on standard output while the run lasts; they would tear up a live view.
    pub(crate) fn writes_live_to_stdout(&self) -> bool {
        self.live_outputs.uses_stdout()
    }

    /// Seconds of full histograms that must be kept for those who write them.
    pub(crate) fn keep_s(&self) -> u32 {
        self.live_outputs.keep_s()
    }

    /// Writes what is written at the end, all that can be; says what was written, in the order of the flags, and what was not.
    /// Files come first. What somebody has to read is waited for, which the next press of the button ends.
    pub(crate) fn finish(&mut self, run: &ReportInput<'_>, button: &StopButton) -> (Vec<String>, Vec<CliError>) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.publish_final(run);
        }
        let (mut said, mut failed) = (Vec::new(), Vec::new());
        let streams = self.live_outputs.finish(run);
        // Closed one by one: who reads a pipe waits for its end.
        let mut documents = std::mem::take(&mut self.documents);
        documents.sort_by_key(|(_, file)| !file.is_regular_file());
        for (document, mut file) in documents {
            if !file.is_regular_file() {
                button.exit_on_next_press();
            }
            let shown = file.path().display().to_string();
            // Half a run, or one that met nobody, is nothing to compare later ones with.
            let partial = matches!(
                verdict(run),
                RunVerdict::Interrupted | RunVerdict::TargetUnreachable | RunVerdict::NothingMeasured
            );
            if document == ReportDocument::Baseline && partial {
                said.push(format!("{shown} is left as it was: this run is no baseline"));
                continue;
            }
            match file.replace_with(render(document, run).as_bytes(), button.flush_timeout()) {
                Ok(()) if file.is_stdout() => {}
                Ok(()) => said.push(format!("wrote {shown}")),
                Err(refusal) => failed.push(refusal),
            }
        }
        button.exit_on_next_press();
        for stream in streams {
            match stream.close(button.flush_timeout()) {
                Ok(path) => said.extend(path.map(|path| format!("wrote {path}"))),
                Err(refusal) => failed.push(refusal),
            }
        }
        (said, failed)
    }

    /// Lets whoever scraped the run see its end. Somebody who has stopped the run does not want to wait.
    pub(crate) fn wait_for_final_scrape(self, button: &StopButton, quiet: bool) {
        let Some(endpoint) = self.endpoint.filter(|endpoint| endpoint.awaits_final_scrape() && button.presses() == 0)
        else {
            return;
        };
        button.keep_process_on_next_press();
        if !quiet {
            let most = FINAL_SCRAPE_TIMEOUT.as_secs();
            terminal::print_stderr(format!("the last numbers wait up to {most} s for Prometheus; Ctrl-C ends that\n"));
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

/// Two outputs in one place would be one output and a riddle.
fn reject_shared_paths<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), CliError> {
    let mut taken = HashSet::new();
    for path in paths {
        if path.as_os_str() == "-" && !taken.insert(path.clone()) {
            return Err(CliError::new("only one output can go to standard output; give the others a path"));
        }
        if path.as_os_str() != "-" && !is_device(path) && !taken.insert(canonical_path(path)) {
            return Err(CliError::new(format!("two outputs cannot both go to {}", path.display())));
        }
    }
    Ok(())
}

/// A file by the name that all its names lead to, whether it exists yet or not.
fn canonical_path(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.to_owned())
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

fn render(document: ReportDocument, run: &ReportInput<'_>) -> String {
    match document {
        ReportDocument::Json | ReportDocument::Baseline => squall_report::build_result(run).to_json(),
        ReportDocument::Html => squall_report::html(run),
        ReportDocument::Junit => squall_report::junit(run),
        ReportDocument::Csv => squall_report::csv(run),
    }
}
