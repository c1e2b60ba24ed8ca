//! Reads one HTTP/1.1 response out of bytes, in pieces of any size. Does no I/O, so that it can be fuzzed and tested alone.
//!
//! The bytes of the head are kept (callers look headers up in them); those of the body only when asked for.
//! It refuses what could be read in two ways: conflicting lengths, folded headers, bad chunk sizes.

mod chunked;
mod head;

use chunked::Chunked;
pub use head::{Encoding, Framing, Head};

/// What is accepted at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the head; also of chunk extensions and trailers together.
    pub head: usize,
    /// Bytes of the body.
    pub body: usize,
}

/// What is known of the response before it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// The request was HEAD, so there is no body whatever the head says.
    pub head_only: bool,
    /// Keep the body's bytes.
    pub keep: bool,
}

/// Why bytes are not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not HTTP.
    #[error("{0}")]
    Malformed(&'static str),
    /// More than [`Limits::head`].
    #[error("head too large")]
    HeadTooLarge,
    /// More than [`Limits::body`].
    #[error("body too large")]
    BodyTooLarge,
    /// The stream ended before the first byte.
    #[error("closed")]
    Closed,
    /// The stream ended inside the response.
    #[error("truncated")]
    Truncated,
}

/// What a piece led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// The response goes on.
    More,
    /// The response is complete; this many bytes of the piece belong to it.
    Done(usize),
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Done,
}

/// The reader of one connection's responses, one after the other.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    expect: Expect,
    stage: Stage,
    facts: Head,
    head: Vec<u8>,
    /// `head` is the whole head of the last response and `facts` are its facts. Heads are self-delimiting, so a
    /// response that begins with the same bytes has the same facts: under load, most are not parsed at all.
    known: bool,
    body: Vec<u8>,
    body_bytes: u64,
    received: u64,
}

impl Reader {
    /// A reader that owns no memory yet.
    pub fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            expect: Expect { head_only: false, keep: false },
            stage: Stage::Done,
            facts: Head::default(),
            head: Vec::new(),
            known: false,
            body: Vec::new(),
            body_bytes: 0,
            received: 0,
        }
    }

    /// Forgets the last response and waits for the next.
    pub fn begin(&mut self, expect: Expect) {
        self.known = self.known && self.expect.head_only == expect.head_only;
        self.expect = expect;
        self.stage = Stage::Head;
        if !self.known {
            self.head.clear();
        }
        self.body.clear();
        self.body_bytes = 0;
        self.received = 0;
    }

    /// Takes the next piece. Bytes that turn out to be no response have been received all the same.
    pub fn feed(&mut self, input: &[u8]) -> Result<Fed, ParseError> {
        let fed = self.advance(input);
        self.received += match fed {
            Ok(Fed::Done(used)) => used as u64,
            Ok(Fed::More) | Err(_) => input.len() as u64,
        };
        fed
    }

    fn advance(&mut self, input: &[u8]) -> Result<Fed, ParseError> {
        let mut rest = input;
        loop {
            rest = match self.stage {
                Stage::Head => match self.feed_head(rest)? {
                    Some(rest) => rest,
                    None => break,
                },
                Stage::Length(left) => {
                    let take = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.take_body(&rest[..take])?;
                    let left = left - take as u64;
                    self.stage = if left == 0 { Stage::Done } else { Stage::Length(left) };
                    &rest[take..]
                }
                Stage::Chunked(mut chunked) => {
                    let rest = chunked.feed(rest, self)?;
                    self.stage = if chunked.done() { Stage::Done } else { Stage::Chunked(chunked) };
                    rest
                }
                Stage::UntilClose => {
                    self.take_body(rest)?;
                    &[]
                }
                Stage::Done => break,
            };
            if rest.is_empty() && !matches!(self.stage, Stage::Done) {
                break;
            }
        }
        let done = matches!(self.stage, Stage::Done);
        Ok(if done { Fed::Done(input.len() - rest.len()) } else { Fed::More })
    }

    /// The stream has ended. Right only where the end of the stream is the end of the body.
    pub fn finish(&mut self) -> Result<(), ParseError> {
        match self.stage {
            Stage::Done => Ok(()),
            Stage::UntilClose => {
                self.stage = Stage::Done;
                Ok(())
            }
            Stage::Head if self.received == 0 => Err(ParseError::Closed),
            // Bytes without a line end may have waited unjudged: rubbish is not "truncated".
            Stage::Head => match head::parse(&self.head, self.expect.head_only) {
                Err(error) => Err(error),
                Ok(_) => Err(ParseError::Truncated),
            },
            Stage::Length(_) | Stage::Chunked(_) => Err(ParseError::Truncated),
        }
    }

    /// What it accepts at most.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The facts of the head; meaningful once it has been read.
    pub fn facts(&self) -> &Head {
        &self.facts
    }

    /// The head's bytes, status line included.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The body's bytes as sent, unframed; empty unless kept.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of this response so far, framing included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Hands out what has come of the body and forgets it.
    pub(crate) fn take_piece(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Replaces the body with its decoded form.
    pub(crate) fn replace_body(&mut self, body: Vec<u8>) {
        self.body = body;
    }

    /// Takes a head that another protocol (HTTP/2) has framed, in HTTP/1 form.
    pub(crate) fn adopt_head(&mut self, text: &[u8]) -> Result<(), ParseError> {
        self.check_head(text.len())?;
        self.known = false;
        self.head.clear();
        self.facts = head::parse(text, true)?.ok_or(ParseError::Malformed("incomplete head"))?;
        self.head.extend_from_slice(text);
        self.stage = Stage::Done;
        Ok(())
    }

    /// Takes a part of a body that another protocol has framed.
    pub(crate) fn adopt_body(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        self.take_body(bytes)
    }

    /// Gives memory back that a usual response does not need.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.head.capacity() > keep {
            self.head = Vec::new();
            self.known = false;
        }
        if self.body.capacity() > keep {
            self.body = Vec::new();
        }
    }

    /// Takes what belongs to the head; `None`: all of it, and more is needed.
    fn feed_head<'i>(&mut self, input: &'i [u8]) -> Result<Option<&'i [u8]>, ParseError> {
        if self.known {
            if input.starts_with(&self.head) {
                let length = self.head.len();
                self.enter_body(self.facts)?;
                return Ok(Some(&input[length..]));
            }
            self.known = false;
            self.head.clear();
        }
        let before = self.head.len();
        if before == 0 {
            // The usual case: the whole head in one piece, parsed where it lies.
            let Some(facts) = head::parse(input, self.expect.head_only)? else {
                self.check_head(input.len())?;
                self.head.extend_from_slice(input);
                return Ok(None);
            };
            self.check_head(facts.length)?;
            self.head.extend_from_slice(&input[..facts.length]);
            self.enter_body(facts)?;
            return Ok(Some(&input[facts.length..]));
        }
        // Parsing again from the start at every byte would be quadratic: wait for a line end.
        self.head.extend_from_slice(input);
        let parsed = if input.contains(&b'\n') { head::parse(&self.head, self.expect.head_only)? } else { None };
        let Some(facts) = parsed else {
            self.check_head(self.head.len())?;
            return Ok(None);
        };
        self.check_head(facts.length)?;
        self.head.truncate(facts.length);
        self.enter_body(facts)?;
        Ok(Some(&input[facts.length - before..]))
    }

    fn check_head(&self, length: usize) -> Result<(), ParseError> {
        if length > self.limits.head { Err(ParseError::HeadTooLarge) } else { Ok(()) }
    }

    fn enter_body(&mut self, facts: Head) -> Result<(), ParseError> {
        self.facts = facts;
        if facts.interim() {
            self.head.clear();
            return Ok(());
        }
        self.known = true;
        self.stage = match facts.framing {
            Framing::None | Framing::Length(0) => Stage::Done,
            Framing::Length(length) if length > self.limits.body as u64 => {
                return Err(ParseError::BodyTooLarge);
            }
            Framing::Length(length) => {
                // Trust a stated length only so far: memory is taken as bytes come.
                if self.expect.keep {
                    self.body.reserve(length.min(64 * 1024) as usize);
                }
                Stage::Length(length)
            }
            Framing::Chunked => Stage::Chunked(Chunked::default()),
            Framing::UntilClose => Stage::UntilClose,
        };
        Ok(())
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        self.body_bytes += bytes.len() as u64;
        if self.body_bytes > self.limits.body as u64 {
            return Err(ParseError::BodyTooLarge);
        }
        if self.expect.keep {
            self.body.extend_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
