//! Parses one HTTP/1.1 response from chunks of any size. It does no I/O, so that it can be fuzzed and tested alone.
//!
//! The parser keeps the bytes of the head, in which callers look up headers, and those of the body
//! only on request. It rejects ambiguous input: conflicting lengths, folded headers, bad chunk
//! sizes.

mod chunked;
mod head;

use chunked::ChunkedDecoder;
pub use head::{BodyFraming, ContentEncoding, ResponseHead};

/// Size limits.
#[derive(Debug, Clone, Copy)]
pub struct ParseLimits {
    /// Bytes of the head; also of chunk extensions and trailers together.
    pub head: usize,
    /// Bytes of the body.
    pub body: usize,
}

/// What the request says about the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseExpectation {
    /// The request was HEAD, so the response has no body.
    pub head_only: bool,
    /// Keep the body's bytes.
    pub keep_body: bool,
}

/// Why bytes are not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not HTTP.
    #[error("{0}")]
    Malformed(&'static str),
    /// More than [`ParseLimits::head`].
    #[error("head too large")]
    HeadTooLarge,
    /// More than [`ParseLimits::body`].
    #[error("body too large")]
    BodyTooLarge,
    /// The stream ended before the first byte.
    #[error("closed")]
    Closed,
    /// The stream ended inside the response.
    #[error("truncated")]
    Truncated,
}

/// The state after a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseProgress {
    /// The response is incomplete.
    NeedsMore,
    /// The response is complete; this many bytes of the chunk belong to it.
    Complete(usize),
}

#[derive(Debug, Clone, Copy)]
enum ParseState {
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    Done,
}

/// Parses the responses of one connection, one after the other.
#[derive(Debug)]
pub struct ResponseParser {
    limits: ParseLimits,
    expect: ResponseExpectation,
    state: ParseState,
    parsed_head: ResponseHead,
    raw_head: Vec<u8>,
    /// Whether `raw_head` is the whole head of the last response and `parsed_head` its parsed form.
    /// Heads are self-delimiting, so a response that begins with the same bytes has the same head:
    /// under load, most heads are not parsed again.
    head_cached: bool,
    body: Vec<u8>,
    body_bytes: u64,
    received: u64,
}

impl ResponseParser {
    /// A parser without buffers.
    pub fn new(limits: ParseLimits) -> ResponseParser {
        ResponseParser {
            limits,
            expect: ResponseExpectation { head_only: false, keep_body: false },
            state: ParseState::Done,
            parsed_head: ResponseHead::default(),
            raw_head: Vec::new(),
            head_cached: false,
            body: Vec::new(),
            body_bytes: 0,
            received: 0,
        }
    }

    /// Clears the last response and prepares for the next.
    pub fn begin(&mut self, expect: ResponseExpectation) {
        self.head_cached = self.head_cached && self.expect.head_only == expect.head_only;
        self.expect = expect;
        self.state = ParseState::Head;
        if !self.head_cached {
            self.raw_head.clear();
        }
        self.body.clear();
        self.body_bytes = 0;
        self.received = 0;
    }

    /// Parses the next chunk. Its bytes count as received even if they are not a valid response.
    pub fn feed(&mut self, input: &[u8]) -> Result<ParseProgress, ParseError> {
        let fed = self.advance(input);
        self.received += match fed {
            Ok(ParseProgress::Complete(used)) => used as u64,
            Ok(ParseProgress::NeedsMore) | Err(_) => input.len() as u64,
        };
        fed
    }

    fn advance(&mut self, input: &[u8]) -> Result<ParseProgress, ParseError> {
        let mut rest = input;
        loop {
            rest = match self.state {
                ParseState::Head => match self.feed_head(rest)? {
                    Some(rest) => rest,
                    None => break,
                },
                ParseState::Length(left) => {
                    let take = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.take_body(&rest[..take])?;
                    let left = left - take as u64;
                    self.state = if left == 0 { ParseState::Done } else { ParseState::Length(left) };
                    &rest[take..]
                }
                ParseState::Chunked(mut chunked) => {
                    let rest = chunked.feed(rest, self)?;
                    self.state = if chunked.done() { ParseState::Done } else { ParseState::Chunked(chunked) };
                    rest
                }
                ParseState::UntilClose => {
                    self.take_body(rest)?;
                    &[]
                }
                ParseState::Done => break,
            };
            if rest.is_empty() && !matches!(self.state, ParseState::Done) {
                break;
            }
        }
        let done = matches!(self.state, ParseState::Done);
        Ok(if done { ParseProgress::Complete(input.len() - rest.len()) } else { ParseProgress::NeedsMore })
    }

    /// Ends the stream. Succeeds only where the end of the stream is the end of the body.
    pub fn finish(&mut self) -> Result<(), ParseError> {
        match self.state {
            ParseState::Done => Ok(()),
            ParseState::UntilClose => {
                self.state = ParseState::Done;
                Ok(())
            }
            ParseState::Head if self.received == 0 => Err(ParseError::Closed),
            // Bytes without a line end have not been parsed yet: invalid bytes are malformed, not truncated.
            ParseState::Head => match head::parse(&self.raw_head, self.expect.head_only) {
                Err(error) => Err(error),
                Ok(_) => Err(ParseError::Truncated),
            },
            ParseState::Length(_) | ParseState::Chunked(_) => Err(ParseError::Truncated),
        }
    }

    /// The size limits.
    pub fn limits(&self) -> ParseLimits {
        self.limits
    }

    /// The parsed head; meaningful once the head has been read.
    pub fn parsed_head(&self) -> &ResponseHead {
        &self.parsed_head
    }

    /// The head's bytes, status line included.
    pub fn raw_head(&self) -> &[u8] {
        &self.raw_head
    }

    /// The body's bytes as sent, unframed; empty unless kept.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of this response so far, framing included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the buffered part of the body and removes it.
    pub(crate) fn take_body_chunk(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Replaces the body with its decoded form.
    pub(crate) fn replace_body(&mut self, body: Vec<u8>) {
        self.body = body;
    }

    /// Sets a head, in HTTP/1 form, that HTTP/2 has framed.
    pub(crate) fn set_head(&mut self, text: &[u8]) -> Result<(), ParseError> {
        self.check_head_size(text.len())?;
        self.head_cached = false;
        self.raw_head.clear();
        self.parsed_head = head::parse(text, true)?.ok_or(ParseError::Malformed("incomplete head"))?;
        self.raw_head.extend_from_slice(text);
        self.state = ParseState::Done;
        Ok(())
    }

    /// Appends a part of a body that HTTP/2 has framed.
    pub(crate) fn append_body(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        self.take_body(bytes)
    }

    /// Frees buffers that are larger than a usual response needs.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.raw_head.capacity() > keep {
            self.raw_head = Vec::new();
            self.head_cached = false;
        }
        if self.body.capacity() > keep {
            self.body = Vec::new();
        }
    }

    /// Consumes the bytes of the head; `None` if all bytes belong to it and more are needed.
    fn feed_head<'i>(&mut self, input: &'i [u8]) -> Result<Option<&'i [u8]>, ParseError> {
        if self.head_cached {
            if input.starts_with(&self.raw_head) {
                let length = self.raw_head.len();
                self.begin_body(self.parsed_head)?;
                return Ok(Some(&input[length..]));
            }
            self.head_cached = false;
            self.raw_head.clear();
        }
        let before = self.raw_head.len();
        if before == 0 {
            // The usual case: the whole head is in one chunk and is parsed in place.
            let Some(facts) = head::parse(input, self.expect.head_only)? else {
                self.check_head_size(input.len())?;
                self.raw_head.extend_from_slice(input);
                return Ok(None);
            };
            self.check_head_size(facts.length)?;
            self.raw_head.extend_from_slice(&input[..facts.length]);
            self.begin_body(facts)?;
            return Ok(Some(&input[facts.length..]));
        }
        // Parsing again from the start at every byte would be quadratic: wait for a line end.
        self.raw_head.extend_from_slice(input);
        let parsed = if input.contains(&b'\n') { head::parse(&self.raw_head, self.expect.head_only)? } else { None };
        let Some(facts) = parsed else {
            self.check_head_size(self.raw_head.len())?;
            return Ok(None);
        };
        self.check_head_size(facts.length)?;
        self.raw_head.truncate(facts.length);
        self.begin_body(facts)?;
        Ok(Some(&input[facts.length - before..]))
    }

    fn check_head_size(&self, length: usize) -> Result<(), ParseError> {
        if length > self.limits.head { Err(ParseError::HeadTooLarge) } else { Ok(()) }
    }

    fn begin_body(&mut self, facts: ResponseHead) -> Result<(), ParseError> {
        self.parsed_head = facts;
        if facts.is_interim() {
            self.raw_head.clear();
            return Ok(());
        }
        self.head_cached = true;
        self.state = match facts.framing {
            BodyFraming::None | BodyFraming::Length(0) => ParseState::Done,
            BodyFraming::Length(length) if length > self.limits.body as u64 => {
                return Err(ParseError::BodyTooLarge);
            }
            BodyFraming::Length(length) => {
                // A stated length reserves only this much; the buffer grows as bytes arrive.
                if self.expect.keep_body {
                    self.body.reserve(length.min(64 * 1024) as usize);
                }
                ParseState::Length(length)
            }
            BodyFraming::Chunked => ParseState::Chunked(ChunkedDecoder::default()),
            BodyFraming::UntilClose => ParseState::UntilClose,
        };
        Ok(())
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        self.body_bytes += bytes.len() as u64;
        if self.body_bytes > self.limits.body as u64 {
            return Err(ParseError::BodyTooLarge);
        }
        if self.expect.keep_body {
            self.body.extend_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
