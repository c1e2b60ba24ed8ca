//! Deltas and checkpoints as bytes, for workers and orchestrators that do not share a process. Both are versioned by their
//! first byte. Nothing is believed: whatever cannot have been written here is refused, and never panics or takes more memory
//! than the limits below allow. It knows nothing of where the bytes travel.
//!
//! Numbers are LEB128 in their shortest form; texts have their length in front; a metric's key is written at its first use and
//! referred to by its place from then on; a histogram is a list of (gap, count), then its exact extremes and sum.

mod checkpoint;
mod code_names;
mod metric_codec;
mod wire_codec;

use crate::{Delta, SourceId};
use wire_codec::{WireLimits, WireReader, WireWriter};

/// The first byte of a delta.
const DELTA: u8 = 1;

/// A second of one worker: 512 MiB of histograms at the very most, and less than 2⁴⁸ of anything that is counted.
const DELTA_LIMITS: WireLimits = WireLimits { bytes: 16 << 20, chunks: 1 << 16, count: 1 << 48 };

/// Ten years; a run is shorter.
const MAX_SECOND: u64 = 10 * 366 * 24 * 3600;

/// Why bytes were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("version {found} is not known here: run the same version of squall everywhere")]
    Version { found: u8 },
    #[error("it ends too early")]
    CutOff,
    #[error("{bytes} bytes follow its end")]
    Trailing { bytes: usize },
    #[error("it has too much of one thing: {what}")]
    TooLarge { what: &'static str },
    #[error("it is not what squall writes: {what}")]
    Invalid { what: &'static str },
    #[error("it was damaged: its checksum differs")]
    Checksum,
}

/// `delta` as bytes. Texts over 16 KiB are cut, and codes that are no short plain word become `OTHER`; no count is changed.
pub fn encode_delta(delta: &Delta) -> Vec<u8> {
    let mut out = WireWriter::new(DELTA);
    out.source(delta.source);
    out.number(delta.seq);
    out.number(delta.second.into());
    out.byte(delta.last.into());
    out.list(&delta.metrics, |out, metric| out.metric(&metric.into()));
    out.list(&delta.errors, WireWriter::note);
    out.engine(&delta.engine);
    out.finish()
}

/// What [`encode`] made of a delta.
pub fn decode_delta(bytes: &[u8]) -> Result<Delta, WireError> {
    let mut input = WireReader::new(bytes, DELTA, DELTA_LIMITS)?;
    let delta = Delta {
        source: input.source()?,
        seq: input.sequence()?,
        second: input.number_below(MAX_SECOND, "second")? as u32,
        last: input.flag()?,
        metrics: input.list(WireReader::metric)?,
        errors: input.list(WireReader::note)?,
        engine: input.engine()?,
    };
    input.finish()?;
    Ok(delta)
}

impl WireWriter {
    fn source(&mut self, source: SourceId) {
        self.fixed(source.instance.to_le_bytes());
        self.number(source.thread.into());
    }
}

impl WireReader<'_> {
    fn source(&mut self) -> Result<SourceId, WireError> {
        let instance = u64::from_le_bytes(self.fixed()?);
        Ok(SourceId { instance, thread: self.number_below(1 << 32, "thread")? as u32 })
    }

    fn sequence(&mut self) -> Result<u64, WireError> {
        self.number_below(1 << 62, "sequence number")
    }
}
