//! The other end: one process of a run, with its part of the shares. Obeys what comes over its standard input and ships deltas.

use squall_engine::{Driver, Engine, ThreadEnd};
use squall_metrics::encode;
use squall_model::{Plan, ShareSet};
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    time::Duration,
};
use tokio::net::UnixStream;

use super::frame::{Frame, Last, Order};
use crate::{
    run::{RunError, RunOptions, engine_config},
    usage::Usage,
};

/// Which part of a run this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub number: usize,
    pub of: usize,
}

/// Makes this part's load until the parent says otherwise, or is gone. `aborted` is called when everything must end at once.
pub async fn serve<D: Driver>(
    plan: &Plan,
    driver: D,
    options: RunOptions,
    part: Part,
    aborted: impl Fn(),
) -> Result<(), RunError> {
    let (mut orders, mut out) = socket()?.into_split();
    let mut config = engine_config(plan, &options);
    config.instance = part.number as u64;
    config.shares = ShareSet::ALL.part(part.number, part.of);
    config.max_users = config.max_users.div_ceil(part.of);
    config.threads = config.threads.min(config.max_users.max(1));
    let threads = config.threads as u32;
    let before = Usage::now();
    let mut engine = Engine::prepare(driver, config).await?;
    let stop = engine.stop();
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
                    aborted();
                }
            },
            delta = engine.next_delta() => match delta {
                Some(delta) => Frame::Delta(encode(&delta)).write(&mut out).await?,
                None => break,
            },
        }
    }
    let end: ThreadEnd = engine.join()?;
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
