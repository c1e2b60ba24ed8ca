//! The chunked transfer coding, byte by byte where it is framing and slice by slice where it is data.
//! Extensions and trailers are skipped, within the head's limit.

use super::{ParseError, Reader};

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the first digit of a size.
    SizeStart,
    Size,
    /// After the size: blanks or an extension, up to the line's end.
    Extension,
    SizeLf,
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    Trailer,
    /// After the CR of an empty line.
    EndLf,
    Done,
}

/// Where in a chunked body we are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunked {
    state: State,
    size: u64,
    /// Bytes of extensions and trailers so far.
    extra: usize,
}

impl Default for Chunked {
    fn default() -> Self {
        Chunked { state: State::SizeStart, size: 0, extra: 0 }
    }
}

impl Chunked {
    pub(super) fn done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes what belongs to the body and returns what does not.
    pub(super) fn feed<'i>(&mut self, mut input: &'i [u8], reader: &mut Reader) -> Result<&'i [u8], ParseError> {
        while !self.done() {
            if let State::Data(left) = self.state {
                let take = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                reader.take_body(&input[..take])?;
                input = &input[take..];
                let left = left - take as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                if left > 0 {
                    break;
                }
            }
            let Some((&byte, rest)) = input.split_first() else {
                break;
            };
            self.state = self.step(byte, reader)?;
            input = rest;
        }
        Ok(input)
    }

    fn step(&mut self, byte: u8, reader: &Reader) -> Result<State, ParseError> {
        let next = match (self.state, byte) {
            (State::SizeStart, _) => {
                self.size = hex(byte).ok_or(ParseError::Malformed("chunk without a size"))?;
                State::Size
            }
            (State::Size, b'\r') | (State::Extension, b'\r') => State::SizeLf,
            (State::Size, b';' | b' ' | b'\t') => State::Extension,
            (State::Size, _) => {
                let digit = hex(byte).ok_or(ParseError::Malformed("invalid chunk size"))?;
                let shifted = self.size.checked_mul(16).ok_or(ParseError::Malformed("chunk size overflows"))?;
                self.size = shifted + digit;
                State::Size
            }
            (State::Extension, b'\n') => {
                return Err(ParseError::Malformed("line feed in a chunk extension"));
            }
            (State::Extension, _) => self.skip(reader, State::Extension)?,
            (State::SizeLf, b'\n') if self.size == 0 => State::TrailerStart,
            (State::SizeLf, b'\n') if self.size > reader.limits.body as u64 => {
                return Err(ParseError::BodyTooLarge);
            }
            (State::SizeLf, b'\n') => State::Data(self.size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::SizeStart,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart, b'\n') | (State::EndLf, b'\n') => State::Done,
            (State::Trailer, b'\n') => State::TrailerStart,
            (State::TrailerStart | State::Trailer, _) => self.skip(reader, State::Trailer)?,
            (State::SizeLf | State::DataCr | State::DataLf | State::EndLf, _) => {
                return Err(ParseError::Malformed("chunk not ended by CRLF"));
            }
            (State::Data(_) | State::Done, _) => unreachable!("taken by feed"),
        };
        Ok(next)
    }

    fn skip(&mut self, reader: &Reader, next: State) -> Result<State, ParseError> {
        self.extra += 1;
        if self.extra > reader.limits.head { Err(ParseError::HeadTooLarge) } else { Ok(next) }
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
