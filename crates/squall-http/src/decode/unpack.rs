//! Undoes a body's coding while the body comes: what can be read of each piece is read at once, so that events do not wait for later ones.
//! Reads nothing itself.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::{Decompress, FlushDecompress, Status, write::MultiGzDecoder};
use zstd::stream::{raw, zio};

use super::to_undo;
use crate::error::HttpError;
use crate::parse::Encoding;
use crate::response::Headers;

/// The decoders of one body, in the order in which they are applied.
#[derive(Debug, Default)]
pub(crate) struct Unpacking(Vec<Unpacker>);

/// The decoder of one coding.
#[derive(Debug)]
struct Unpacker {
    name: &'static str,
    coding: Coding,
    /// Of what one piece may become: a small one can hold a huge one.
    limit: usize,
    begun: bool,
}

enum Coding {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Deflate(Box<Deflate>),
    Brotli(Box<DecompressorWriter<Bounded>>),
    Zstd(Box<zio::Writer<Bounded, raw::Decoder<'static>>>),
}

/// zlib or bare deflate, which only its first byte tells.
struct Deflate {
    state: Option<Decompress>,
    out: Bounded,
    ended: bool,
}

/// What comes out, up to a limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    over: bool,
}

impl Unpacking {
    /// Undoes `encoding`, and nothing where there is nothing that we could undo. `headers` are asked only where there are several.
    pub(crate) fn new(encoding: Encoding, headers: Headers<'_>, limit: usize) -> Result<Unpacking, HttpError> {
        let codings = match encoding {
            Encoding::Several => to_undo(headers).transpose()?.unwrap_or_default(),
            one => vec![one],
        };
        Ok(Unpacking(codings.into_iter().filter_map(|coding| Unpacker::new(coding, limit)).collect()))
    }

    /// What can be read once this piece is there; maybe nothing yet.
    pub(crate) fn feed(&mut self, piece: Vec<u8>) -> Result<Vec<u8>, HttpError> {
        self.0.iter_mut().try_fold(piece, |piece, one| match piece.is_empty() {
            true => Ok(piece),
            false => one.feed(&piece),
        })
    }

    /// The body is over; it is right only if its codings are too.
    pub(crate) fn end(&mut self) -> Result<(), HttpError> {
        std::mem::take(&mut self.0).into_iter().try_for_each(Unpacker::end)
    }
}

impl Unpacker {
    /// `None` where there is nothing to undo, or nothing that we could.
    fn new(encoding: Encoding, limit: usize) -> Option<Unpacker> {
        let out = Bounded { limit, ..Bounded::default() };
        let (name, coding) = match encoding {
            Encoding::Identity | Encoding::Several | Encoding::Other => return None,
            Encoding::Gzip => ("gzip", Coding::Gzip(Box::new(MultiGzDecoder::new(out)))),
            Encoding::Deflate => ("deflate", Coding::Deflate(Box::new(Deflate { state: None, out, ended: false }))),
            Encoding::Brotli => ("br", Coding::Brotli(Box::new(DecompressorWriter::new(out, 4096)))),
            Encoding::Zstd => ("zstd", Coding::Zstd(Box::new(zio::Writer::new(out, raw::Decoder::new().ok()?)))),
        };
        Some(Unpacker { name, coding, limit, begun: false })
    }

    /// What can be read once this piece is there; maybe nothing yet.
    fn feed(&mut self, piece: &[u8]) -> Result<Vec<u8>, HttpError> {
        self.begun = true;
        let written = match &mut self.coding {
            Coding::Gzip(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Coding::Deflate(decoder) => decoder.feed(piece),
            Coding::Brotli(decoder) => write_some(&mut **decoder, piece),
            Coding::Zstd(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
        };
        let out = self.coding.out();
        match written {
            _ if out.over => Err(HttpError::BodyTooLarge { limit: self.limit }),
            Ok(()) => Ok(std::mem::take(&mut out.bytes)),
            Err(error) => Err(self.bad(&error)),
        }
    }

    /// The body is over; it is right only if its coding is too. Nothing is left to hand out: every piece was read as far as it went.
    fn end(mut self) -> Result<(), HttpError> {
        if !self.begun {
            return Ok(());
        }
        let ended = match &mut self.coding {
            Coding::Gzip(decoder) => decoder.try_finish(),
            Coding::Deflate(decoder) if decoder.ended => Ok(()),
            Coding::Deflate(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Coding::Brotli(decoder) => decoder.close(),
            Coding::Zstd(decoder) => decoder.finish(),
        };
        ended.map_err(|error| self.bad(&error))
    }

    fn bad(&self, error: &io::Error) -> HttpError {
        HttpError::BadEncoding { encoding: self.name, reason: error.to_string() }
    }
}

impl Coding {
    fn out(&mut self) -> &mut Bounded {
        match self {
            Coding::Gzip(decoder) => decoder.get_mut(),
            Coding::Deflate(decoder) => &mut decoder.out,
            Coding::Brotli(decoder) => decoder.get_mut(),
            Coding::Zstd(decoder) => decoder.writer_mut(),
        }
    }
}

impl std::fmt::Debug for Coding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Coding")
    }
}

impl Deflate {
    fn feed(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let Some(first) = piece.first() else { return Ok(()) };
        // The low bits of zlib's first byte name its method, 8; a bare stream that begins so would be a stored block whose padding is
        // not zero, which no compressor writes.
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

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.over = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until it is full, or until the other side has had its end: what follows that is nobody's.
fn write_some(to: &mut impl Write, mut piece: &[u8]) -> io::Result<()> {
    while !piece.is_empty() {
        match to.write(piece)? {
            0 => break,
            taken => piece = &piece[taken..],
        }
    }
    to.flush()
}
