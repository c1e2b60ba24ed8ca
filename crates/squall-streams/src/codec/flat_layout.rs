//! The flat layout: one field per attribute, in the text form of runnel's "primitive" records.
//! Rejects nested values. Decodes each attribute as the type that the record requests, because the
//! text of `1` and `"1"` is the same.

use serde::{
    de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Value;

use super::{EncodeError, EntryFields};
use crate::python_repr::python_repr;

/// The error of decoding flat fields.
pub(super) type FlatError = serde::de::value::Error;

pub(super) fn encode(record: &Value) -> Result<EntryFields, EncodeError> {
    let fields = record.as_object().filter(|fields| !fields.is_empty()).ok_or(EncodeError::NoFields)?;
    fields.iter().map(|(name, value)| Ok((name.clone().into_bytes(), scalar_text(name, value)?.into_bytes()))).collect()
}

fn scalar_text(name: &str, value: &Value) -> Result<String, EncodeError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(python_repr(value)),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(EncodeError::NotFlat(name.to_owned())),
    }
}

pub(super) fn decode<R: DeserializeOwned>(fields: &[(Vec<u8>, Vec<u8>)]) -> Result<R, FlatError> {
    let texts = fields.iter().map(|(name, value)| {
        let name = std::str::from_utf8(name).unwrap_or("\u{fffd}");
        (name, FieldDeserializer(value))
    });
    R::deserialize(MapDeserializer::new(texts))
}

/// The text of one field, decoded as the requested type.
#[derive(Clone, Copy)]
struct FieldDeserializer<'a>(&'a [u8]);

impl<'a> FieldDeserializer<'a> {
    fn str(self) -> Result<&'a str, FlatError> {
        std::str::from_utf8(self.0).map_err(serde::de::Error::custom)
    }

    fn parse<T: std::str::FromStr>(self, wanted: &str) -> Result<T, FlatError> {
        let text = self.str()?;
        text.parse().map_err(|_| serde::de::Error::custom(format_args!("`{text}` is not {wanted}")))
    }
}

impl<'de> IntoDeserializer<'de, FlatError> for FieldDeserializer<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $kind:literal)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
            visitor.$visit(self.parse($kind)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for FieldDeserializer<'de> {
    type Error = FlatError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
        match std::str::from_utf8(self.0) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => visitor.visit_borrowed_bytes(self.0),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
        match self.str()? {
            "True" | "true" | "1" => visitor.visit_bool(true),
            "False" | "false" | "0" => visitor.visit_bool(false),
            other => Err(serde::de::Error::custom(format_args!("`{other}` is not True or False"))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FlatError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FlatError> {
        visitor.visit_enum(self.str()?.into_deserializer())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FlatError> {
        visitor.visit_borrowed_bytes(self.0)
    }

    numbers! {
        deserialize_i8 visit_i8 "a whole number"
        deserialize_i16 visit_i16 "a whole number"
        deserialize_i32 visit_i32 "a whole number"
        deserialize_i64 visit_i64 "a whole number"
        deserialize_i128 visit_i128 "a whole number"
        deserialize_u8 visit_u8 "a whole number"
        deserialize_u16 visit_u16 "a whole number"
        deserialize_u32 visit_u32 "a whole number"
        deserialize_u64 visit_u64 "a whole number"
        deserialize_u128 visit_u128 "a whole number"
        deserialize_f32 visit_f32 "a number"
        deserialize_f64 visit_f64 "a number"
        deserialize_char visit_char "one character"
    }

    forward_to_deserialize_any! {
        str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
