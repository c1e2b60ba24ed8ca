//! The chunked transfer coding, byte by byte where it is framing and slice by slice where it is data.
//! Extensions and trailers are skipped, within the head's limit.

use super::{ParseError, ResponseParser};

#[derive(Debug, Clone, Copy)]
enum ChunkedState {
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

/// Position in a chunked body.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkedDecoder {
    state: ChunkedState,
    size: u64,
    /// Bytes of extensions and trailers so far.
    overhead_bytes: usize,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder { state: ChunkedState::SizeStart, size: 0, overhead_bytes: 0 }
    }
}

impl ChunkedDecoder {
    pub(super) fn done(&self) -> bool {
        matches!(self.state, ChunkedState::Done)
    }

    /// Consumes the bytes that belong to the body and returns the rest.
    pub(super) fn feed<'i>(
        &mut self,
        mut input: &'i [u8],
        parser: &mut ResponseParser,
    ) -> Result<&'i [u8], ParseError> {
        while !self.done() {
            if let ChunkedState::Data(left) = self.state {
                let take = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                parser.take_body(&input[..take])?;
                input = &input[take..];
                let left = left - take as u64;
                self.state = if left == 0 { ChunkedState::DataCr } else { ChunkedState::Data(left) };
                if left > 0 {
                    break;
                }
            }
            let Some((&byte, rest)) = input.split_first() else {
                break;
            };
            self.state = self.step(byte, parser)?;
            input = rest;
        }
        Ok(input)
    }

    fn step(&mut self, byte: u8, parser: &ResponseParser) -> Result<ChunkedState, ParseError> {
        let next = match (self.state, byte) {
            (ChunkedState::SizeStart, _) => {
                self.size = hex(byte).ok_or(ParseError::Malformed("chunk without a size"))?;
                ChunkedState::Size
            }
            (ChunkedState::Size, b'\r') | (ChunkedState::Extension, b'\r') => ChunkedState::SizeLf,
            (ChunkedState::Size, b';' | b' ' | b'\t') => ChunkedState::Extension,
            (ChunkedState::Size, _) => {
                let digit = hex(byte).ok_or(ParseError::Malformed("invalid chunk size"))?;
                let shifted = self.size.checked_mul(16).ok_or(ParseError::Malformed("chunk size overflows"))?;
                self.size = shifted + digit;
                ChunkedState::Size
            }
            (ChunkedState::Extension, b'\n') => {
                return Err(ParseError::Malformed("line feed in a chunk extension"));
            }
            (ChunkedState::Extension, _) => self.skip(parser, ChunkedState::Extension)?,
            (ChunkedState::SizeLf, b'\n') if self.size == 0 => ChunkedState::TrailerStart,
            (ChunkedState::SizeLf, b'\n') if self.size > parser.limits.body as u64 => {
                return Err(ParseError::BodyTooLarge);
            }
            (ChunkedState::SizeLf, b'\n') => ChunkedState::Data(self.size),
            (ChunkedState::DataCr, b'\r') => ChunkedState::DataLf,
            (ChunkedState::DataLf, b'\n') => ChunkedState::SizeStart,
            (ChunkedState::TrailerStart, b'\r') => ChunkedState::EndLf,
            (ChunkedState::TrailerStart, b'\n') | (ChunkedState::EndLf, b'\n') => ChunkedState::Done,
            (ChunkedState::Trailer, b'\n') => ChunkedState::TrailerStart,
            (ChunkedState::TrailerStart | ChunkedState::Trailer, _) => self.skip(parser, ChunkedState::Trailer)?,
            (ChunkedState::SizeLf | ChunkedState::DataCr | ChunkedState::DataLf | ChunkedState::EndLf, _) => {
                return Err(ParseError::Malformed("chunk not ended by CRLF"));
            }
            (ChunkedState::Data(_) | ChunkedState::Done, _) => unreachable!("taken by feed"),
        };
        Ok(next)
    }

    fn skip(&mut self, parser: &ResponseParser, next: ChunkedState) -> Result<ChunkedState, ParseError> {
        self.overhead_bytes += 1;
        if self.overhead_bytes > parser.limits.head { Err(ParseError::HeadTooLarge) } else { Ok(next) }
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
