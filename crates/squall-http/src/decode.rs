//! Content codings: which ones the client accepts, and decoding within the body limit, because a
//! small body may decode to a huge one.

mod body_decoder;

use std::io::{self, Read};

use crate::error::HttpError;
use crate::parse::ContentEncoding;
use crate::response::HeaderIter;
pub(crate) use body_decoder::BodyDecoder;

/// The value of Accept-Encoding.
pub(crate) const ACCEPT_ENCODING: &str = "gzip, deflate, br, zstd";

/// Most stacked codings to decode; no honest server uses more.
const MAX_CODINGS: usize = 4;

/// Decodes `encoding`; `None` where no decoder applies. Reads `headers` only for stacked codings.
pub(crate) fn decode(
    encoding: ContentEncoding,
    headers: HeaderIter<'_>,
    body: &[u8],
    limit: usize,
) -> Option<Result<Vec<u8>, HttpError>> {
    match encoding {
        ContentEncoding::Several => decode_several(headers, body, limit),
        one => decode_one(one, body, limit),
    }
}

/// Decodes the last coding first, because the server applied it last. Each step obeys the body limit.
#[cold]
fn decode_several(headers: HeaderIter<'_>, body: &[u8], limit: usize) -> Option<Result<Vec<u8>, HttpError>> {
    let codings = match codings_to_decode(headers)? {
        Ok(codings) => codings,
        Err(error) => return Some(Err(error)),
    };
    let mut body = std::borrow::Cow::Borrowed(body);
    for coding in codings {
        match decode_one(coding, &body, limit)? {
            Ok(decoded) => body = decoded.into(),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(body.into_owned()))
}

/// The stacked codings of a body in decoding order; `None` if one is unknown.
fn codings_to_decode(headers: HeaderIter<'_>) -> Option<Result<Vec<ContentEncoding>, HttpError>> {
    let lines = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let mut codings: Vec<ContentEncoding> =
        lines.flat_map(|(_, value)| ContentEncoding::parse_list(value.as_bytes())).collect();
    if codings.contains(&ContentEncoding::Other) {
        return None;
    }
    if codings.len() > MAX_CODINGS {
        let reason = format!("{} codings on top of each other; at most {MAX_CODINGS} are undone", codings.len());
        return Some(Err(HttpError::BadEncoding { encoding: "several", reason }));
    }
    codings.reverse();
    Some(Ok(codings))
}

fn decode_one(encoding: ContentEncoding, body: &[u8], limit: usize) -> Option<Result<Vec<u8>, HttpError>> {
    let (name, decoded) = match encoding {
        ContentEncoding::Identity | ContentEncoding::Several | ContentEncoding::Other => return None,
        ContentEncoding::Gzip => ("gzip", read_all(flate2::read::MultiGzDecoder::new(body), limit)),
        ContentEncoding::Deflate => ("deflate", deflate(body, limit)),
        ContentEncoding::Brotli => ("br", read_all(brotli_decompressor::Decompressor::new(body, 4096), limit)),
        ContentEncoding::Zstd => {
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

/// The standard means zlib by "deflate"; some servers send raw deflate.
fn deflate(body: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    read_all(flate2::read::ZlibDecoder::new(body), limit)
        .or_else(|_| read_all(flate2::read::DeflateDecoder::new(body), limit))
}

/// Reads one byte beyond the limit, so that the caller can distinguish "at" from "over".
fn read_all(decoder: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut out)?;
    Ok(out)
}
