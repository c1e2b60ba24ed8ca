//! Converts TOML values to JSON. Strings keep their location, because they may be templates.

use toml::de::DeValue;

use super::{
    raw::RawJson,
    table::{TomlNode, entries_in_file_order, node_location, scalar_text},
};
use crate::{Sourced, error::ProblemList};

/// `node` as JSON. Dates become strings. A number that JSON does not have (`inf`, `nan`, too large) is
/// reported and becomes 0.
pub(super) fn toml_to_json(node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>) -> RawJson {
    let here = node_location(node);
    match node.get_ref() {
        DeValue::Array(items) => RawJson::Array(items.iter().map(|item| toml_to_json(item, problems)).collect()),
        DeValue::Table(table) => {
            let entries = entries_in_file_order(table)
                .map(|(key, value)| (key.get_ref().to_string(), toml_to_json(value, problems)));
            RawJson::Object(entries.collect())
        }
        value @ (DeValue::String(_) | DeValue::Datetime(_)) => {
            RawJson::Text(Sourced { value: scalar_text(value).unwrap_or_default(), location: here })
        }
        value @ (DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
            let text = scalar_text(value).filter(|text| serde_json::from_str::<serde_json::Value>(text).is_ok());
            if text.is_none() {
                problems.add(&here, "JSON has no such number");
            }
            RawJson::Literal(Sourced { value: text.unwrap_or_else(|| "0".to_owned()), location: here })
        }
    }
}
