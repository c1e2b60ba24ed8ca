//! Numbers, texts and lists as bytes. It does not know metrics; `metric_codec` does.

use std::{collections::HashMap, sync::Arc};

use super::WireError;
use crate::MetricKey;

/// The longest text; longer ones are cut when they are encoded.
const MAX_TEXT: usize = 16 << 10;

/// The most that one message may take.
#[derive(Clone, Copy)]
pub(super) struct WireLimits {
    pub(super) bytes: usize,
    /// Chunks of histograms, 8 KiB each.
    pub(super) chunks: usize,
    /// The sum of all counts, so that no addition can overflow.
    pub(super) count: u64,
}

/// A message being written.
pub(super) struct WireWriter {
    out: Vec<u8>,
    pub(super) keys: HashMap<Arc<MetricKey>, u64>,
}

impl WireWriter {
    pub(super) fn new(version: u8) -> WireWriter {
        WireWriter { out: vec![version], keys: HashMap::new() }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out.extend_from_slice(&bytes);
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    /// A number of up to 128 bits: its upper half, then its lower half.
    pub(super) fn number_u128(&mut self, number: u128) {
        self.number((number >> 64) as u64);
        self.number(number as u64);
    }

    pub(super) fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        self.number(text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        mut each: impl FnMut(&mut WireWriter, T),
    ) {
        let items = items.into_iter();
        self.number(items.len() as u64);
        items.for_each(|item| each(self, item));
    }
}

/// A message being read.
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
    pub(super) keys: Vec<Arc<MetricKey>>,
    chunks_left: usize,
    count_left: u64,
}

impl<'a> WireReader<'a> {
    pub(super) fn new(bytes: &'a [u8], version: u8, limits: WireLimits) -> Result<WireReader<'a>, WireError> {
        let (&found, rest) = bytes.split_first().ok_or(WireError::CutOff)?;
        if found != version {
            // A version is a small number; a letter is the beginning of some other text.
            return Err(match found < b' ' {
                true => WireError::Version { found },
                false => WireError::Invalid { what: "the first byte is not a version" },
            });
        }
        if bytes.len() > limits.bytes {
            return Err(WireError::TooLarge { what: "bytes" });
        }
        Ok(WireReader { rest, keys: Vec::new(), chunks_left: limits.chunks, count_left: limits.count })
    }

    pub(super) fn finish(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        let (&byte, rest) = self.rest.split_first().ok_or(WireError::CutOff)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(WireError::CutOff)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Invalid { what: "a flag is 0 or 1" }),
        }
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, WireError> {
        let first = self.byte()?;
        if first <= 0x7f { Ok(first.into()) } else { self.long_number(first) }
    }

    fn long_number(&mut self, first: u8) -> Result<u64, WireError> {
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte <= 0x7f {
                let shortest = byte != 0 && (shift < 63 || byte == 1);
                return if shortest {
                    Ok(number)
                } else {
                    Err(WireError::Invalid { what: "a number is not in its shortest form" })
                };
            }
        }
        Err(WireError::Invalid { what: "a number has more than 64 bits" })
    }

    pub(super) fn number_u128(&mut self) -> Result<u128, WireError> {
        Ok(u128::from(self.number()?) << 64 | u128::from(self.number()?))
    }

    /// A number less than `bound`.
    pub(super) fn number_below(&mut self, bound: u64, what: &'static str) -> Result<u64, WireError> {
        let number = self.number()?;
        if number < bound { Ok(number) } else { Err(WireError::TooLarge { what }) }
    }

    /// A count that will be added to others.
    #[inline]
    pub(super) fn counter(&mut self) -> Result<u64, WireError> {
        let number = self.number()?;
        self.count_left = self.count_left.checked_sub(number).ok_or(WireError::TooLarge { what: "counts" })?;
        Ok(number)
    }

    /// Takes the memory of `chunks` histogram chunks from the limit.
    pub(super) fn reserve_chunks(&mut self, chunks: usize) -> Result<(), WireError> {
        self.chunks_left = self.chunks_left.checked_sub(chunks).ok_or(WireError::TooLarge { what: "histograms" })?;
        Ok(())
    }

    pub(super) fn text(&mut self) -> Result<&'a str, WireError> {
        let length = self.number_below(MAX_TEXT as u64 + 1, "text")? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(WireError::CutOff)?;
        self.rest = rest;
        std::str::from_utf8(bytes).map_err(|_| WireError::Invalid { what: "a text is not UTF-8" })
    }

    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let length = self.number()?;
        // Every item takes at least a byte. Memory is allocated as items are decoded, never for the
        // announced number.
        if length > self.rest.len() as u64 {
            return Err(WireError::CutOff);
        }
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(each(self)?);
        }
        Ok(items)
    }
}
