//! The CQL types that columns can have, read from the names that the database gives them. It
//! generates nothing.

use std::{fmt, str::FromStr};

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CqlType {
    Ascii,
    BigInt,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Float,
    Inet,
    Int,
    SmallInt,
    Text,
    Time,
    Timestamp,
    TimeUuid,
    TinyInt,
    Uuid,
    VarInt,
    List {
        element: Box<CqlType>,
        frozen: bool,
    },
    Set {
        element: Box<CqlType>,
        frozen: bool,
    },
    /// A type without a generator: map, tuple, vector, duration, user-defined types.
    Other(String),
}

/// A type name that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a CQL type")]
pub struct CqlTypeError {
    text: String,
}

const SIMPLE: &[(&str, CqlType)] = &[
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::BigInt),
    ("blob", CqlType::Blob),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("date", CqlType::Date),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("float", CqlType::Float),
    ("inet", CqlType::Inet),
    ("int", CqlType::Int),
    ("smallint", CqlType::SmallInt),
    ("text", CqlType::Text),
    ("varchar", CqlType::Text),
    ("time", CqlType::Time),
    ("timestamp", CqlType::Timestamp),
    ("timeuuid", CqlType::TimeUuid),
    ("tinyint", CqlType::TinyInt),
    ("uuid", CqlType::Uuid),
    ("varint", CqlType::VarInt),
];

/// Types inside types; the database allows fewer.
const MAX_DEPTH: usize = 16;

impl FromStr for CqlType {
    type Err = CqlTypeError;

    fn from_str(text: &str) -> Result<CqlType, CqlTypeError> {
        parse(text, false, MAX_DEPTH).ok_or_else(|| CqlTypeError { text: text.to_owned() })
    }
}

fn parse(text: &str, frozen: bool, depth: usize) -> Option<CqlType> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('<') else {
        let simple = SIMPLE.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let named = !text.is_empty() && !text.contains(['>', ',']);
        return simple.map(|(_, cql_type)| cql_type.clone()).or_else(|| named.then(|| CqlType::Other(text.to_owned())));
    };
    let inner = rest.strip_suffix('>')?;
    let deeper = depth.checked_sub(1)?;
    Some(match name.trim().to_lowercase().as_str() {
        "frozen" => parse(inner, true, deeper)?,
        "list" => CqlType::List { element: Box::new(parse(inner, true, deeper)?), frozen },
        "set" => CqlType::Set { element: Box::new(parse(inner, true, deeper)?), frozen },
        _ => CqlType::Other(text.to_owned()),
    })
}

impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, element, frozen) = match self {
            CqlType::List { element, frozen } => ("list", element, *frozen),
            CqlType::Set { element, frozen } => ("set", element, *frozen),
            CqlType::Other(name) => return f.write_str(name),
            simple => {
                let name = SIMPLE.iter().find(|(_, cql_type)| cql_type == simple).map_or("", |(name, _)| name);
                return f.write_str(name);
            }
        };
        if frozen { write!(f, "frozen<{name}<{element}>>") } else { write!(f, "{name}<{element}>") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_are_read() {
        let int = || Box::new(CqlType::Int);
        let cases = [
            ("varchar", CqlType::Text),
            ("BIGINT", CqlType::BigInt),
            ("list<int>", CqlType::List { element: int(), frozen: false }),
            ("frozen<set<int>>", CqlType::Set { element: int(), frozen: true }),
            ("map<int, text>", CqlType::Other("map<int, text>".to_owned())),
            ("address", CqlType::Other("address".to_owned())),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "list<int", "list<>", "int>"] {
            assert!(text.parse::<CqlType>().is_err(), "{text:?}");
        }
        assert!(format!("{}int{}", "frozen<".repeat(50), ">".repeat(50)).parse::<CqlType>().is_err());
    }

    #[test]
    fn types_are_printed_as_the_database_does() {
        for text in ["text", "list<int>", "frozen<set<text>>", "list<frozen<set<int>>>"] {
            assert_eq!(text.parse::<CqlType>().unwrap().to_string(), text);
        }
    }
}
