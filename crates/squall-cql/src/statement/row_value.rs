//! A value of a row as scenarios use it: whole numbers, texts, lists, and times and identifiers in the
//! form in which CQL writes them.

use jiff::{SignedDuration, Timestamp, civil};
use scylla::value::{CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlValue, CqlVarint};
use std::fmt::Write as _;

/// A value that the database returned.
#[derive(Debug, Clone, PartialEq)]
pub enum RowValue {
    Null,
    Boolean(bool),
    Integer(i128),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A value with a text form of its own.
    Scalar(ScalarKind, String),
    /// A list, tuple or vector.
    List(Vec<RowValue>),
    Set(Vec<RowValue>),
    Map(Vec<(RowValue, RowValue)>),
    /// The fields of a user-defined type.
    Fields(Vec<(String, RowValue)>),
}

/// What the text of a scalar means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarKind {
    Uuid,
    /// RFC 3339 in UTC.
    Timestamp,
    /// `2026-01-31`.
    Date,
    /// `13:30:54.234`.
    Time,
    Inet,
    Decimal,
    /// A whole number of more than 128 bits, in hexadecimal digits.
    LongInteger,
    /// `1mo2d3ns`.
    Duration,
}

/// The protocol counts days from the lowest i32.
const EPOCH_DAY: i64 = 1 << 31;

impl From<Option<CqlValue>> for RowValue {
    fn from(value: Option<CqlValue>) -> RowValue {
        value.map_or(RowValue::Null, RowValue::from)
    }
}

impl From<CqlValue> for RowValue {
    fn from(value: CqlValue) -> RowValue {
        let all = |values: Vec<CqlValue>| values.into_iter().map(RowValue::from).collect();
        match value {
            CqlValue::Ascii(text) | CqlValue::Text(text) => RowValue::Text(text),
            CqlValue::Boolean(value) => RowValue::Boolean(value),
            CqlValue::Blob(bytes) => RowValue::Bytes(bytes),
            CqlValue::Counter(counter) => RowValue::Integer(counter.0.into()),
            CqlValue::TinyInt(value) => RowValue::Integer(value.into()),
            CqlValue::SmallInt(value) => RowValue::Integer(value.into()),
            CqlValue::Int(value) => RowValue::Integer(value.into()),
            CqlValue::BigInt(value) => RowValue::Integer(value.into()),
            CqlValue::Varint(value) => varint(&value),
            CqlValue::Decimal(value) => RowValue::Scalar(ScalarKind::Decimal, decimal(&value)),
            CqlValue::Float(value) => RowValue::Real(value.to_string().parse().unwrap_or(f64::from(value))),
            CqlValue::Double(value) => RowValue::Real(value),
            CqlValue::Date(date) => RowValue::Scalar(ScalarKind::Date, date_text(date)),
            CqlValue::Timestamp(time) => RowValue::Scalar(ScalarKind::Timestamp, timestamp_text(time.0)),
            CqlValue::Time(time) => RowValue::Scalar(ScalarKind::Time, time_text(time)),
            CqlValue::Duration(duration) => RowValue::Scalar(ScalarKind::Duration, duration_text(duration)),
            CqlValue::Inet(address) => RowValue::Scalar(ScalarKind::Inet, address.to_string()),
            CqlValue::Uuid(uuid) => RowValue::Scalar(ScalarKind::Uuid, uuid.to_string()),
            CqlValue::Timeuuid(uuid) => RowValue::Scalar(ScalarKind::Uuid, uuid.to_string()),
            CqlValue::List(values) | CqlValue::Vector(values) => RowValue::List(all(values)),
            CqlValue::Set(values) => RowValue::Set(all(values)),
            CqlValue::Tuple(values) => RowValue::List(values.into_iter().map(RowValue::from).collect()),
            CqlValue::Map(pairs) => {
                RowValue::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
            CqlValue::UserDefinedType { fields, .. } => {
                RowValue::Fields(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
            // An empty value of a type that is not a text, which old clients could write.
            _ => RowValue::Null,
        }
    }
}

impl RowValue {
    /// The value as a template writes it: lists and maps as JSON, blobs as `0x…`. `None` is null.
    pub fn text(&self) -> Option<String> {
        match self {
            RowValue::Null => None,
            RowValue::Text(text) | RowValue::Scalar(_, text) => Some(text.clone()),
            RowValue::Bytes(bytes) => Some(hexadecimal(bytes)),
            other => Some(other.json()),
        }
    }

    /// Whether JSON writes the value without quotes.
    pub fn is_literal(&self) -> bool {
        !matches!(self, RowValue::Text(_) | RowValue::Bytes(_) | RowValue::Scalar(..))
    }

    fn json(&self) -> String {
        let joined = |values: &[RowValue]| values.iter().map(RowValue::json).collect::<Vec<_>>().join(",");
        match self {
            RowValue::Null => "null".to_owned(),
            RowValue::Boolean(value) => value.to_string(),
            RowValue::Integer(value) => value.to_string(),
            RowValue::Real(value) if value.is_finite() => value.to_string(),
            RowValue::Real(_) => "null".to_owned(),
            RowValue::Text(text) | RowValue::Scalar(_, text) => json_string(text),
            RowValue::Bytes(bytes) => json_string(&hexadecimal(bytes)),
            RowValue::List(values) | RowValue::Set(values) => format!("[{}]", joined(values)),
            RowValue::Map(pairs) => {
                let pair = |(key, value): &(RowValue, RowValue)| {
                    format!("{}:{}", json_string(&key.text().unwrap_or_default()), value.json())
                };
                format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(","))
            }
            RowValue::Fields(fields) => {
                let field = |(name, value): &(String, RowValue)| format!("{}:{}", json_string(name), value.json());
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
            }
        }
    }
}

fn json_string(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            control if u32::from(control) < 32 => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

fn hexadecimal(bytes: &[u8]) -> String {
    crate::cql_text::blob_literal(bytes)
}

/// A big-endian two's complement number of at most 16 bytes.
fn whole_number(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(sign, |number: i128, byte| number << 8 | i128::from(*byte)))
}

fn varint(value: &CqlVarint) -> RowValue {
    let bytes = value.as_signed_bytes_be_slice();
    match whole_number(bytes) {
        Some(number) => RowValue::Integer(number),
        None => RowValue::Scalar(ScalarKind::LongInteger, hexadecimal(bytes)),
    }
}

fn decimal(value: &CqlDecimal) -> String {
    let (bytes, scale) = value.as_signed_be_bytes_slice_and_exponent();
    let Some(number) = whole_number(bytes) else { return format!("{}e{}", hexadecimal(bytes), -scale) };
    match usize::try_from(scale) {
        Ok(0) => number.to_string(),
        Ok(scale @ 1..=64) => {
            let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            format!("{}{whole}.{fraction}", if number < 0 { "-" } else { "" })
        }
        _ => format!("{number}e{}", -i64::from(scale)),
    }
}

fn date_text(date: CqlDate) -> String {
    let days = i64::from(date.0) - EPOCH_DAY;
    let shown = civil::date(1970, 1, 1).checked_add(SignedDuration::from_hours(days.saturating_mul(24)));
    shown.map_or_else(|_| format!("{days} days"), |date| date.to_string())
}

pub(super) fn timestamp_text(milliseconds: i64) -> String {
    match Timestamp::from_millisecond(milliseconds) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => milliseconds.to_string(),
    }
}

fn time_text(time: CqlTime) -> String {
    let shown = civil::time(0, 0, 0, 0).checked_add(SignedDuration::from_nanos(time.0));
    shown.map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

fn duration_text(duration: CqlDuration) -> String {
    format!("{}mo{}d{}ns", duration.months, duration.days, duration.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_text_that_cql_reads() {
        let decimal =
            |bytes: &[u8], scale| CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_slice_and_exponent(bytes, scale));
        let cases = [
            (decimal(&[0x01, 0x39], 2), "3.13"),
            (decimal(&[0xff], 3), "-0.001"),
            (decimal(&[5], -2), "5e2"),
            (CqlValue::Varint(CqlVarint::from_signed_bytes_be(vec![0xff, 0x7f])), "-129"),
            (CqlValue::Timestamp(scylla::value::CqlTimestamp(1_000)), "1970-01-01T00:00:01.000Z"),
            (CqlValue::Date(CqlDate(1 << 31)), "1970-01-01"),
            (CqlValue::Time(CqlTime(3_600_000_000_001)), "01:00:00.000000001"),
            (CqlValue::Blob(vec![10, 255]), "0x0aff"),
            (CqlValue::Float(0.1), "0.1"),
            (CqlValue::List(vec![CqlValue::Int(1), CqlValue::Text("a\"".to_owned())]), r#"[1,"a\""]"#),
            (CqlValue::Map(vec![(CqlValue::Int(1), CqlValue::Boolean(true))]), r#"{"1":true}"#),
        ];
        for (value, expected) in cases {
            assert_eq!(RowValue::from(value).text().as_deref(), Some(expected));
        }
        assert_eq!(RowValue::from(None).text(), None);
    }
}
