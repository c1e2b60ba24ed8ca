//! Everything that a run leaves behind. It is opened before the run, so that a path that cannot be written is refused before
//! anything is sent; a document replaces an older one only when it is whole.

mod streams;

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, Observer};
use squall_report::{Run, Verdict, verdict};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    args::OutputArgs,
    exit::Refusal,
    output_file::OutputFile,
    prometheus::{Endpoint, LINGER},
    stop::StopButton,
    terminal,
};
use streams::Streams;

/// Everything that a run writes, except what it shows.
pub(crate) struct Outputs {
    documents: Vec<(Document, OutputFile)>,
    streams: Streams,
    endpoint: Option<Endpoint>,
}

/// A file that is written when the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Json,
    Html,
    Junit,
    Csv,
    Baseline,
}

impl Outputs {
    pub(crate) fn open(args: &OutputArgs) -> Result<Outputs, Refusal> {
        let wanted = [
            (Document::Json, &args.json),
            (Document::Html, &args.html),
            (Document::Junit, &args.junit),
            (Document::Csv, &args.csv),
            (Document::Baseline, &args.save_baseline),
        ];
        refuse_shared_places(wanted.iter().map(|(_, path)| *path).chain([&args.json_lines, &args.hdr]).flatten())?;
        let mut documents = Vec::new();
        for (document, path) in wanted {
            if let Some(path) = path {
                if document == Document::Baseline {
                    make_folder(path)?;
                }
                documents.push((document, OutputFile::open(path)?));
            }
        }
        let endpoint = args.prometheus.map(|addr| Endpoint::start(addr, args.allow_remote)).transpose()?;
        if let Some(endpoint) = endpoint.as_ref().filter(|_| !args.quiet) {
            terminal::say(format!("metrics for Prometheus: http://{}/metrics\n", endpoint.addr()));
        }
        Ok(Outputs { documents, streams: Streams::open(args)?, endpoint })
    }

    /// Whether standard output carries a document, so that nothing else may be printed there.
    pub(crate) fn uses_stdout(&self) -> bool {
        self.documents.iter().any(|(_, file)| file.is_stdout()) || self.streams.use_stdout()
    }

    /// Whether lines appear on standard output while the run lasts; they would tear up a live view.
    pub(crate) fn streams_to_stdout(&self) -> bool {
        self.streams.use_stdout()
    }

    /// Seconds of full histograms that must be kept for those who write them.
    pub(crate) fn keep_s(&self) -> u32 {
        self.streams.keep_s()
    }

    /// Writes what is written at the end, all that can be; says what was written, in the order of the flags, and what was not.
    /// Files come first. What somebody has to read is waited for, which the next press of the button ends.
    pub(crate) fn finish(&mut self, run: &Run<'_>, button: &StopButton) -> (Vec<String>, Vec<Refusal>) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.show_end(run);
        }
        let (mut said, mut failed) = (Vec::new(), Vec::new());
        let streams = self.streams.end(run);
        // Closed one by one: who reads a pipe waits for its end.
        let mut documents = std::mem::take(&mut self.documents);
        documents.sort_by_key(|(_, file)| !file.is_plain());
        for (document, mut file) in documents {
            if !file.is_plain() {
                button.over();
            }
            let shown = file.path().display().to_string();
            // Half a run, or one that met nobody, is nothing to compare later ones with.
            let partial =
                matches!(verdict(run), Verdict::Interrupted | Verdict::TargetUnreachable | Verdict::NothingMeasured);
            if document == Document::Baseline && partial {
                said.push(format!("{shown} is left as it was: this run is no baseline"));
                continue;
            }
            match file.replace_with(render(document, run).as_bytes(), button.patience()) {
                Ok(()) if file.is_stdout() => {}
                Ok(()) => said.push(format!("wrote {shown}")),
                Err(refusal) => failed.push(refusal),
            }
        }
        button.over();
        for stream in streams {
            match stream.close(button.patience()) {
                Ok(path) => said.extend(path.map(|path| format!("wrote {path}"))),
                Err(refusal) => failed.push(refusal),
            }
        }
        (said, failed)
    }

    /// Lets whoever scraped the run see its end. Somebody who has stopped the run does not want to wait.
    pub(crate) fn linger(self, button: &StopButton, quiet: bool) {
        let Some(endpoint) = self.endpoint.filter(|endpoint| endpoint.is_awaited() && button.presses() == 0) else {
            return;
        };
        button.not_over();
        if !quiet {
            let most = LINGER.as_secs();
            terminal::say(format!("the last numbers wait up to {most} s for Prometheus; Ctrl-C ends that\n"));
        }
        endpoint.linger(button);
    }
}

impl Observer for Outputs {
    fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        self.streams.second(plan, view, live);
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.second(plan, view, live);
        }
    }
}

/// Two outputs in one place would be one output and a riddle.
fn refuse_shared_places<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), Refusal> {
    let mut taken = HashSet::new();
    for path in paths {
        if path.as_os_str() == "-" && !taken.insert(path.clone()) {
            return Err(Refusal::new("only one output can go to standard output; give the others a path"));
        }
        if path.as_os_str() != "-" && !is_device(path) && !taken.insert(place(path)) {
            return Err(Refusal::new(format!("two outputs cannot both go to {}", path.display())));
        }
    }
    Ok(())
}

/// A file by the name that all its names lead to, whether it exists yet or not.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.to_owned())
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn make_folder(path: &Path) -> Result<(), Refusal> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|error| Refusal::file("create", folder, &error)),
        None => Ok(()),
    }
}

fn render(document: Document, run: &Run<'_>) -> String {
    match document {
        Document::Json | Document::Baseline => squall_report::result(run).to_json(),
        Document::Html => squall_report::html(run),
        Document::Junit => squall_report::junit(run),
        Document::Csv => squall_report::csv(run),
    }
}
