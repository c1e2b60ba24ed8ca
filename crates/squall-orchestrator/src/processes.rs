//! Several child processes that make the load of one run. Each has an engine with a part of the
//! run's shares, and a socket to this process as its standard input. A child that loses its parent
//! ends. It computes nothing: the deltas of the children are merged like those of threads. `squall
//! run --processes` uses it.

mod child;
mod protocol;

use squall_engine::LoadOutcome;
use squall_metrics::{Delta, SourceId, decode_delta};
use squall_model::Profile;
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    net::{UnixStream, unix::OwnedReadHalf},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    load_generator::{GeneratorOutcome, LoadGenerator, StopHandle},
    local_run::RunError,
};
pub use child::{ProcessIndex, run_child_process};
use protocol::{ProcessCommand, ProcessFrame};

/// Deltas that wait to be merged. When the queue is full, the children wait.
const DELTA_QUEUE_CAPACITY: usize = 256;

/// Why the child processes could not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start process {number} of the run")]
    Start {
        number: usize,
        #[source]
        source: io::Error,
    },
    #[error("process {number} of the run ended before it was ready; its error message is above")]
    NotReady { number: usize },
    #[error("a process of the run died, and its measurements are lost")]
    Died,
}

/// The child processes of a run.
pub struct GeneratorProcesses {
    children: Vec<Child>,
    sources: Vec<SourceId>,
    commands: ProcessCommandSender,
    deltas: mpsc::Receiver<Delta>,
    readers: JoinSet<Option<protocol::ProcessSummary>>,
    /// Dropped with this value, because clones of `commands` may outlive it.
    writers: JoinSet<()>,
    summaries: Vec<protocol::ProcessSummary>,
    died: bool,
}

/// Sends commands to all child processes.
#[derive(Clone)]
pub struct ProcessCommandSender(Vec<mpsc::UnboundedSender<ProcessCommand>>);

impl ProcessCommandSender {
    fn send(&self, command: ProcessCommand) {
        // A dead process needs no command; the reader of its deltas notices its end.
        for process in &self.0 {
            let _ = process.send(command.clone());
        }
    }
}

impl StopHandle for ProcessCommandSender {
    fn drain(&self) {
        self.send(ProcessCommand::Drain);
    }

    fn abort(&self) {
        self.send(ProcessCommand::Abort);
    }
}

impl GeneratorProcesses {
    /// Starts `commands`, each of which must call [`run_child_process`], and waits until all are
    /// ready.
    pub async fn start(commands: Vec<Command>) -> Result<GeneratorProcesses, ProcessError> {
        let (deltas_tx, deltas) = mpsc::channel(DELTA_QUEUE_CAPACITY);
        let mut started = GeneratorProcesses {
            children: vec![],
            sources: vec![],
            commands: ProcessCommandSender(vec![]),
            deltas,
            readers: JoinSet::new(),
            writers: JoinSet::new(),
            summaries: Vec::new(),
            died: false,
        };
        let mut sockets = Vec::new();
        for (number, command) in commands.into_iter().enumerate() {
            let (child, socket) = launch(command).map_err(|source| ProcessError::Start { number, source })?;
            started.children.push(child);
            sockets.push(socket);
        }
        for (number, socket) in sockets.into_iter().enumerate() {
            let (mut read, mut write) = socket.into_split();
            let Ok(Some(ProcessFrame::Ready { threads })) = ProcessFrame::read(&mut read).await else {
                return Err(ProcessError::NotReady { number });
            };
            let instance = number as u64;
            started.sources.extend((0..threads).map(|thread| SourceId { instance, thread }));
            let (command_sender, mut command_receiver) = mpsc::unbounded_channel::<ProcessCommand>();
            started.commands.0.push(command_sender);
            started.readers.spawn(relay_deltas(read, deltas_tx.clone()));
            started.writers.spawn(async move {
                while let Some(command) = command_receiver.recv().await {
                    if command.write(&mut write).await.is_err() {
                        break;
                    }
                }
            });
        }
        Ok(started)
    }
}

impl Drop for GeneratorProcesses {
    fn drop(&mut self) {
        // The run is over for children that still exist.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl LoadGenerator for GeneratorProcesses {
    type Stop = ProcessCommandSender;

    fn sources(&self) -> Vec<SourceId> {
        self.sources.clone()
    }

    fn start(&mut self, at: Instant) {
        self.commands.send(ProcessCommand::start(at));
    }

    fn stop(&self) -> ProcessCommandSender {
        self.commands.clone()
    }

    fn set_profile(&self, profile: &Profile, at: Duration) {
        self.commands.send(ProcessCommand::SetProfile { profile: profile.clone(), at });
    }

    async fn next_delta(&mut self) -> Option<Delta> {
        loop {
            tokio::select! {
                biased;
                delta = self.deltas.recv() => return delta,
                Some(ended) = self.readers.join_next() => match ended {
                    Ok(Some(last)) => self.summaries.push(last),
                    // The counts of a dead process are lost, so the run has no valid result.
                    _ => {
                        self.died = true;
                        return None;
                    }
                },
            }
        }
    }

    async fn join(mut self) -> Result<GeneratorOutcome, RunError> {
        let mut whole = GeneratorOutcome { end: LoadOutcome::NONE, other_processes: (Duration::ZERO, 0) };
        let mut ended = std::mem::take(&mut self.summaries);
        while ended.len() < self.children.len() {
            if self.died {
                return Err(ProcessError::Died.into());
            }
            match self.readers.join_next().await {
                Some(Ok(Some(last))) => ended.push(last),
                _ => return Err(ProcessError::Died.into()),
            }
        }
        for last in ended {
            whole.end.include(last.end);
            whole.other_processes.0 += last.cpu;
            whole.other_processes.1 += last.max_rss_bytes;
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
        self.children.clear();
        Ok(whole)
    }
}

fn launch(mut command: Command) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    // Its output goes to standard error, so that it does not mix with ours. Its own process group
    // keeps Ctrl-C from reaching it; this process forwards the stop.
    let stderr: OwnedFd = rustix::io::dup(rustix::stdio::stderr())?;
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(stderr)).process_group(0);
    Ok((command.spawn()?, UnixStream::from_std(ours)?))
}

async fn relay_deltas(mut read: OwnedReadHalf, deltas: mpsc::Sender<Delta>) -> Option<protocol::ProcessSummary> {
    loop {
        match ProcessFrame::read(&mut read).await {
            Ok(Some(ProcessFrame::Delta(bytes))) => deltas.send(decode_delta(&bytes).ok()?).await.ok()?,
            Ok(Some(ProcessFrame::Finished(last))) => return Some(last),
            _ => return None,
        }
    }
}
