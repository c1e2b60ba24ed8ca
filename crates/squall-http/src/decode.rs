//! Content codings: what we ask for and how it is undone, within the body's limit (a small body can hold a huge one).

mod unpack;

use std::io::{self, Read};

use crate::error::HttpError;
use crate::parse::Encoding;
pub(crate) use unpack::Unpacker;

/// The value of Accept-Encoding.
pub(crate) const ACCEPTED: &str = "gzip, deflate, br, zstd";

/// Undoes `encoding`; `None` where there is nothing that we could undo.
pub(crate) fn decode(encoding: Encoding, body: &[u8], limit: usize) -> Option<Result<Vec<u8>, HttpError>> {
    let (name, decoded) = match encoding {
        Encoding::Identity | Encoding::Other => return None,
        Encoding::Gzip => ("gzip", read_all(flate2::read::MultiGzDecoder::new(body), limit)),
        Encoding::Deflate => ("deflate", deflate(body, limit)),
        Encoding::Brotli => ("br", read_all(brotli_decompressor::Decompressor::new(body, 4096), limit)),
        Encoding::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(body);
            ("zstd", decoder.and_then(|decoder| read_all(decoder, limit)))
        }
    };
    Some(match decoded {
        Ok(bytes) if bytes.len() > limit => Err(HttpError::BodyTooLarge { limit }),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(HttpError::BadEncoding { encoding: name, reason: error.to_string() }),
    })
}

/// The standard means zlib by "deflate"; some servers send it bare.
fn deflate(body: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    read_all(flate2::read::ZlibDecoder::new(body), limit)
        .or_else(|_| read_all(flate2::read::DeflateDecoder::new(body), limit))
}

/// Reads one byte beyond the limit, so that the caller can tell "at" from "over".
fn read_all(decoder: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut out)?;
    Ok(out)
}
