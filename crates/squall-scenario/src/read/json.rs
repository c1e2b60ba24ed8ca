//! TOML values as JSON, strings kept with their places because they may hold templates.

use toml::de::DeValue;

use super::{
    raw::RawJson,
    table::{Node, in_order, place, text_of},
};
use crate::{Given, error::Problems};

/// `node` as JSON. Dates become strings; what JSON cannot say (`inf`, `nan`, too large a number) is reported and becomes 0.
pub(super) fn json(node: Node<'_, '_>, problems: &mut Problems<'_>) -> RawJson {
    let here = place(node);
    match node.get_ref() {
        DeValue::Array(items) => RawJson::Array(items.iter().map(|item| json(item, problems)).collect()),
        DeValue::Table(table) => {
            let entries = in_order(table).map(|(key, value)| (key.get_ref().to_string(), json(value, problems)));
            RawJson::Object(entries.collect())
        }
        value @ (DeValue::String(_) | DeValue::Datetime(_)) => {
            RawJson::Text(Given { value: text_of(value).unwrap_or_default(), place: here })
        }
        value @ (DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
            let text = text_of(value).filter(|text| serde_json::from_str::<serde_json::Value>(text).is_ok());
            if text.is_none() {
                problems.add(&here, "JSON has no such number");
            }
            RawJson::Literal(Given { value: text.unwrap_or_else(|| "0".to_owned()), place: here })
        }
    }
}
