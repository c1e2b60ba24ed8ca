//! Deltas and checkpoints as bytes, for workers and orchestrators in different processes, and views as
//! bytes, for result files. The first byte of each is a version. The decoder trusts nothing: it refuses
//! bytes that the encoder cannot have written, and never panics or takes more memory than the limits
//! below. It does not know how the bytes travel.
//!
//! Numbers are LEB128 in their shortest form. A text has its length in front. A metric's key is
//! written at its first use and then referred to by its index. A histogram is a list of (gap,
//! count), then its exact extremes and sum.

mod checkpoint;
pub(crate) mod code_names;
mod metric_codec;
mod wire_codec;

use crate::{Delta, SourceId};
use wire_codec::{WireLimits, WireReader, WireWriter};

/// The first byte of a delta.
const DELTA: u8 = 1;

/// Limits of one second of one worker: 512 MiB of histograms, and counts below 2⁴⁸.
const DELTA_LIMITS: WireLimits = WireLimits { bytes: 16 << 20, chunks: 1 << 16, count: 1 << 48 };

/// Ten years, longer than any run.
const MAX_SECOND: u64 = 10 * 366 * 24 * 3600;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("version {found} of the format is unknown: run the same version of squall everywhere")]
    Version { found: u8 },
    #[error("the bytes end too early")]
    CutOff,
    #[error("{bytes} bytes follow the end")]
    Trailing { bytes: usize },
    #[error("a value is too large: {what}")]
    TooLarge { what: &'static str },
    #[error("squall does not write such bytes: {what}")]
    Invalid { what: &'static str },
    #[error("the bytes are damaged: the checksum differs")]
    Checksum,
}

/// Encodes `delta`. Texts over 16 KiB are cut, and codes that are not a short plain name become
/// `OTHER`; no count changes.
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

/// Decodes a delta that [`encode_delta`] has written.
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
