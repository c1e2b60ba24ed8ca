//! Compression of records: Gzip, LZ4 frames and Zstandard. Does not decompress more than
//! [`MAX_DECOMPRESSED_BYTES`].

use std::{
    borrow::Cow,
    io::{self, Read, Write},
};

/// The largest event after decompression. Protects workers from compression bombs.
const MAX_DECOMPRESSED_BYTES: u64 = 64 * 1024 * 1024;

/// The compression of the field `data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Gzip (RFC 1952).
    Gzip,
    /// LZ4 frame format.
    Lz4,
    /// Zstandard, level 3.
    Zstd,
}

impl Compression {
    pub(super) fn compress(self, data: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(data),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&data)?;
                encoder.finish()
            }
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&data)?;
                encoder.finish().map_err(io::Error::other)
            }
            Self::Zstd => zstd::bulk::compress(&data, 3),
        }
    }
}

/// Recognises the compression by the first bytes. JSON never starts with them, so no separate mark
/// is needed.
pub(super) fn decompress_bytes(data: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    match data {
        [0x1f, 0x8b, ..] => read_limited(flate2::read::GzDecoder::new(data)),
        [0x04, 0x22, 0x4d, 0x18, ..] => read_limited(lz4_flex::frame::FrameDecoder::new(data)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => read_limited(zstd::stream::read::Decoder::new(data)?),
        plain => Ok(Cow::Borrowed(plain)),
    }
}

fn read_limited(reader: impl Read) -> io::Result<Cow<'static, [u8]>> {
    let mut out = Vec::new();
    reader.take(MAX_DECOMPRESSED_BYTES + 1).read_to_end(&mut out)?;
    if out.len() as u64 > MAX_DECOMPRESSED_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {MAX_DECOMPRESSED_BYTES} bytes")));
    }
    Ok(Cow::Owned(out))
}
