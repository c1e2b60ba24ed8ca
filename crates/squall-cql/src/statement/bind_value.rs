//! Converts a value that a scenario gives to the type of its column. A text is read in the form in which
//! CQL writes the type; a `Number` never becomes a text. A number that is a whole value of a TOML scenario comes
//! as a text.

use super::generated_value::cql_type;
use jiff::{Timestamp, civil};
use scylla::{
    frame::response::result::{CollectionType, ColumnType, NativeType},
    value::{Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint},
};
use std::{net::IpAddr, str::FromStr};

/// A value as a scenario gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementValue {
    Null,
    Boolean(bool),
    /// As JSON writes it.
    Number(String),
    Text(String),
    Bytes(Vec<u8>),
    /// A list, set, tuple or vector.
    List(Vec<StatementValue>),
    /// A map, or the fields of a user-defined type.
    Map(Vec<(StatementValue, StatementValue)>),
    /// The generator at this position draws the value of a seed.
    Generated {
        seed: u64,
    },
}

/// Why a value does not fit its type.
#[derive(Debug)]
pub(super) struct Misfit(pub(super) String);

const EPOCH: civil::Date = civil::date(1970, 1, 1);

impl StatementValue {
    pub(super) fn convert(&self, column: &ColumnType<'_>) -> Result<CqlValue, Misfit> {
        match column {
            ColumnType::Native(native) => self.native(native),
            ColumnType::Collection { typ: CollectionType::List(element), .. } => Ok(CqlValue::List(
                self.elements(column)?.iter().map(|value| value.convert(element)).collect::<Result<_, _>>()?,
            )),
            ColumnType::Collection { typ: CollectionType::Set(element), .. } => Ok(CqlValue::Set(
                self.elements(column)?.iter().map(|value| value.convert(element)).collect::<Result<_, _>>()?,
            )),
            ColumnType::Vector { typ, dimensions } => {
                let elements = self.elements(column)?;
                if elements.len() != usize::from(*dimensions) {
                    return Err(Misfit(format!("it has {} elements, the vector has {dimensions}", elements.len())));
                }
                Ok(CqlValue::Vector(elements.iter().map(|value| value.convert(typ)).collect::<Result<_, _>>()?))
            }
            ColumnType::Tuple(types) => {
                let elements = self.elements(column)?;
                if elements.len() != types.len() {
                    return Err(Misfit(format!("it has {} elements, the tuple has {}", elements.len(), types.len())));
                }
                let convert = |(value, column): (&StatementValue, &ColumnType<'_>)| value.convert_or_null(column);
                Ok(CqlValue::Tuple(elements.iter().zip(types).map(convert).collect::<Result<_, _>>()?))
            }
            ColumnType::Collection { typ: CollectionType::Map(key, value), .. } => {
                let pair = |pair: &(StatementValue, StatementValue)| Ok((pair.0.convert(key)?, pair.1.convert(value)?));
                Ok(CqlValue::Map(self.pairs(column)?.iter().map(pair).collect::<Result<_, Misfit>>()?))
            }
            ColumnType::UserDefinedType { definition, .. } => {
                let pairs = self.pairs(column)?;
                let field_name = |pair: &(StatementValue, StatementValue)| match &pair.0 {
                    StatementValue::Text(name) => name.clone(),
                    other => other.describe(),
                };
                if let Some(unknown) = pairs
                    .iter()
                    .map(field_name)
                    .find(|name| !definition.field_types.iter().any(|(known, _)| known == name))
                {
                    return Err(Misfit(format!("{} has no field {unknown}", definition.name)));
                }
                let field = |(name, column): &(std::borrow::Cow<'_, str>, ColumnType<'_>)| {
                    let given = pairs.iter().find(|pair| field_name(pair) == *name);
                    let value = given.map_or(Ok(None), |(_, value)| value.convert_or_null(column));
                    value.map(|value| (name.to_string(), value))
                };
                Ok(CqlValue::UserDefinedType {
                    keyspace: definition.keyspace.to_string(),
                    name: definition.name.to_string(),
                    fields: definition.field_types.iter().map(field).collect::<Result<_, _>>()?,
                })
            }
            other => Err(Misfit(format!("values of the type {} cannot be written", cql_type(other)))),
        }
    }

    fn convert_or_null(&self, column: &ColumnType<'_>) -> Result<Option<CqlValue>, Misfit> {
        match self {
            StatementValue::Null => Ok(None),
            value => value.convert(column).map(Some),
        }
    }

    fn native(&self, native: &NativeType) -> Result<CqlValue, Misfit> {
        Ok(match (native, self) {
            (NativeType::Ascii, StatementValue::Text(text)) if text.is_ascii() => CqlValue::Ascii(text.clone()),
            (NativeType::Text, StatementValue::Text(text)) => CqlValue::Text(text.clone()),
            (NativeType::Boolean, StatementValue::Boolean(value)) => CqlValue::Boolean(*value),
            (NativeType::Boolean, StatementValue::Text(text)) => CqlValue::Boolean(self.parsed(text, native)?),
            (NativeType::Blob, StatementValue::Bytes(bytes)) => CqlValue::Blob(bytes.clone()),
            (NativeType::Blob, StatementValue::Text(text)) => {
                CqlValue::Blob(blob(text).ok_or_else(|| self.misfit(native))?)
            }
            (NativeType::Ascii | NativeType::Text | NativeType::Boolean | NativeType::Blob, _) => {
                return Err(self.misfit(native));
            }
            (_, StatementValue::Text(text) | StatementValue::Number(text)) => self.convert_text(text.trim(), native)?,
            _ => return Err(self.misfit(native)),
        })
    }

    fn convert_text(&self, text: &str, native: &NativeType) -> Result<CqlValue, Misfit> {
        let wrong = || self.misfit(native);
        Ok(match native {
            NativeType::TinyInt => CqlValue::TinyInt(self.parsed(text, native)?),
            NativeType::SmallInt => CqlValue::SmallInt(self.parsed(text, native)?),
            NativeType::Int => CqlValue::Int(self.parsed(text, native)?),
            NativeType::BigInt => CqlValue::BigInt(self.parsed(text, native)?),
            NativeType::Counter => CqlValue::Counter(Counter(self.parsed(text, native)?)),
            NativeType::Varint => {
                CqlValue::Varint(CqlVarint::from_signed_bytes_be(shortest(self.parsed(text, native)?)))
            }
            NativeType::Decimal => CqlValue::Decimal(decimal(text).ok_or_else(wrong)?),
            NativeType::Float => CqlValue::Float(self.parsed(text, native)?),
            NativeType::Double => CqlValue::Double(self.parsed(text, native)?),
            NativeType::Uuid => CqlValue::Uuid(self.parsed::<CqlTimeuuid>(text, native)?.into()),
            NativeType::Timeuuid => {
                let uuid: CqlTimeuuid = self.parsed(text, native)?;
                if (uuid.as_u128() >> 76) & 15 != 1 {
                    return Err(Misfit(format!("{} is not a UUID of version 1", self.describe())));
                }
                CqlValue::Timeuuid(uuid)
            }
            NativeType::Inet => CqlValue::Inet(self.parsed::<IpAddr>(text, native)?),
            NativeType::Timestamp => CqlValue::Timestamp(CqlTimestamp(timestamp(text).ok_or_else(wrong)?)),
            NativeType::Date => CqlValue::Date(CqlDate(date(text).ok_or_else(wrong)?)),
            NativeType::Time => CqlValue::Time(CqlTime(time(text).ok_or_else(wrong)?)),
            NativeType::Duration => CqlValue::Duration(duration(text).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        })
    }

    fn parsed<T: FromStr>(&self, text: &str, native: &NativeType) -> Result<T, Misfit> {
        text.parse().map_err(|_| self.misfit(native))
    }

    fn elements(&self, column: &ColumnType<'_>) -> Result<&[StatementValue], Misfit> {
        match self {
            StatementValue::List(elements) => Ok(elements),
            other => Err(Misfit(format!("{} is not a list for {}", other.describe(), cql_type(column)))),
        }
    }

    fn pairs(&self, column: &ColumnType<'_>) -> Result<&[(StatementValue, StatementValue)], Misfit> {
        match self {
            StatementValue::Map(pairs) => Ok(pairs),
            other => {
                Err(Misfit(format!("{} is not a table of names and values for {}", other.describe(), cql_type(column))))
            }
        }
    }

    fn misfit(&self, native: &NativeType) -> Misfit {
        let example = match native {
            NativeType::Ascii => "a text of ASCII characters",
            NativeType::Text => "a text",
            NativeType::Boolean => "true or false",
            NativeType::Blob => "bytes, written as 0x0aff",
            NativeType::TinyInt => "a whole number from -128 to 127",
            NativeType::SmallInt => "a whole number from -32768 to 32767",
            NativeType::Int => "a whole number of 32 bits",
            NativeType::BigInt | NativeType::Counter => "a whole number of 64 bits",
            NativeType::Varint => "a whole number of at most 128 bits",
            NativeType::Decimal | NativeType::Float | NativeType::Double => "a number",
            NativeType::Uuid | NativeType::Timeuuid => "a UUID",
            NativeType::Inet => "an IP address",
            NativeType::Timestamp => "a time such as 2026-01-31T13:30:00Z, or milliseconds since 1970",
            NativeType::Date => "a date such as 2026-01-31",
            NativeType::Time => "a time of day such as 13:30:54.2, or nanoseconds since midnight",
            NativeType::Duration => "a duration such as 1mo2d3h, 90m or 500ms",
            _ => "a value of its type",
        };
        Misfit(format!("{} is not {example}", self.describe()))
    }

    /// The value in a message, shortened.
    fn describe(&self) -> String {
        let shorten = |text: &str| match text.char_indices().nth(40) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        match self {
            StatementValue::Null => "null".to_owned(),
            StatementValue::Boolean(value) => value.to_string(),
            StatementValue::Number(text) => shorten(text),
            StatementValue::Text(text) => format!("{:?}", shorten(text)),
            StatementValue::Bytes(bytes) => format!("a value of {} bytes", bytes.len()),
            StatementValue::List(elements) => format!("a list of {}", elements.len()),
            StatementValue::Map(pairs) => format!("a table of {}", pairs.len()),
            StatementValue::Generated { .. } => "a generated value".to_owned(),
        }
    }
}

/// `0x0aff`.
fn blob(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    if digits.len() % 2 != 0 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// The shortest two's complement form.
fn shortest(value: i128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant = |at: &usize| bytes[*at] == sign && (bytes[at + 1] ^ sign) & 0x80 == 0;
    bytes[(0..15).take_while(redundant).count()..].to_vec()
}

/// `-12.50` or `1e3`.
fn decimal(text: &str) -> Option<CqlDecimal> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    Some(CqlDecimal::from_signed_be_bytes_and_exponent(shortest(unscaled), scale))
}

/// Milliseconds since 1970.
fn timestamp(text: &str) -> Option<i64> {
    if let Ok(milliseconds) = text.parse() {
        return Some(milliseconds);
    }
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let local = text.parse::<civil::DateTime>().ok()?;
        local.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    });
    time.map(Timestamp::as_millisecond)
}

/// Days, counted from the lowest i32.
fn date(text: &str) -> Option<u32> {
    let date: civil::Date = text.parse().ok()?;
    let days = date.since((jiff::Unit::Day, EPOCH)).ok()?.get_days();
    Some(days.wrapping_add(i32::MIN) as u32)
}

/// Nanoseconds since midnight.
fn time(text: &str) -> Option<i64> {
    const DAY: i64 = 86_400_000_000_000;
    if let Ok(nanoseconds) = text.parse() {
        return (0..DAY).contains(&nanoseconds).then_some(nanoseconds);
    }
    let time: civil::Time = text.parse().ok()?;
    let since = time.duration_since(civil::Time::midnight()).as_nanos();
    i64::try_from(since).ok()
}

/// `1y2mo3w4d5h6m7s8ms9us10ns`, any of them.
fn duration(text: &str) -> Option<CqlDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut duration = CqlDuration { months: 0, days: 0, nanoseconds: 0 };
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        let count = count * sign;
        let after = &rest[digits..];
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let months = |each: i64| count.checked_mul(each).and_then(|months| i32::try_from(months).ok());
        let nanoseconds = |each: i64| count.checked_mul(each);
        match &after[..unit] {
            "y" => duration.months = duration.months.checked_add(months(12)?)?,
            "mo" => duration.months = duration.months.checked_add(months(1)?)?,
            "w" => duration.days = duration.days.checked_add(months(7)?)?,
            "d" => duration.days = duration.days.checked_add(months(1)?)?,
            name => {
                let each = match name {
                    "h" => 3_600_000_000_000,
                    "m" => 60_000_000_000,
                    "s" => 1_000_000_000,
                    "ms" => 1_000_000,
                    "us" | "µs" => 1_000,
                    "ns" => 1,
                    _ => return None,
                };
                duration.nanoseconds = duration.nanoseconds.checked_add(nanoseconds(each)?)?;
            }
        }
        rest = &after[unit..];
    }
    Some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowValue;

    /// The value that comes back from the database.
    #[track_caller]
    fn check(native: NativeType, given: StatementValue, expected: Result<&str, &str>) {
        let converted = given.convert(&ColumnType::Native(native));
        let shown = converted.map(|value| RowValue::from(value).text().unwrap_or_default()).map_err(|Misfit(why)| why);
        assert_eq!(shown.as_deref().map_err(String::as_str), expected, "{given:?}");
    }

    fn text(text: &str) -> StatementValue {
        StatementValue::Text(text.to_owned())
    }

    #[test]
    fn texts_are_read_as_the_type_of_their_column() {
        use NativeType::*;
        for (native, given, expected) in [
            (Int, " 42 ", "42"),
            (TinyInt, "-128", "-128"),
            (Varint, "-170141183460469231731687303715884105728", "-170141183460469231731687303715884105728"),
            (Varint, "128", "128"),
            (Decimal, "-12.50", "-12.50"),
            (Decimal, "1e3", "1e3"),
            (Double, "1.5", "1.5"),
            (Boolean, "true", "true"),
            (Blob, "0x0aFF", "0x0aff"),
            (Uuid, "123E4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            (Timeuuid, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            (Inet, "::1", "::1"),
            (Timestamp, "2026-01-31T13:30:00Z", "2026-01-31T13:30:00.000Z"),
            (Timestamp, "2026-01-31T13:30:00", "2026-01-31T13:30:00.000Z"),
            (Timestamp, "1000", "1970-01-01T00:00:01.000Z"),
            (Date, "1969-12-31", "1969-12-31"),
            (Time, "13:30:54.2", "13:30:54.2"),
            (Duration, "1y2mo3d4h", "14mo3d14400000000000ns"),
            (Duration, "-90m", "0mo0d-5400000000000ns"),
            (Ascii, "a", "a"),
        ] {
            check(native, text(given), Ok(expected));
        }
    }

    #[test]
    fn a_value_that_does_not_fit_says_what_does() {
        use NativeType::*;
        check(Int, text("2147483648"), Err("\"2147483648\" is not a whole number of 32 bits"));
        check(Int, StatementValue::Number("1.5".to_owned()), Err("1.5 is not a whole number of 32 bits"));
        check(Text, StatementValue::Number("5".to_owned()), Err("5 is not a text"));
        check(Int, StatementValue::Boolean(true), Err("true is not a whole number of 32 bits"));
        check(Blob, text("abc"), Err("\"abc\" is not bytes, written as 0x0aff"));
        check(Ascii, text("é"), Err("\"é\" is not a text of ASCII characters"));
        check(Uuid, text("x"), Err("\"x\" is not a UUID"));
        let uuid = "123e4567-e89b-42d3-a456-426614174000";
        check(Timeuuid, text(uuid), Err("\"123e4567-e89b-42d3-a456-426614174000\" is not a UUID of version 1"));
        check(
            Time,
            text("86400000000000"),
            Err("\"86400000000000\" is not a time of day such as 13:30:54.2, or nanoseconds since midnight"),
        );
        check(Duration, text("5"), Err("\"5\" is not a duration such as 1mo2d3h, 90m or 500ms"));
        check(Decimal, text("1.-5"), Err("\"1.-5\" is not a number"));
    }
}
