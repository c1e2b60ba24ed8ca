//! An entry of a Redis stream: its id and its fields, and the parsing of Redis responses. Does not
//! interpret the fields; [`crate::codec`] does.

use std::fmt;

use redis::Value;

/// The id of an entry, written `milliseconds-sequence`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// Milliseconds since 1970, by the clock of the server.
    pub ms: u64,
    /// The number of the entry within its millisecond.
    pub seq: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl EntryId {
    /// Parses `ms-seq`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (ms, seq) = text.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, seq: seq.parse().ok()? })
    }
}

/// The fields of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryBody {
    /// One field, called `data`.
    Data(Vec<u8>),
    /// Any other fields.
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    /// The entry is pending, but was deleted from the stream.
    Deleted,
}

impl EntryBody {
    /// The value of the field `data`.
    pub fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Data(data) => Some(data),
            Self::Fields(fields) => {
                fields.iter().find(|(name, _)| name == crate::codec::DATA_FIELD).map(|(_, value)| value.as_slice())
            }
            Self::Deleted => None,
        }
    }
}

/// One event as stored in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id.
    pub id: EntryId,
    /// The fields.
    pub body: EntryBody,
}

/// Parses the response of XREADGROUP, which has entries of at most one stream. `None` if the
/// response is malformed.
pub(crate) fn parse_read_response(response: Value) -> Option<Vec<Entry>> {
    let list = match response {
        Value::Nil => return Some(Vec::new()),
        Value::Array(mut streams) => match streams.pop()? {
            Value::Array(mut stream) => stream.pop()?,
            _ => return None,
        },
        Value::Map(mut streams) => streams.pop()?.1,
        _ => return None,
    };
    let Value::Array(list) = list else { return None };
    list.into_iter().map(parse_entry).collect()
}

fn parse_entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(id), fields] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let id = EntryId::parse(&id)?;
    let body = match parse_body(fields)? {
        EntryBody::Fields(mut fields) if fields.len() == 1 && fields[0].0 == crate::codec::DATA_FIELD => {
            EntryBody::Data(fields.pop().map(|(_, value)| value).unwrap_or_default())
        }
        body => body,
    };
    Some(Entry { id, body })
}

/// Parses `id, body, id, body, …`, the response of the fetch script.
pub(crate) fn parse_script_entries(values: impl Iterator<Item = Value>) -> Option<Vec<Entry>> {
    let mut values = values;
    let mut entries = Vec::new();
    while let Some(id) = values.next() {
        let Value::BulkString(id) = id else { return None };
        entries.push(Entry { id: EntryId::parse(&id)?, body: parse_body(values.next()?)? });
    }
    Some(entries)
}

pub(crate) fn parse_body(value: Value) -> Option<EntryBody> {
    match value {
        Value::BulkString(data) => Some(EntryBody::Data(data)),
        Value::Nil | Value::Boolean(false) => Some(EntryBody::Deleted),
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            let mut fields = Vec::with_capacity(parts.len() / 2);
            while let (Some(Value::BulkString(name)), Some(Value::BulkString(value))) = (parts.next(), parts.next()) {
                fields.push((name, value));
            }
            Some(EntryBody::Fields(fields))
        }
        _ => None,
    }
}
