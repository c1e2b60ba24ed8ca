//! The child side of `processes`: one process of a run with its part of the shares. It executes the
//! commands that arrive on its standard input and ships deltas. It decides nothing.

use squall_engine::{Driver, EngineGroup, EngineSpec, LoadOutcome, PlannedScenario, ShareAssignment};
use squall_metrics::encode_delta;
use squall_model::ShareSet;
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    time::Duration,
};
use tokio::{
    net::{UnixStream, unix::OwnedReadHalf},
    sync::mpsc,
    task::JoinSet,
};

use super::protocol::{ProcessCommand, ProcessFrame, ProcessSummary};
use crate::{
    local_run::{RunError, RunOptions, engine_spec},
    process_usage::ProcessUsage,
};

/// Which of the child processes this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessIndex {
    pub index: usize,
    pub count: usize,
}

impl ProcessIndex {
    fn shares(self) -> ShareSet {
        ShareSet::ALL.part(self.index, self.count)
    }

    /// Restricts an engine to the shares and the users of this process.
    fn restrict_engine<D>(self, mut engine: EngineSpec<D>) -> EngineSpec<D> {
        let config = &mut engine.config;
        config.instance = self.index as u64;
        config.shares = self.shares();
        config.threads = config.threads.min(config.limits.max_users.div_ceil(self.count).max(1));
        engine
    }
}

/// Makes this process's part of the load until it is over, the parent stops it, or the parent ends.
pub async fn run_child_process<D: Driver>(
    scenarios: Vec<PlannedScenario<D>>,
    options: RunOptions,
    process: ProcessIndex,
) -> Result<(), RunError> {
    let (from_parent, mut out) = parent_socket()?.into_split();
    let engines = scenarios.into_iter().map(|scenario| process.restrict_engine(engine_spec(scenario, &options)));
    let engines: Vec<_> = engines.collect();
    let before = ProcessUsage::now();
    let mut engine = EngineGroup::prepare(engines).await?;
    let threads = engine.sources().len() as u32;
    let stop = engine.stop_handle();
    ProcessFrame::Ready { threads }.write(&mut out).await?;
    let (mut commands, _reader) = read_commands(from_parent);
    loop {
        tokio::select! {
            Some(command) = commands.recv() => match command {
                ProcessCommand::Start(at) => engine.start(ProcessCommand::start_instant(at)),
                ProcessCommand::SetProfile { profile, at } => {
                    engine.set_assignments([ShareAssignment::new(process.shares(), profile, at)]);
                }
                ProcessCommand::Drain => stop.drain(),
                ProcessCommand::Abort => stop.abort(),
            },
            delta = engine.next_delta() => match delta {
                Some(delta) => ProcessFrame::Delta(encode_delta(&delta)).write(&mut out).await?,
                None => break,
            },
        }
    }
    let end: LoadOutcome = engine.join()?;
    let usage = ProcessUsage::now();
    let cpu = usage.cpu.saturating_sub(before.cpu).max(Duration::ZERO);
    ProcessFrame::Finished(ProcessSummary { end, cpu, max_rss_bytes: usage.max_rss_bytes }).write(&mut out).await?;
    Ok(())
}

/// Reads the parent's commands up to an abort, in a task of its own: `select!` may drop a future that
/// has read a part of a command. Dropping the set ends the task.
fn read_commands(mut from_parent: OwnedReadHalf) -> (mpsc::UnboundedReceiver<ProcessCommand>, JoinSet<()>) {
    // Unbounded, because only keys of a person send commands during the load.
    let (sender, commands) = mpsc::unbounded_channel();
    let mut reader = JoinSet::new();
    reader.spawn(async move {
        loop {
            let command = ProcessCommand::read(&mut from_parent).await;
            let is_last = command == ProcessCommand::Abort;
            if sender.send(command).is_err() || is_last {
                return;
            }
        }
    });
    (commands, reader)
}

fn parent_socket() -> io::Result<UnixStream> {
    let input: OwnedFd = rustix::io::dup(rustix::stdio::stdin())?;
    let socket = StdStream::from(input);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
