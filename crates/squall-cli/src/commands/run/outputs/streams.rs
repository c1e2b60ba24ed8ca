//! What is written while the run goes on: JSON lines and the HdrHistogram log. A stream that cannot be written any more ends, and
//! is reported when the run is over; the run itself goes on.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, LivePhase};
use squall_report::{HdrLog, Run, Tick, json_line};
use std::{
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    args::OutputArgs,
    exit::Refusal,
    terminal::speech::{self, Speech},
    tick::tick,
};

/// Seconds may close several at once after a hiccup; so many can be written late.
const KEEP_S: u32 = 30;

type Sink = Box<dyn Write>;

/// The streams that were asked for.
pub(crate) struct Streams {
    lines: Option<Stream<Sink>>,
    hdr: Option<Stream<HdrLog<Sink>>>,
    /// How far the run was when it was last seen. At its end it is told how long it was, which is less than that.
    seen: Duration,
}

/// A stream under way, where it goes and what went wrong.
struct Stream<W> {
    path: PathBuf,
    writer: W,
    /// Seconds written.
    done: usize,
    problem: Option<io::Error>,
    /// Where it is spoken, if somebody has to read it.
    speech: Option<Speech>,
}

/// A stream that is complete, but may not have been read yet.
pub(crate) struct Ended {
    path: PathBuf,
    speech: Option<Speech>,
    problem: Option<io::Error>,
}

impl Streams {
    pub(crate) fn open(args: &OutputArgs) -> Result<Streams, Refusal> {
        let lines = args
            .json_lines
            .as_deref()
            .map(|path| sink(path).map(|(sink, speech)| Stream::new(path, sink, speech)))
            .transpose()?;
        let log = |path: &Path| {
            let (sink, speech) = sink(path)?;
            let log = HdrLog::new(sink, SystemTime::now());
            Ok(Stream::new(path, log.map_err(|error| Refusal::file("write", path, &error))?, speech))
        };
        Ok(Streams { lines, hdr: args.hdr.as_deref().map(log).transpose()?, seen: Duration::ZERO })
    }

    pub(crate) fn use_stdout(&self) -> bool {
        let stdout = |path: &Path| path == Path::new("-");
        self.lines.as_ref().is_some_and(|s| stdout(&s.path)) || self.hdr.as_ref().is_some_and(|s| stdout(&s.path))
    }

    pub(crate) fn keep_s(&self) -> u32 {
        if self.hdr.is_some() { KEEP_S } else { 1 }
    }

    pub(crate) fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        let (seconds, last) = (view.timeline.len(), live.phase == LivePhase::Done);
        if let Some(lines) = &mut self.lines
            && (seconds > lines.done || last)
        {
            lines.done = seconds;
            self.seen = self.seen.max(live.elapsed);
            let line = json_line(&Tick { elapsed: self.seen, ..tick(plan, view, live) }) + "\n";
            lines.attempt(|writer| writer.write_all(line.as_bytes()).and_then(|()| writer.flush()));
        }
        if let Some(hdr) = &mut self.hdr {
            hdr.attempt(|log| log.second(view, live.elapsed));
        }
    }

    /// Writes what is left, as far as that can be done without anybody reading it.
    pub(crate) fn end(&mut self, run: &Run<'_>) -> Vec<Ended> {
        let lines = self.lines.take().map(|lines| lines.end(|mut writer| writer.flush()));
        let hdr = self.hdr.take().map(|mut hdr| {
            hdr.attempt(|log| log.second(run.view, run.facts.elapsed));
            hdr.end(|log| log.finish().and_then(|mut writer| writer.flush()))
        });
        lines.into_iter().chain(hdr).collect()
    }
}

impl<W> Stream<W> {
    fn new(path: &Path, writer: W, speech: Option<Speech>) -> Stream<W> {
        Stream { path: path.to_owned(), writer, done: 0, problem: None, speech }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.problem.is_none() {
            self.problem = write(&mut self.writer).err();
        }
    }

    fn end(self, end: impl FnOnce(W) -> io::Result<()>) -> Ended {
        let Stream { path, writer, speech, problem, .. } = self;
        let problem = problem.or_else(|| end(writer).err());
        Ended { path, speech, problem }
    }
}

impl Ended {
    /// Waits until it has been read, if somebody must; gives the file written, or what went wrong.
    pub(crate) fn close(self, patience: Option<Duration>) -> Result<Option<String>, Refusal> {
        let settle = || self.speech.and_then(|speech| speech.settle(patience).err());
        let problem = self.problem.or_else(settle);
        match problem {
            // A reader that has seen enough (`| head`) is no failure.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(Refusal::file("write", &self.path, &error)),
            _ => Ok(Some(self.path.display().to_string()).filter(|path| path != "-")),
        }
    }
}

fn sink(path: &Path) -> Result<(Sink, Option<Speech>), Refusal> {
    let speech = match path == Path::new("-") {
        true => speech::stdout().clone(),
        false => {
            let file = File::create(path).map_err(|error| Refusal::file("write", path, &error))?;
            if file.metadata().is_ok_and(|found| found.is_file()) {
                return Ok((Box::new(BufWriter::new(file)), None));
            }
            Speech::to(file)
        }
    };
    Ok((Box::new(speech.writer()), Some(speech)))
}
