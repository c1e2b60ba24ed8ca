//! Quotes names and texts for CQL statements. Every statement that this crate writes uses it.

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
