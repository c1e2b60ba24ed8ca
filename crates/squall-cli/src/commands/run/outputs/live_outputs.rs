//! What is written while the run goes on: JSON lines and the HdrHistogram log. A stream that cannot be written any more ends, and
//! is reported when the run is over; the run itself goes on.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus};
use squall_report::{HdrLogWriter, LiveSnapshot, ReportInput, json_line};
use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    args::OutputArgs,
    exit::CliError,
    terminal::background_writer::{self, BackgroundWriter},
    tick::tick,
};

/// Seconds may close several at once after a hiccup; so many can be written late.
const KEEP_S: u32 = 30;

type OutputSink = Box<dyn Write>;

/// The streams that were asked for.
pub(crate) struct LiveOutputs {
    lines: Option<LiveOutput<OutputSink>>,
    hdr: Option<LiveOutput<HdrLogWriter<OutputSink>>>,
    /// How far the run was when it was last seen. At its end it is told how long it was, which is less than that.
    last_elapsed: Duration,
}

/// A stream under way, where it goes and what went wrong.
struct LiveOutput<W> {
    path: PathBuf,
    writer: W,
    /// Seconds written.
    seconds_written: usize,
    error: Option<io::Error>,
    /// Where it is spoken, if somebody has to read it.
    background_writer: Option<BackgroundWriter>,
}

/// A stream that is complete, but may not have been read yet.
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
            .map(|path| open_sink(path).map(|(sink, speech)| LiveOutput::new(path, sink, speech)))
            .transpose()?;
        let log = |path: &Path| {
            let (sink, speech) = open_sink(path)?;
            let log = HdrLogWriter::new(sink, SystemTime::now());
            Ok(LiveOutput::new(path, log.map_err(|error| CliError::file_error("write", path, &error))?, speech))
        };
        Ok(LiveOutputs { lines, hdr: args.hdr.as_deref().map(log).transpose()?, last_elapsed: Duration::ZERO })
    }

    pub(crate) fn uses_stdout(&self) -> bool {
        let stdout = |path: &Path| path == Path::new("-");
        self.lines.as_ref().is_some_and(|s| stdout(&s.path)) || self.hdr.as_ref().is_some_and(|s| stdout(&s.path))
    }

    pub(crate) fn keep_s(&self) -> u32 {
        if self.hdr.is_some() { KEEP_S } else { 1 }
    }

    pub(crate) fn record_second(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        let (seconds, last) = (view.timeline.len(), live.phase == LivePhase::Done);
        if let Some(lines) = &mut self.lines
            && (seconds > lines.seconds_written || last)
        {
            lines.seconds_written = seconds;
            self.last_elapsed = self.last_elapsed.max(live.elapsed);
            let line = json_line(&LiveSnapshot { elapsed: self.last_elapsed, ..tick(plan, view, live) }) + "\n";
            lines.try_write(|writer| writer.write_all(line.as_bytes()).and_then(|()| writer.flush()));
        }
        if let Some(hdr) = &mut self.hdr {
            hdr.try_write(|log| log.write_new_seconds(view, live.elapsed));
        }
    }

    /// Writes what is left, as far as that can be done without anybody reading it.
    pub(crate) fn finish(&mut self, run: &ReportInput<'_>) -> Vec<FinishedOutput> {
        let lines = self.lines.take().map(|lines| lines.finish(|mut writer| writer.flush()));
        let hdr = self.hdr.take().map(|mut hdr| {
            hdr.try_write(|log| log.write_new_seconds(run.view, run.facts.elapsed));
            hdr.finish(|log| log.finish().and_then(|mut writer| writer.flush()))
        });
        lines.into_iter().chain(hdr).collect()
    }
}

impl<W> LiveOutput<W> {
    fn new(path: &Path, writer: W, speech: Option<BackgroundWriter>) -> LiveOutput<W> {
        LiveOutput { path: path.to_owned(), writer, seconds_written: 0, error: None, background_writer: speech }
    }

    fn try_write(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.writer).err();
        }
    }

    fn finish(self, end: impl FnOnce(W) -> io::Result<()>) -> FinishedOutput {
        let LiveOutput { path, writer, background_writer: speech, error: problem, .. } = self;
        let problem = problem.or_else(|| end(writer).err());
        FinishedOutput { path, background_writer: speech, error: problem }
    }
}

impl FinishedOutput {
    /// Waits until it has been read, if somebody must; gives the file written, or what went wrong.
    pub(crate) fn close(self, patience: Option<Duration>) -> Result<Option<String>, CliError> {
        let settle = || self.background_writer.and_then(|speech| speech.flush(patience).err());
        let problem = self.error.or_else(settle);
        match problem {
            // A reader that has seen enough (`| head`) is no failure.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::file_error("write", &self.path, &error))
            }
            _ => Ok(Some(self.path.display().to_string()).filter(|path| path != "-")),
        }
    }
}

fn open_sink(path: &Path) -> Result<(OutputSink, Option<BackgroundWriter>), CliError> {
    let speech = match path == Path::new("-") {
        true => background_writer::stdout().clone(),
        false => {
            let file = File::create(path).map_err(|error| CliError::file_error("write", path, &error))?;
            if file.metadata().is_ok_and(|found| found.is_file()) {
                return Ok((Box::new(BufWriter::new(file)), None));
            }
            BackgroundWriter::spawn(file)
        }
    };
    Ok((Box::new(speech.writer()), Some(speech)))
}
