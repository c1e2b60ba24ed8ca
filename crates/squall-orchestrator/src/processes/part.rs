//! The other end: one process of a run, with its part of the shares. Obeys what comes over its standard input and ships deltas.

use squall_engine::{EngineGroup, Driver, LoadOutcome, EngineSpec};
use squall_metrics::encode_delta;
use squall_model::ShareSet;
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    time::Duration,
};
use tokio::net::UnixStream;

use super::frame::{Frame, Last, Order};
use crate::{
    run::{RunError, RunOptions},
    together::Member,
    usage::Usage,
};

/// Which part of a run this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub number: usize,
    pub of: usize,
}

impl Part {
    /// This part of what `voice` does.
    fn of_voice<D>(self, mut voice: EngineSpec<D>) -> EngineSpec<D> {
        let config = &mut voice.config;
        config.instance = self.number as u64;
        config.shares = ShareSet::ALL.part(self.number, self.of);
        config.threads = config.threads.min(config.max_users.div_ceil(self.of).max(1));
        voice
    }
}

/// Makes this part's load until the parent says otherwise, or is gone.
pub async fn serve<D: Driver>(members: Vec<Member<D>>, options: RunOptions, part: Part) -> Result<(), RunError> {
    let (mut orders, mut out) = socket()?.into_split();
    let voices: Vec<_> = members.into_iter().map(|member| part.of_voice(member.voice(&options))).collect();
    let before = Usage::now();
    let mut engine = EngineGroup::prepare(voices).await?;
    let threads = engine.sources().len() as u32;
    let stop = engine.stop_handle();
    Frame::Ready { threads }.write(&mut out).await?;
    let mut listening = true;
    loop {
        tokio::select! {
            order = Order::read(&mut orders), if listening => match order {
                Order::Start(at) => engine.start(Order::instant(at)),
                Order::Drain => stop.drain(),
                Order::Abort => {
                    listening = false;
                    stop.abort();
                }
            },
            delta = engine.next_delta() => match delta {
                Some(delta) => Frame::Delta(encode_delta(&delta)).write(&mut out).await?,
                None => break,
            },
        }
    }
    let end: LoadOutcome = engine.join()?;
    let usage = Usage::now();
    let cpu = usage.cpu.saturating_sub(before.cpu).max(Duration::ZERO);
    Frame::Last(Last { end, cpu, max_rss_bytes: usage.max_rss_bytes }).write(&mut out).await?;
    Ok(())
}

fn socket() -> io::Result<UnixStream> {
    let input: OwnedFd = rustix::io::dup(rustix::stdio::stdin())?;
    let socket = StdStream::from(input);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
