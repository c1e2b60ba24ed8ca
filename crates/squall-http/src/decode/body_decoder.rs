//! Decodes a body while it arrives. Each chunk is decoded as far as possible at once, so that
//! server-sent events do not wait for later ones. It does no I/O.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::{Decompress, FlushDecompress, Status, write::MultiGzDecoder};
use zstd::stream::{raw, zio};

use super::codings_to_decode;
use crate::error::HttpError;
use crate::parse::ContentEncoding;
use crate::response::HeaderIter;

/// The decoders of one body, in the order in which they are applied.
#[derive(Debug, Default)]
pub(crate) struct BodyDecoder(Vec<CodingDecoder>);

/// The decoder of one coding.
#[derive(Debug)]
struct CodingDecoder {
    name: &'static str,
    coding: AlgorithmDecoder,
    /// Limit of one decoded chunk, because a small chunk may decode to a huge one.
    limit: usize,
    started: bool,
}

enum AlgorithmDecoder {
    Gzip(Box<MultiGzDecoder<BoundedBuffer>>),
    Deflate(Box<DeflateStream>),
    Brotli(Box<DecompressorWriter<BoundedBuffer>>),
    Zstd(Box<zio::Writer<BoundedBuffer, raw::Decoder<'static>>>),
}

/// zlib or raw deflate; the first byte decides.
struct DeflateStream {
    state: Option<Decompress>,
    out: BoundedBuffer,
    ended: bool,
}

/// Decoded bytes up to a limit.
#[derive(Default)]
struct BoundedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    limit_exceeded: bool,
}

impl BodyDecoder {
    /// Decodes `encoding`, or passes bytes through where no decoder applies. Reads `headers` only for stacked codings.
    pub(crate) fn new(
        encoding: ContentEncoding,
        headers: HeaderIter<'_>,
        limit: usize,
    ) -> Result<BodyDecoder, HttpError> {
        let codings = match encoding {
            ContentEncoding::Several => codings_to_decode(headers).transpose()?.unwrap_or_default(),
            one => vec![one],
        };
        Ok(BodyDecoder(codings.into_iter().filter_map(|coding| CodingDecoder::new(coding, limit)).collect()))
    }

    /// Decodes a chunk; the result may be empty.
    pub(crate) fn feed(&mut self, piece: Vec<u8>) -> Result<Vec<u8>, HttpError> {
        self.0.iter_mut().try_fold(piece, |piece, one| match piece.is_empty() {
            true => Ok(piece),
            false => one.feed(&piece),
        })
    }

    /// Ends the body. Fails if a coding is incomplete.
    pub(crate) fn finish(&mut self) -> Result<(), HttpError> {
        std::mem::take(&mut self.0).into_iter().try_for_each(CodingDecoder::finish)
    }
}

impl CodingDecoder {
    /// `None` where no decoder applies.
    fn new(encoding: ContentEncoding, limit: usize) -> Option<CodingDecoder> {
        let out = BoundedBuffer { limit, ..BoundedBuffer::default() };
        let (name, coding) = match encoding {
            ContentEncoding::Identity | ContentEncoding::Several | ContentEncoding::Other => return None,
            ContentEncoding::Gzip => ("gzip", AlgorithmDecoder::Gzip(Box::new(MultiGzDecoder::new(out)))),
            ContentEncoding::Deflate => {
                ("deflate", AlgorithmDecoder::Deflate(Box::new(DeflateStream { state: None, out, ended: false })))
            }
            ContentEncoding::Brotli => ("br", AlgorithmDecoder::Brotli(Box::new(DecompressorWriter::new(out, 4096)))),
            ContentEncoding::Zstd => {
                ("zstd", AlgorithmDecoder::Zstd(Box::new(zio::Writer::new(out, raw::Decoder::new().ok()?))))
            }
        };
        Some(CodingDecoder { name, coding, limit, started: false })
    }

    /// Decodes a chunk; the result may be empty.
    fn feed(&mut self, piece: &[u8]) -> Result<Vec<u8>, HttpError> {
        self.started = true;
        let written = match &mut self.coding {
            AlgorithmDecoder::Gzip(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            AlgorithmDecoder::Deflate(decoder) => decoder.feed(piece),
            AlgorithmDecoder::Brotli(decoder) => write_until_end(&mut **decoder, piece),
            AlgorithmDecoder::Zstd(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
        };
        let out = self.coding.output();
        match written {
            _ if out.limit_exceeded => Err(HttpError::BodyTooLarge { limit: self.limit }),
            Ok(()) => Ok(std::mem::take(&mut out.bytes)),
            Err(error) => Err(self.decode_error(&error)),
        }
    }

    /// Ends the body. Fails if the coding is incomplete. No bytes are left, because every chunk was
    /// decoded completely.
    fn finish(mut self) -> Result<(), HttpError> {
        if !self.started {
            return Ok(());
        }
        let ended = match &mut self.coding {
            AlgorithmDecoder::Gzip(decoder) => decoder.try_finish(),
            AlgorithmDecoder::Deflate(decoder) if decoder.ended => Ok(()),
            AlgorithmDecoder::Deflate(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            AlgorithmDecoder::Brotli(decoder) => decoder.close(),
            AlgorithmDecoder::Zstd(decoder) => decoder.finish(),
        };
        ended.map_err(|error| self.decode_error(&error))
    }

    fn decode_error(&self, error: &io::Error) -> HttpError {
        HttpError::BadEncoding { encoding: self.name, reason: error.to_string() }
    }
}

impl AlgorithmDecoder {
    fn output(&mut self) -> &mut BoundedBuffer {
        match self {
            AlgorithmDecoder::Gzip(decoder) => decoder.get_mut(),
            AlgorithmDecoder::Deflate(decoder) => &mut decoder.out,
            AlgorithmDecoder::Brotli(decoder) => decoder.get_mut(),
            AlgorithmDecoder::Zstd(decoder) => decoder.writer_mut(),
        }
    }
}

impl std::fmt::Debug for AlgorithmDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Coding")
    }
}

impl DeflateStream {
    fn feed(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let Some(first) = piece.first() else { return Ok(()) };
        // The low bits of zlib's first byte name its method, 8. A bare deflate stream with these
        // bits would begin with a stored block whose padding is not zero, which no compressor
        // writes.
        let state = self.state.get_or_insert_with(|| Decompress::new(first & 0x0f == 8));
        let mut room = [0u8; 8192];
        while !self.ended {
            let (read, made) = (state.total_in(), state.total_out());
            let status = state.decompress(piece, &mut room, FlushDecompress::None)?;
            piece = &piece[(state.total_in() - read) as usize..];
            let made = (state.total_out() - made) as usize;
            self.out.write_all(&room[..made])?;
            self.ended = status == Status::StreamEnd;
            if piece.is_empty() && made < room.len() {
                break;
            }
        }
        Ok(())
    }
}

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.limit_exceeded = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until the buffer is full or the stream has ended; ignores bytes after the end.
fn write_until_end(to: &mut impl Write, mut piece: &[u8]) -> io::Result<()> {
    while !piece.is_empty() {
        match to.write(piece)? {
            0 => break,
            taken => piece = &piece[taken..],
        }
    }
    to.flush()
}
