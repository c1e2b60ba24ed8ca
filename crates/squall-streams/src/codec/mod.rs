//! Encodes records to stream fields, and decodes them. Recognises a compression by its first bytes,
//! so that a stream can change its compression while it holds older events. Does not guess types.

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

/// The layout of a record in the fields of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum RecordLayout {
    /// Compact JSON in one field `data`.
    #[default]
    Json,
    /// One field per attribute, as Python's `str` writes it (`True`, `1.5`, `text`). No nested
    /// values.
    Flat,
}

/// A record that cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The record cannot be serialized.
    #[error("the record cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// The record has a nested or null field, and the layout is flat.
    #[error("field `{0}` is not a number, string or boolean; a flat record holds nothing else")]
    NotFlat(String),
    /// The record has no fields, and the layout is flat.
    #[error("a flat record must be a struct or a map with at least one field")]
    NoFields,
    /// The record cannot be compressed.
    #[error("the record cannot be compressed")]
    Compress(#[source] std::io::Error),
}

/// An event that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The field `data` is missing.
    #[error("the event has no field `data`")]
    NoData,
    /// The data is damaged, or larger than an event may be.
    #[error("the event cannot be decompressed")]
    Decompress(#[source] std::io::Error),
    /// The data is not JSON, or not a record of the expected type.
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

/// The content of an event for display: its record as JSON, or its fields as strings.
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

/// Decompresses the text of a record with any supported compression.
pub fn decompress(data: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    decompress_bytes(data).map_err(DecodeError::Decompress)
}

/// The record as JSON, from which the sender takes the key and the fields.
pub(crate) fn to_json<R: Serialize>(record: &R) -> Result<Value, EncodeError> {
    Ok(serde_json::to_value(record)?)
}

#[cfg(test)]
mod tests;
