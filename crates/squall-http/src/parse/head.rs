//! Parses a response head and derives how its body is framed. Keeps nothing.

use std::mem::MaybeUninit;

use super::ParseError;

/// More header lines than this count as an endless head.
const MAX_HEADERS: usize = 128;

/// How the end of the body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyFraming {
    /// No body.
    #[default]
    None,
    /// This many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the server closes.
    UntilClose,
}

/// How the body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentEncoding {
    /// Not at all.
    #[default]
    Identity,
    /// gzip.
    Gzip,
    /// zlib or raw deflate.
    Deflate,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
    /// Several of these, one on top of the other; the head's lines say which.
    Several,
    /// A coding that the client did not accept.
    Other,
}

impl ContentEncoding {
    /// The codings of one line, without those that change nothing.
    pub(crate) fn parse_list(value: &[u8]) -> impl Iterator<Item = ContentEncoding> {
        list_items(value).map(ContentEncoding::from_name).filter(|coding| *coding != ContentEncoding::Identity)
    }

    fn from_name(name: &[u8]) -> ContentEncoding {
        match name {
            c if c.eq_ignore_ascii_case(b"identity") => ContentEncoding::Identity,
            c if c.eq_ignore_ascii_case(b"gzip") || c.eq_ignore_ascii_case(b"x-gzip") => ContentEncoding::Gzip,
            c if c.eq_ignore_ascii_case(b"deflate") => ContentEncoding::Deflate,
            c if c.eq_ignore_ascii_case(b"br") => ContentEncoding::Brotli,
            c if c.eq_ignore_ascii_case(b"zstd") => ContentEncoding::Zstd,
            _ => ContentEncoding::Other,
        }
    }
}

/// The parts of a head that the client itself needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Bytes of the head.
    pub length: usize,
    /// How the body ends.
    pub framing: BodyFraming,
    /// The server will keep the connection.
    pub keep_alive: bool,
    /// How the body is compressed.
    pub encoding: ContentEncoding,
    /// There is a Set-Cookie header.
    pub sets_cookie: bool,
}

impl ResponseHead {
    /// A response before the real one. 101 is final: the connection no longer carries HTTP.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// Parses a head at the start of `input`; `None` when it is not complete.
pub(super) fn parse(input: &[u8], head_only: bool) -> Result<Option<ResponseHead>, ParseError> {
    let mut lines = [MaybeUninit::uninit(); MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, input, &mut lines);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ParseError::HeadTooLarge),
        Err(error) => return Err(ParseError::Malformed(reason(error))),
    };
    let status = response.code.unwrap_or(0);
    if status < 100 {
        return Err(ParseError::Malformed("status code below 100"));
    }
    let mut fields = HeaderScan::default();
    for header in response.headers.iter() {
        fields.record_header(header.name, header.value)?;
    }
    Ok(Some(fields.into_response_head(status, length, response.version == Some(1), head_only)))
}

fn reason(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "invalid header name",
        httparse::Error::HeaderValue => "invalid header value",
        httparse::Error::NewLine => "invalid line end",
        httparse::Error::Status => "invalid status line",
        httparse::Error::Token => "invalid token",
        httparse::Error::TooManyHeaders => "too many headers",
        httparse::Error::Version => "invalid HTTP version",
    }
}

#[derive(Default)]
struct HeaderScan {
    length: Option<u64>,
    transfer: Option<TransferCoding>,
    close: bool,
    keep: bool,
    encoding: ContentEncoding,
    sets_cookie: bool,
}

#[derive(Clone, Copy)]
enum TransferCoding {
    Chunked,
    Unframed,
}

impl HeaderScan {
    /// Looks only at names of a length that matters: most headers cost one comparison.
    fn record_header(&mut self, name: &str, value: &[u8]) -> Result<(), ParseError> {
        match name.len() {
            14 if eq_header_name(name.as_bytes(), b"Content-Length") => self.record_length(value)?,
            17 if eq_header_name(name.as_bytes(), b"Transfer-Encoding") => self.record_transfer(value)?,
            10 if eq_header_name(name.as_bytes(), b"Connection") => {
                for option in list_items(value) {
                    self.close |= eq_header_name(option, b"close");
                    self.keep |= eq_header_name(option, b"keep-alive");
                }
            }
            10 if eq_header_name(name.as_bytes(), b"Set-Cookie") => self.sets_cookie = true,
            16 if eq_header_name(name.as_bytes(), b"Content-Encoding") => self.record_encoding(value),
            _ => {}
        }
        Ok(())
    }

    /// `5`, or the same number repeated as `5, 5` or in two lines; anything else could be read in two ways.
    fn record_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        let mut any = false;
        for item in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            let length = parse_decimal(item).ok_or(ParseError::Malformed("invalid Content-Length"))?;
            if self.length.is_some_and(|other| other != length) {
                return Err(ParseError::Malformed("conflicting Content-Length"));
            }
            self.length = Some(length);
            any = true;
        }
        if any { Ok(()) } else { Err(ParseError::Malformed("invalid Content-Length")) }
    }

    fn record_transfer(&mut self, value: &[u8]) -> Result<(), ParseError> {
        for coding in list_items(value) {
            if coding.eq_ignore_ascii_case(b"chunked") {
                if matches!(self.transfer, Some(TransferCoding::Chunked)) {
                    return Err(ParseError::Malformed("chunked twice"));
                }
                self.transfer = Some(TransferCoding::Chunked);
            } else if !coding.eq_ignore_ascii_case(b"identity") {
                if matches!(self.transfer, Some(TransferCoding::Chunked)) {
                    return Err(ParseError::Malformed("chunked is not the last transfer coding"));
                }
                self.transfer = Some(TransferCoding::Unframed);
                self.encoding = ContentEncoding::Other;
            }
        }
        Ok(())
    }

    fn record_encoding(&mut self, value: &[u8]) {
        for coding in ContentEncoding::parse_list(value) {
            self.encoding = match self.encoding {
                ContentEncoding::Identity => coding,
                // The outermost transfer coding is not supported.
                ContentEncoding::Other => ContentEncoding::Other,
                _ => ContentEncoding::Several,
            };
        }
    }

    fn into_response_head(self, status: u16, length: usize, http11: bool, head_only: bool) -> ResponseHead {
        let bodiless = head_only || status < 200 || status == 204 || status == 304;
        let framing = match (self.transfer, self.length) {
            _ if bodiless => BodyFraming::None,
            (Some(TransferCoding::Chunked), _) => BodyFraming::Chunked,
            (Some(TransferCoding::Unframed), _) | (None, None) => BodyFraming::UntilClose,
            (None, Some(length)) => BodyFraming::Length(length),
        };
        let wanted = if http11 { !self.close } else { self.keep && !self.close };
        // Both headers together may be an attempt at request smuggling. The parser follows the
        // chunks, and the connection is closed afterwards.
        let doubtful = self.transfer.is_some() && self.length.is_some();
        let keep_alive = wanted && !doubtful && framing != BodyFraming::UntilClose && status != 101;
        ResponseHead { status, length, framing, keep_alive, encoding: self.encoding, sets_cookie: self.sets_cookie }
    }
}

/// Compares without regard to case; the usual spelling matches by a plain comparison first.
fn eq_header_name(text: &[u8], usual: &[u8]) -> bool {
    text == usual || text.eq_ignore_ascii_case(usual)
}

fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

/// Decimal digits only: no sign, no space, no overflow.
fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}
