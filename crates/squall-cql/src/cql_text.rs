//! Quotes names, texts and values for CQL statements. Every statement that this crate writes uses it.

use std::fmt::Write;

/// A name in double quotes, which keeps its case.
pub(crate) fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table with its keyspace.
pub(crate) fn quoted_table(keyspace: &str, table: &str) -> String {
    format!("{}.{}", quoted_name(keyspace), quoted_name(table))
}

/// A text in single quotes.
pub(crate) fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Bytes as a constant: `0x0a1b`.
pub(crate) fn blob_literal(bytes: &[u8]) -> String {
    let mut literal = String::with_capacity(2 + 2 * bytes.len());
    literal.push_str("0x");
    for byte in bytes {
        let _ = write!(literal, "{byte:02x}");
    }
    literal
}

/// The statement with values instead of its markers. A question mark in a quoted name is no marker.
pub(crate) fn with_values(statement: &str, mut values: impl Iterator<Item = String>) -> String {
    let (mut text, mut quoted) = (String::with_capacity(2 * statement.len()), false);
    for character in statement.chars() {
        quoted ^= character == '"';
        let value = if character == '?' && !quoted { values.next() } else { None };
        match value {
            Some(value) => text.push_str(&value),
            None => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_replaced_outside_of_names() {
        let values = ["0x0a".to_owned(), "null".to_owned()];
        assert_eq!(with_values("SET \"a?\" = ?, b = ? ?", values.into_iter()), "SET \"a?\" = 0x0a, b = null ?");
        assert_eq!(blob_literal(&[0, 255]), "0x00ff");
    }
}
