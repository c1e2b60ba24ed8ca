//! One generated value: its bytes in the native protocol, its order, and what it adds to the seed
//! of the values that depend on it. It draws nothing.

use crate::random::{fold_bytes, fold_number, fold_text};
use std::{cmp::Ordering, fmt, net::Ipv4Addr};

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum CqlValue {
    Blob(Vec<u8>),
    /// Generated texts have only 7-bit characters, so `ascii` and `text` do not differ.
    Text(String),
    Boolean(bool),
    TinyInt(i8),
    SmallInt(i16),
    Int(i32),
    /// `bigint`, `counter` and `time`.
    BigInt(i64),
    VarInt(i64),
    /// With scale 0.
    Decimal(i64),
    Float(f32),
    Double(f64),
    /// Days since 1970.
    Date(i32),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Inet([u8; 4]),
    Uuid(u128),
    TimeUuid(u128),
    List(Vec<CqlValue>),
    /// In the order of the element type, each element once.
    Set(Vec<CqlValue>),
}

impl CqlValue {
    /// Appends the value's bytes in the native protocol, without their length.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            CqlValue::Blob(bytes) => out.extend_from_slice(bytes),
            CqlValue::Text(text) => out.extend_from_slice(text.as_bytes()),
            CqlValue::Boolean(value) => out.push(u8::from(*value)),
            CqlValue::TinyInt(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::SmallInt(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::BigInt(value) | CqlValue::Timestamp(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::VarInt(value) => write_varint(*value, out),
            CqlValue::Decimal(value) => {
                out.extend_from_slice(&0_i32.to_be_bytes());
                write_varint(*value, out);
            }
            CqlValue::Float(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::Double(value) => out.extend_from_slice(&value.to_be_bytes()),
            // The protocol counts days from the lowest i32, so that 1970-01-01 is 2^31.
            CqlValue::Date(days) => out.extend_from_slice(&days.wrapping_add(i32::MIN).to_be_bytes()),
            CqlValue::Inet(address) => out.extend_from_slice(address),
            CqlValue::Uuid(value) | CqlValue::TimeUuid(value) => out.extend_from_slice(&value.to_be_bytes()),
            CqlValue::List(elements) | CqlValue::Set(elements) => write_elements(elements, out),
        }
    }

    /// The value's bytes in the native protocol.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// How many bytes [`CqlValue::write`] appends.
    pub fn length(&self) -> usize {
        match self {
            CqlValue::Blob(bytes) => bytes.len(),
            CqlValue::Text(text) => text.len(),
            CqlValue::Boolean(_) | CqlValue::TinyInt(_) => 1,
            CqlValue::SmallInt(_) => 2,
            CqlValue::Int(_) | CqlValue::Float(_) | CqlValue::Date(_) | CqlValue::Inet(_) => 4,
            CqlValue::BigInt(_) | CqlValue::Double(_) | CqlValue::Timestamp(_) => 8,
            CqlValue::VarInt(value) => 8 - redundant_bytes(*value),
            CqlValue::Decimal(value) => 4 + 8 - redundant_bytes(*value),
            CqlValue::Uuid(_) | CqlValue::TimeUuid(_) => 16,
            CqlValue::List(elements) | CqlValue::Set(elements) => {
                4 + elements.iter().map(|element| 4 + element.length()).sum::<usize>()
            }
        }
    }

    /// The seed of the values that depend on this one.
    pub(super) fn fold(&self, seed: i64) -> i64 {
        match self {
            CqlValue::Blob(bytes) => fold_bytes(seed, bytes),
            CqlValue::Text(text) => fold_text(seed, text),
            CqlValue::TinyInt(value) => fold_number(seed, i64::from(*value)),
            CqlValue::SmallInt(value) => fold_number(seed, i64::from(*value)),
            CqlValue::Int(value) | CqlValue::Date(value) => fold_number(seed, i64::from(*value)),
            CqlValue::BigInt(value) | CqlValue::VarInt(value) | CqlValue::Decimal(value) => fold_number(seed, *value),
            CqlValue::Float(value) => fold_number(seed, *value as i64),
            CqlValue::Double(value) => fold_number(seed, *value as i64),
            CqlValue::Uuid(value) | CqlValue::TimeUuid(value) => {
                fold_number(seed, (*value >> 64) as i64 ^ *value as i64)
            }
            CqlValue::Boolean(_)
            | CqlValue::Timestamp(_)
            | CqlValue::Inet(_)
            | CqlValue::List(_)
            | CqlValue::Set(_) => fold_bytes(seed, &self.to_bytes()),
        }
    }

    /// The order of the database for two values of one type.
    pub fn order(&self, other: &CqlValue) -> Ordering {
        match (self, other) {
            (CqlValue::Text(a), CqlValue::Text(b)) => a.cmp(b),
            (CqlValue::Blob(a), CqlValue::Blob(b)) => a.cmp(b),
            (CqlValue::Float(a), CqlValue::Float(b)) => a.total_cmp(b),
            (CqlValue::Double(a), CqlValue::Double(b)) => a.total_cmp(b),
            (CqlValue::TimeUuid(a), CqlValue::TimeUuid(b)) => {
                // The database compares the lower halves as signed bytes.
                let lower = |uuid: u128| uuid as u64 ^ 0x8080_8080_8080_8080;
                uuid_time(*a).cmp(&uuid_time(*b)).then_with(|| lower(*a).cmp(&lower(*b)))
            }
            (CqlValue::Uuid(a), CqlValue::Uuid(b)) => uuid_order(*a, *b),
            (CqlValue::List(a) | CqlValue::Set(a), CqlValue::List(b) | CqlValue::Set(b)) => {
                let different = a.iter().zip(b).map(|(a, b)| a.order(b)).find(|order| order.is_ne());
                different.unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (a, b) => a.number().cmp(&b.number()),
        }
    }

    fn number(&self) -> i64 {
        match self {
            CqlValue::Boolean(value) => i64::from(*value),
            CqlValue::TinyInt(value) => i64::from(*value),
            CqlValue::SmallInt(value) => i64::from(*value),
            CqlValue::Int(value) | CqlValue::Date(value) => i64::from(*value),
            CqlValue::BigInt(value)
            | CqlValue::VarInt(value)
            | CqlValue::Decimal(value)
            | CqlValue::Timestamp(value) => *value,
            CqlValue::Inet(address) => i64::from(u32::from_be_bytes(*address)),
            _ => 0,
        }
    }
}

/// As people read it in messages: blobs and UUIDs in hexadecimal digits, and no control characters.
impl fmt::Display for CqlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlValue::Text(text) => text.escape_debug().fmt(f),
            CqlValue::Blob(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            CqlValue::Float(value) => value.fmt(f),
            CqlValue::Double(value) => value.fmt(f),
            CqlValue::Inet(address) => Ipv4Addr::from(*address).fmt(f),
            CqlValue::Boolean(value) => value.fmt(f),
            CqlValue::Uuid(value) | CqlValue::TimeUuid(value) => write!(f, "{value:032x}"),
            CqlValue::List(elements) | CqlValue::Set(elements) => {
                let texts: Vec<String> = elements.iter().map(CqlValue::to_string).collect();
                write!(f, "[{}]", texts.join(", "))
            }
            number => number.number().fmt(f),
        }
    }
}

/// The time of a version 1 UUID, in units of 100 ns.
fn uuid_time(uuid: u128) -> u64 {
    let high = (uuid >> 64) as u64;
    (high & 0x0fff) << 48 | (high >> 16 & 0xffff) << 32 | high >> 32
}

/// The database compares versions first, and two UUIDs of version 1 by their times.
fn uuid_order(a: u128, b: u128) -> Ordering {
    let version = |uuid: u128| (uuid >> 76) & 15;
    let times = match (version(a), version(b)) {
        (1, 1) => uuid_time(a).cmp(&uuid_time(b)),
        (a, b) => a.cmp(&b),
    };
    times.then(a.cmp(&b))
}

/// The shortest two's complement form.
fn write_varint(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes()[redundant_bytes(value)..]);
}

/// How many of the first bytes only repeat the sign.
fn redundant_bytes(value: i64) -> usize {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let is_redundant = |i: &usize| bytes[*i] == sign && (bytes[i + 1] ^ sign) & 0x80 == 0;
    (0..7).take_while(is_redundant).count()
}

fn write_elements(elements: &[CqlValue], out: &mut Vec<u8>) {
    out.extend_from_slice(&(elements.len() as i32).to_be_bytes());
    for element in elements {
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        element.write(out);
        let length = (out.len() - length_at - 4) as i32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_have_the_shortest_form() {
        let cases: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (127, &[127]),
            (128, &[0, 128]),
            (-1, &[255]),
            (-128, &[128]),
            (-129, &[255, 127]),
            (i64::MIN, &[128, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, expected) in cases {
            assert_eq!(CqlValue::VarInt(value).to_bytes(), expected, "{value}");
        }
    }

    #[test]
    fn uuids_of_version_1_are_in_the_order_of_their_times() {
        let uuid = |high: u64| CqlValue::Uuid(u128::from(high) << 64 | 7);
        // The lowest 32 bits of the time come first in the bytes.
        let (early, late) = (uuid(0xffff_ffff_0000_1000), uuid(0x0000_0000_0001_1000));
        assert_eq!((early.order(&late), late.order(&early)), (Ordering::Less, Ordering::Greater));
        assert_eq!(early.order(&uuid(0x0000_0000_0000_2000)), Ordering::Less, "the version comes first");
        assert_eq!(uuid(0xffff_0000_0000_4000).order(&uuid(0x0000_0000_0000_4000)), Ordering::Greater);
        let lower = |low: u64| CqlValue::Uuid(0x1000 << 64 | u128::from(low));
        assert_eq!(lower(1).order(&lower(u64::MAX)), Ordering::Less, "equal times are followed by the bytes");
    }

    #[test]
    fn the_length_of_a_value_is_that_of_its_bytes() {
        let values = [
            CqlValue::Blob(vec![1; 3]),
            CqlValue::Text("ab".to_owned()),
            CqlValue::Boolean(true),
            CqlValue::TinyInt(1),
            CqlValue::SmallInt(1),
            CqlValue::Int(1),
            CqlValue::BigInt(1),
            CqlValue::Float(1.0),
            CqlValue::Double(1.0),
            CqlValue::Date(1),
            CqlValue::Timestamp(1),
            CqlValue::Inet([1; 4]),
            CqlValue::Uuid(1),
            CqlValue::TimeUuid(1),
        ];
        for value in values.iter().cloned().chain([CqlValue::List(values.to_vec())]) {
            assert_eq!(value.length(), value.to_bytes().len(), "{value:?}");
        }
    }

    #[test]
    fn elements_carry_their_length() {
        let list = CqlValue::List(vec![CqlValue::Int(1), CqlValue::Int(-1)]);
        assert_eq!(list.to_bytes(), [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 255, 255, 255, 255]);
    }

    proptest! {
        #[test]
        fn a_varint_is_read_back(value: i64) {
            let bytes = CqlValue::VarInt(value).to_bytes();
            let start = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
            let read = bytes.iter().fold(start, |number: i64, byte| number << 8 | i64::from(*byte));
            prop_assert_eq!(read, value);
            for number in [CqlValue::VarInt(value), CqlValue::Decimal(value)] {
                prop_assert_eq!(number.length(), number.to_bytes().len());
            }
        }
    }
}
