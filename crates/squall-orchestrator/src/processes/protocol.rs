//! The messages between a run and its child processes. Both ends are the same version of the same
//! program, so the protocol has no version. An invalid frame ends the connection. It starts no
//! process.

use squall_engine::LoadOutcome;
use squall_model::Profile;
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Larger than any delta, because the number of series is limited.
const MAX_FRAME_BYTES: u32 = 256 << 20;

/// From a process to its parent: a kind, a length, content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ProcessFrame {
    Ready {
        threads: u32,
    },
    /// Encoded by `squall_metrics::encode_delta`.
    Delta(Vec<u8>),
    Finished(ProcessSummary),
}

/// How a process ended, and what it used.
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
            self.end.lost_at_most,
            self.cpu.as_nanos() as u64,
            self.max_rss_bytes,
        ];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<ProcessSummary> {
        let (chunks, []) = bytes.as_chunks::<8>() else { return None };
        let &[active, elapsed, cut_off, lost_at_most, cpu, max_rss_bytes] =
            chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect::<Vec<_>>().as_slice()
        else {
            return None;
        };
        let time = Duration::from_nanos;
        let end = LoadOutcome { active: time(active), elapsed: time(elapsed), cut_off: cut_off != 0, lost_at_most };
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
        write_frame(out, kind, &content).await
    }

    /// The next frame; `None` at the end of the stream.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<ProcessFrame>> {
        let Some((kind, content)) = read_frame(from).await? else { return Ok(None) };
        let frame = match kind {
            0 => content.try_into().ok().map(|bytes| ProcessFrame::Ready { threads: u32::from_le_bytes(bytes) }),
            1 => Some(ProcessFrame::Delta(content)),
            2 => ProcessSummary::from_bytes(&content).map(ProcessFrame::Finished),
            _ => None,
        };
        frame.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// From the parent to its processes: a kind, a length, content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ProcessCommand {
    /// Start at this time of the machine's monotonic clock, in nanoseconds.
    Start(u64),
    /// Follow this profile from the run time `at` on.
    SetProfile {
        profile: Profile,
        at: Duration,
    },
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

    /// Converts the time of a start to an instant of this process.
    pub(super) fn start_instant(at: u64) -> Instant {
        let (now, clock) = (Instant::now(), monotonic_nanos());
        match at.checked_sub(clock) {
            Some(ahead) => now + Duration::from_nanos(ahead),
            None => now.checked_sub(Duration::from_nanos(clock - at)).unwrap_or(now),
        }
    }

    pub(super) async fn write(&self, out: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, content) = match self {
            ProcessCommand::Start(at) => (0, at.to_le_bytes().to_vec()),
            ProcessCommand::Drain => (1, vec![]),
            ProcessCommand::Abort => (2, vec![]),
            ProcessCommand::SetProfile { profile, at } => (3, serde_json::to_vec(&(at, profile))?),
        };
        write_frame(out, kind, &content).await
    }

    /// The next command. The end of the stream is an abort, because no parent is left to receive
    /// deltas.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> ProcessCommand {
        let command = match read_frame(from).await {
            Ok(Some((0, at))) => at.try_into().ok().map(|at| ProcessCommand::Start(u64::from_le_bytes(at))),
            Ok(Some((1, _))) => Some(ProcessCommand::Drain),
            Ok(Some((3, content))) => {
                let change = serde_json::from_slice(&content).ok();
                change.map(|(at, profile)| ProcessCommand::SetProfile { profile, at })
            }
            _ => None,
        };
        command.unwrap_or(ProcessCommand::Abort)
    }
}

async fn write_frame(out: &mut (impl AsyncWrite + Unpin), kind: u8, content: &[u8]) -> io::Result<()> {
    out.write_u8(kind).await?;
    out.write_u32_le(content.len() as u32).await?;
    out.write_all(content).await?;
    out.flush().await
}

/// Kind and content of the next frame; `None` at the end of the stream.
async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(u8, Vec<u8>)>> {
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
    Ok(Some((kind, content)))
}

fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn written_frames_and_commands_are_read_back() {
        let (active, elapsed) = (Duration::from_millis(1), Duration::from_secs(2));
        let end = LoadOutcome { active, elapsed, cut_off: true, lost_at_most: 4 };
        let last = ProcessSummary { end, cpu: Duration::from_nanos(7), max_rss_bytes: 9 };
        for frame in
            [ProcessFrame::Ready { threads: 3 }, ProcessFrame::Delta(vec![1, 2, 3]), ProcessFrame::Finished(last)]
        {
            let mut bytes = Vec::new();
            frame.write(&mut bytes).await.unwrap();
            assert_eq!(ProcessFrame::read(&mut bytes.as_slice()).await.unwrap(), Some(frame));
        }
        let profile = Profile::constant(2.5, elapsed).unwrap();
        let changed = ProcessCommand::SetProfile { profile, at: active };
        for command in [ProcessCommand::Start(5), ProcessCommand::Drain, ProcessCommand::Abort, changed] {
            let mut bytes = Vec::new();
            command.write(&mut bytes).await.unwrap();
            assert_eq!(ProcessCommand::read(&mut bytes.as_slice()).await, command);
        }
    }

    #[tokio::test]
    async fn end_of_stream_reads_as_no_frame_and_as_abort() {
        assert_eq!(ProcessFrame::read(&mut [].as_slice()).await.unwrap(), None);
        assert!(ProcessFrame::read(&mut [1, 255, 255, 255, 255].as_slice()).await.is_err());
        assert!(ProcessFrame::read(&mut [2, 1, 0, 0, 0, 7].as_slice()).await.is_err());
        assert_eq!(ProcessCommand::read(&mut [].as_slice()).await, ProcessCommand::Abort);
    }

    #[test]
    fn start_instant_survives_conversion_to_the_monotonic_clock() {
        let at = Instant::now() + Duration::from_secs(3);
        let ProcessCommand::Start(clock) = ProcessCommand::start(at) else { unreachable!() };
        let back = ProcessCommand::start_instant(clock);
        let off = back.saturating_duration_since(at) + at.saturating_duration_since(back);
        assert!(off < Duration::from_secs(1), "{off:?}");
    }
}
