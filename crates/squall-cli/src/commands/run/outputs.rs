//! The files that a run leaves behind. They are opened before the run, so that a path that cannot be written is refused before
//! anything is sent; a result replaces an older one only when it is whole.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, Observer};
use squall_report::Run;
use std::path::Path;

use crate::{args::OutputArgs, exit::Refusal, output_file::OutputFile};

/// Everything that a run writes, except what it shows.
pub(crate) struct Outputs {
    documents: Vec<(Document, OutputFile)>,
}

/// A file that is written when the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Json,
    Baseline,
}

impl Outputs {
    pub(crate) fn open(args: &OutputArgs, _plan: &Plan) -> Result<Outputs, Refusal> {
        let wanted = [(Document::Json, &args.json), (Document::Baseline, &args.save_baseline)];
        let mut documents = Vec::new();
        for (document, path) in wanted {
            if let Some(path) = path {
                if document == Document::Baseline {
                    make_folder(path)?;
                }
                documents.push((document, OutputFile::open(path)?));
            }
        }
        Ok(Outputs { documents })
    }

    /// Whether standard output carries a document, so that nothing else may be printed there.
    pub(crate) fn needs_stdout_alone(&self) -> bool {
        self.documents.iter().any(|(_, file)| file.is_stdout())
    }

    /// Writes every document.
    pub(crate) fn write(&mut self, run: &Run<'_>) -> Result<(), Refusal> {
        for (document, file) in &mut self.documents {
            file.replace_with(render(*document, run).as_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn tell_what_was_written(&self, quiet: bool) {
        if quiet {
            return;
        }
        let paths = self.documents.iter().filter(|(_, file)| !file.is_stdout()).map(|(_, file)| file.path());
        for path in paths {
            eprintln!("wrote {}", path.display());
        }
    }
}

impl Observer for Outputs {
    fn second(&mut self, _plan: &Plan, _view: &RunView, _live: &Live) {}
}

fn make_folder(path: &Path) -> Result<(), Refusal> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|error| Refusal::file("create", folder, &error)),
        None => Ok(()),
    }
}

fn render(document: Document, run: &Run<'_>) -> String {
    match document {
        Document::Json | Document::Baseline => {
            let result = squall_report::result(run);
            serde_json::to_string_pretty(&result).expect("a result has only string keys") + "\n"
        }
    }
}
