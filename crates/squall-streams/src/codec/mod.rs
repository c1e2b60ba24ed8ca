//! Records to stream fields and back. Refuses to guess types; compression is recognised by its first bytes, so a stream may
//! change it while older events are still in there.

mod compression;
mod flat_layout;

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use compression::decompress_bytes;

pub use compression::Compression;

use crate::entry::EntryBody;

/// The field that holds a whole record.
pub(crate) const DATA_FIELD: &[u8] = b"data";

/// Name and value of every field of an event.
pub(crate) type EntryFields = Vec<(Vec<u8>, Vec<u8>)>;

/// How a record is laid out in the fields of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum RecordLayout {
    /// Compact JSON in one field `data`.
    #[default]
    Json,
    /// One field per attribute, written as Python's `str` writes it (`True`, `1.5`, `text`). No nesting.
    Flat,
}

/// A record that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Serde refused.
    #[error("the record cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// The flat layout has a place for scalars only.
    #[error("field `{0}` is not a number, text or truth value, which is all a flat record can hold")]
    NotFlat(String),
    /// The flat layout needs fields.
    #[error("a flat record must be a struct or a map")]
    NoFields,
    /// The compressor failed.
    #[error("the record cannot be compressed")]
    Compress(#[source] std::io::Error),
}

/// An event that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not what a sender of this stream writes.
    #[error("the event has no field `data`")]
    NoData,
    /// Damaged, or larger than an event may be.
    #[error("the event cannot be decompressed")]
    Decompress(#[source] std::io::Error),
    /// Not JSON, or not of the record's shape.
    #[error("the event is not a record of this stream")]
    Json(#[source] serde_json::Error),
    /// A field is missing or of another type.
    #[error("the event's fields are not a record of this stream")]
    Fields(#[source] serde::de::value::Error),
    /// The entry was deleted from the stream before it was processed.
    #[error("the event was deleted before it was processed")]
    Deleted,
}

/// Layout and compression of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codec {
    pub(crate) layout: RecordLayout,
    pub(crate) compression: Compression,
}

impl Codec {
    /// Compresses the text of a record.
    pub(crate) fn compress(self, data: Vec<u8>) -> Result<Vec<u8>, EncodeError> {
        self.compression.compress(data).map_err(EncodeError::Compress)
    }

    pub(crate) fn encode(self, record: &Value) -> Result<EntryFields, EncodeError> {
        match self.layout {
            RecordLayout::Flat => flat_layout::encode(record),
            RecordLayout::Json => Ok(vec![(DATA_FIELD.to_vec(), self.compress(serde_json::to_vec(record)?)?)]),
        }
    }

    pub(crate) fn decode<R: DeserializeOwned>(self, body: &EntryBody) -> Result<R, DecodeError> {
        match (self.layout, body) {
            (_, EntryBody::Deleted) => Err(DecodeError::Deleted),
            (RecordLayout::Json, body) => {
                let data =
                    decompress_bytes(body.data().ok_or(DecodeError::NoData)?).map_err(DecodeError::Decompress)?;
                serde_json::from_slice(&data).map_err(DecodeError::Json)
            }
            (RecordLayout::Flat, EntryBody::Data(data)) => {
                flat_layout::decode(&[(DATA_FIELD.to_vec(), data.clone())]).map_err(DecodeError::Fields)
            }
            (RecordLayout::Flat, EntryBody::Fields(fields)) => flat_layout::decode(fields).map_err(DecodeError::Fields),
        }
    }
}

/// What an event holds, for people: its record as JSON, or its fields as texts.
pub(crate) fn to_display_json(body: &EntryBody) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(data) = body.data() else {
        return match body {
            EntryBody::Fields(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (text(name), text(value).into())).collect())
            }
            EntryBody::Data(_) | EntryBody::Deleted => Value::Null,
        };
    };
    match decompress_bytes(data) {
        Ok(plain) => serde_json::from_slice(&plain).unwrap_or_else(|_| text(&plain).into()),
        Err(_) => text(data).into(),
    }
}

/// The text of a record, whichever way it was compressed.
pub fn decompress(data: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    decompress_bytes(data).map_err(DecodeError::Decompress)
}

/// The record as JSON, from which key and fields are taken.
pub(crate) fn to_json<R: Serialize>(record: &R) -> Result<Value, EncodeError> {
    Ok(serde_json::to_value(record)?)
}

#[cfg(test)]
mod tests;
