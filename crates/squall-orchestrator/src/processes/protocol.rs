//! What a run's processes say to each other. Both ends are the same program of the same version, so there is no other version to
//! speak with; a frame that makes no sense ends the conversation.

use squall_engine::LoadOutcome;
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Larger than any delta: series are capped.
const MAX_FRAME_BYTES: u32 = 256 << 20;

/// From a process to its parent: a kind, a length, content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ProcessFrame {
    Ready {
        threads: u32,
    },
    /// As `squall_metrics::wire` has it.
    Delta(Vec<u8>),
    Finished(ProcessSummary),
}

/// How a process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessSummary {
    pub(super) end: LoadOutcome,
    pub(super) cpu: Duration,
    pub(super) max_rss_bytes: u64,
}

impl PartialEq for ProcessSummary {
    fn eq(&self, other: &ProcessSummary) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl ProcessSummary {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [
            self.end.active.as_nanos() as u64,
            self.end.elapsed.as_nanos() as u64,
            u64::from(self.end.cut_off),
            self.cpu.as_nanos() as u64,
            self.max_rss_bytes,
        ];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<ProcessSummary> {
        let (chunks, []) = bytes.as_chunks::<8>() else { return None };
        let &[active, elapsed, cut_off, cpu, max_rss_bytes] =
            chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect::<Vec<_>>().as_slice()
        else {
            return None;
        };
        let time = Duration::from_nanos;
        let end = LoadOutcome { active: time(active), elapsed: time(elapsed), cut_off: cut_off != 0 };
        Some(ProcessSummary { end, cpu: time(cpu), max_rss_bytes })
    }
}

impl ProcessFrame {
    pub(super) async fn write(&self, out: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, content) = match self {
            ProcessFrame::Ready { threads } => (0, threads.to_le_bytes().to_vec()),
            ProcessFrame::Delta(bytes) => (1, bytes.clone()),
            ProcessFrame::Finished(last) => (2, last.to_bytes()),
        };
        out.write_u8(kind).await?;
        out.write_u32_le(content.len() as u32).await?;
        out.write_all(&content).await?;
        out.flush().await
    }

    /// The next frame; `None` at the end.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<ProcessFrame>> {
        let kind = match from.read_u8().await {
            Ok(kind) => kind,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = from.read_u32_le().await?;
        if length > MAX_FRAME_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut content = vec![0; length as usize];
        from.read_exact(&mut content).await?;
        let frame = match kind {
            0 => content.try_into().ok().map(|bytes| ProcessFrame::Ready { threads: u32::from_le_bytes(bytes) }),
            1 => Some(ProcessFrame::Delta(content)),
            2 => ProcessSummary::from_bytes(&content).map(ProcessFrame::Finished),
            _ => None,
        };
        frame.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// From the parent to its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessCommand {
    /// At this time of the machine's monotonic clock, in nanoseconds.
    Start(u64),
    Drain,
    Abort,
}

impl ProcessCommand {
    pub(super) fn start(at: Instant) -> ProcessCommand {
        let now = Instant::now();
        let offset =
            at.saturating_duration_since(now).as_nanos() as i128 - now.saturating_duration_since(at).as_nanos() as i128;
        ProcessCommand::Start((i128::from(monotonic_nanos()) + offset) as u64)
    }

    /// The instant of a start, in this process.
    pub(super) fn start_instant(at: u64) -> Instant {
        let (now, clock) = (Instant::now(), monotonic_nanos());
        match at.checked_sub(clock) {
            Some(ahead) => now + Duration::from_nanos(ahead),
            None => now.checked_sub(Duration::from_nanos(clock - at)).unwrap_or(now),
        }
    }

    pub(super) async fn write(self, out: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, at) = match self {
            ProcessCommand::Start(at) => (0, at),
            ProcessCommand::Drain => (1, 0),
            ProcessCommand::Abort => (2, 0),
        };
        let mut order = [0; 9];
        order[0] = kind;
        order[1..].copy_from_slice(&u64::to_le_bytes(at));
        out.write_all(&order).await?;
        out.flush().await
    }

    /// The next order; an end is an abort: nobody is left to send to.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> ProcessCommand {
        // In one piece, as it was written: whoever waits for a delta as well drops this, and half an order would be lost with it.
        let mut order = [0; 9];
        match (from.read_exact(&mut order).await, order) {
            (Ok(_), [0, at @ ..]) => ProcessCommand::Start(u64::from_le_bytes(at)),
            (Ok(_), [1, ..]) => ProcessCommand::Drain,
            _ => ProcessCommand::Abort,
        }
    }
}

fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read() {
        let end = LoadOutcome { active: Duration::from_millis(1), elapsed: Duration::from_secs(2), cut_off: true };
        let last = ProcessSummary { end, cpu: Duration::from_nanos(7), max_rss_bytes: 9 };
        for frame in
            [ProcessFrame::Ready { threads: 3 }, ProcessFrame::Delta(vec![1, 2, 3]), ProcessFrame::Finished(last)]
        {
            let mut bytes = Vec::new();
            frame.write(&mut bytes).await.unwrap();
            assert_eq!(ProcessFrame::read(&mut bytes.as_slice()).await.unwrap(), Some(frame));
        }
        for order in [ProcessCommand::Start(5), ProcessCommand::Drain, ProcessCommand::Abort] {
            let mut bytes = Vec::new();
            order.write(&mut bytes).await.unwrap();
            assert_eq!(ProcessCommand::read(&mut bytes.as_slice()).await, order);
        }
    }

    #[tokio::test]
    async fn an_end_is_no_frame_and_an_abort() {
        assert_eq!(ProcessFrame::read(&mut [].as_slice()).await.unwrap(), None);
        assert!(ProcessFrame::read(&mut [1, 255, 255, 255, 255].as_slice()).await.is_err());
        assert!(ProcessFrame::read(&mut [2, 1, 0, 0, 0, 7].as_slice()).await.is_err());
        assert_eq!(ProcessCommand::read(&mut [].as_slice()).await, ProcessCommand::Abort);
    }

    #[test]
    fn an_instant_survives_the_way_through_the_clock() {
        let at = Instant::now() + Duration::from_secs(3);
        let ProcessCommand::Start(clock) = ProcessCommand::start(at) else { unreachable!() };
        let back = ProcessCommand::start_instant(clock);
        let off = back.saturating_duration_since(at) + at.saturating_duration_since(back);
        assert!(off < Duration::from_secs(1), "{off:?}");
    }
}
