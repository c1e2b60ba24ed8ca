//! The outputs that are written during the run: JSON lines and the HdrHistogram log. A failed write
//! ends the output and is reported at the end of the run; it does not end the run. `outputs` calls
//! it.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus};
use squall_report::{HdrLogWriter, LiveSnapshot, ReportInput, json_line, loadpilot_line};
use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    args::{LineStyle, OutputArgs},
    exit::CliError,
    output_file::FifoWriter,
    terminal::background_writer::{self, BackgroundWriter},
    tick::tick,
};

/// Seconds of histograms to keep, because several seconds may close at once after a delay.
const HISTOGRAM_WINDOW_S: u32 = 30;

type OutputSink = Box<dyn Write>;

/// The live outputs of a run.
pub(crate) struct LiveOutputs {
    lines: Option<LiveOutput<OutputSink>>,
    line_style: LineStyle,
    hdr: Option<LiveOutput<HdrLogWriter<OutputSink>>>,
    /// The largest elapsed time so far. The final status has a smaller one: the length of the run
    /// without the drain.
    last_elapsed: Duration,
}

/// An open output.
struct LiveOutput<W> {
    path: PathBuf,
    writer: W,
    seconds_written: usize,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
    /// Set for a pipe or standard output, whose reader may block the writer.
    background_writer: Option<BackgroundWriter>,
}

/// A complete output, which its reader may not have read yet.
pub(crate) struct FinishedOutput {
    path: PathBuf,
    background_writer: Option<BackgroundWriter>,
    error: Option<io::Error>,
}

impl LiveOutputs {
    pub(crate) fn open(args: &OutputArgs) -> Result<LiveOutputs, CliError> {
        let lines = args
            .json_lines
            .as_deref()
            .map(|path| open_sink(path).map(|(sink, writer)| LiveOutput::new(path, sink, writer)))
            .transpose()?;
        let log = |path: &Path| -> Result<_, CliError> {
            let (sink, background_writer) = open_sink(path)?;
            let log = HdrLogWriter::new(sink, SystemTime::now());
            Ok(LiveOutput::new(
                path,
                log.map_err(|error| CliError::file_error("write", path, &error))?,
                background_writer,
            ))
        };
        let hdr = args.hdr.as_deref().map(log).transpose()?;
        Ok(LiveOutputs { lines, line_style: args.line_style, hdr, last_elapsed: Duration::ZERO })
    }

    pub(crate) fn uses_stdout(&self) -> bool {
        let is_stdout = |path: &Path| path == Path::new("-");
        self.lines.as_ref().is_some_and(|output| is_stdout(&output.path))
            || self.hdr.as_ref().is_some_and(|output| is_stdout(&output.path))
    }

    pub(crate) fn histogram_window_s(&self) -> u32 {
        if self.hdr.is_some() { HISTOGRAM_WINDOW_S } else { 1 }
    }

    pub(crate) fn record_second(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        let (seconds, is_last) = (view.timeline.len(), live.phase == LivePhase::Done);
        if let Some(lines) = &mut self.lines
            && (seconds > lines.seconds_written || is_last)
        {
            lines.seconds_written = seconds;
            self.last_elapsed = self.last_elapsed.max(live.elapsed);
            let snapshot = LiveSnapshot { elapsed: self.last_elapsed, ..tick(plan, view, live) };
            let line = match self.line_style {
                LineStyle::Squall => json_line(&snapshot),
                LineStyle::Loadpilot => loadpilot_line(&snapshot),
            } + "\n";
            lines.try_write(|writer| writer.write_all(line.as_bytes()).and_then(|()| writer.flush()));
        }
        if let Some(hdr) = &mut self.hdr {
            hdr.try_write(|log| log.write_new_seconds(view, live.elapsed));
        }
    }

    /// Writes the rest without waiting for readers.
    pub(crate) fn finish(&mut self, report: &ReportInput<'_>) -> Vec<FinishedOutput> {
        let lines = self.lines.take().map(|lines| lines.finish(|mut writer| writer.flush()));
        let hdr = self.hdr.take().map(|mut hdr| {
            hdr.try_write(|log| log.write_new_seconds(report.view, report.facts.elapsed));
            hdr.finish(|log| log.finish().and_then(|mut writer| writer.flush()))
        });
        lines.into_iter().chain(hdr).collect()
    }
}

impl<W> LiveOutput<W> {
    fn new(path: &Path, writer: W, background_writer: Option<BackgroundWriter>) -> LiveOutput<W> {
        LiveOutput { path: path.to_owned(), writer, seconds_written: 0, error: None, background_writer }
    }

    fn try_write(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.writer).err();
        }
    }

    fn finish(self, end: impl FnOnce(W) -> io::Result<()>) -> FinishedOutput {
        let LiveOutput { path, writer, background_writer, error, .. } = self;
        let error = error.or_else(|| end(writer).err());
        FinishedOutput { path, background_writer, error }
    }
}

impl FinishedOutput {
    /// Waits until the reader of a pipe has read everything; returns the path of a written file.
    pub(crate) fn close(self, timeout: Option<Duration>) -> Result<Option<String>, CliError> {
        let flush = || self.background_writer.and_then(|writer| writer.flush(timeout).err());
        match self.error.or_else(flush) {
            // A closed pipe (`| head`) is not an error.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::file_error("write", &self.path, &error))
            }
            _ => Ok(Some(self.path.display().to_string()).filter(|path| path != "-")),
        }
    }
}

fn open_sink(path: &Path) -> Result<(OutputSink, Option<BackgroundWriter>), CliError> {
    let background_writer = match path == Path::new("-") {
        true => background_writer::stdout().clone(),
        false if FifoWriter::is_fifo(path) => BackgroundWriter::spawn(FifoWriter::new(path)),
        false => {
            let file = File::create(path).map_err(|error| CliError::file_error("write", path, &error))?;
            if file.metadata().is_ok_and(|found| found.is_file()) {
                return Ok((Box::new(BufWriter::new(file)), None));
            }
            BackgroundWriter::spawn(file)
        }
    };
    Ok((Box::new(background_writer.writer()), Some(background_writer)))
}
