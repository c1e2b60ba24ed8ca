//! The CQL of `standard1` and `counter1`. Table names are qualified with their keyspace, because
//! Cassandra 5 warns about prepared statements after `USE`. It runs nothing.

use crate::cql_text::{quoted_name, quoted_table, quoted_text};
use std::fmt::Write;

/// What `-schema` says about the keyspace and its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceSchema {
    pub keyspace: String,
    pub replication_strategy: String,
    pub replication_options: Vec<(String, String)>,
    pub compaction_strategy: Option<String>,
    pub compaction_options: Vec<(String, String)>,
    pub compression: Option<String>,
    /// Storage options of a ScyllaDB keyspace.
    pub storage_options: Vec<(String, String)>,
}

impl KeyspaceSchema {
    /// The statement that creates the keyspace.
    pub fn create_keyspace(&self) -> String {
        let mut replication = format!("'class': {}", quoted_text(&self.replication_strategy));
        append_options(&mut replication, &self.replication_options);
        let mut cql = format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{{replication}}} AND durable_writes = true",
            quoted_name(&self.keyspace)
        );
        if !self.storage_options.is_empty() {
            let mut storage = String::new();
            append_options(&mut storage, &self.storage_options);
            let _ = write!(cql, " AND storage = {{{}}}", storage.trim_start_matches(", "));
        }
        cql
    }

    /// The statement that creates `standard1`. Without `compression=` the table is uncompressed.
    pub fn create_standard1(&self, columns: &[String]) -> String {
        self.create_table("standard1", "blob", columns)
    }

    /// The statement that creates `counter1`.
    pub fn create_counter1(&self, columns: &[String]) -> String {
        self.create_table("counter1", "counter", columns)
    }

    fn create_table(&self, table: &str, cell_type: &str, columns: &[String]) -> String {
        let table = quoted_table(&self.keyspace, table);
        let mut cql = format!("CREATE TABLE IF NOT EXISTS {table} (key blob PRIMARY KEY");
        for column in columns {
            let _ = write!(cql, ", {} {cell_type}", quoted_name(column));
        }
        // An empty map switches compression off in every version. Cassandra 5 requires `class`, and others know it.
        let compression =
            self.compression.as_ref().map(|class| format!("'class': {}", quoted_text(class))).unwrap_or_default();
        let _ = write!(cql, ") WITH compression = {{{compression}}}");
        if let Some(strategy) = &self.compaction_strategy {
            let mut compaction = format!("'class': {}", quoted_text(strategy));
            append_options(&mut compaction, &self.compaction_options);
            let _ = write!(cql, " AND compaction = {{{compaction}}}");
        }
        cql
    }
}

/// The statements of the four basic commands.
#[derive(Debug, Clone, Copy)]
pub struct StandardStatements<'s> {
    pub keyspace: &'s str,
    pub columns: &'s [String],
}

impl StandardStatements<'_> {
    /// The statement of `write`: all cells in the order of the columns, then the key.
    pub fn write(&self, timestamp: Option<i64>) -> String {
        let using = timestamp.map(|micros| format!(" USING TIMESTAMP {micros}")).unwrap_or_default();
        let cells = self.each_column(|column| format!("{column} = ?"));
        format!("UPDATE {}{using} SET {cells} WHERE key = ?", self.table("standard1"))
    }

    /// The statement of `read`: the cells in the order of the columns.
    pub fn read(&self) -> String {
        let cells = self.each_column(|column| column);
        format!("SELECT {cells} FROM {} WHERE key = ?", self.table("standard1"))
    }

    /// The statement of `read` with `-col slice`: every column that the table has.
    pub fn read_slice(&self) -> String {
        format!("SELECT * FROM {} WHERE key = ?", self.table("standard1"))
    }

    /// The statement of `counter_write`: one increment per column, then the key.
    pub fn counter_write(&self) -> String {
        let cells = self.each_column(|column| format!("{column} = {column} + ?"));
        format!("UPDATE {} SET {cells} WHERE key = ?", self.table("counter1"))
    }

    /// The statement of `counter_read`.
    pub fn counter_read(&self) -> String {
        format!("SELECT * FROM {} WHERE key = ?", self.table("counter1"))
    }

    fn table(&self, name: &str) -> String {
        quoted_table(self.keyspace, name)
    }

    fn each_column(&self, text: impl Fn(String) -> String) -> String {
        let columns: Vec<String> = self.columns.iter().map(|column| text(quoted_name(column))).collect();
        columns.join(", ")
    }
}

fn append_options(list: &mut String, options: &[(String, String)]) {
    for (name, value) in options {
        let _ = write!(list, ", {}: {}", quoted_text(name), quoted_text(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> KeyspaceSchema {
        KeyspaceSchema {
            keyspace: "keyspace1".to_owned(),
            replication_strategy: "SimpleStrategy".to_owned(),
            replication_options: vec![("replication_factor".to_owned(), "1".to_owned())],
            compaction_strategy: None,
            compaction_options: Vec::new(),
            compression: None,
            storage_options: Vec::new(),
        }
    }

    #[test]
    fn the_schema_has_quoted_names_and_no_compression() {
        let columns = ["C0".to_owned(), "C1".to_owned()];
        assert_eq!(
            schema().create_keyspace(),
            "CREATE KEYSPACE IF NOT EXISTS \"keyspace1\" WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': '1'} AND durable_writes = true"
        );
        assert_eq!(
            schema().create_standard1(&columns),
            "CREATE TABLE IF NOT EXISTS \"keyspace1\".\"standard1\" (key blob PRIMARY KEY, \"C0\" blob, \"C1\" blob) \
             WITH compression = {}"
        );
        let compacted = KeyspaceSchema {
            compaction_strategy: Some("LeveledCompactionStrategy".to_owned()),
            compaction_options: vec![("sstable_size_in_mb".to_owned(), "10".to_owned())],
            compression: Some("LZ4Compressor".to_owned()),
            ..schema()
        };
        assert_eq!(
            compacted.create_counter1(&columns[..1]),
            "CREATE TABLE IF NOT EXISTS \"keyspace1\".\"counter1\" (key blob PRIMARY KEY, \"C0\" counter) \
             WITH compression = {'class': 'LZ4Compressor'} \
             AND compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '10'}"
        );
    }

    #[test]
    fn statements_name_every_column_in_order() {
        let columns = ["C0".to_owned(), "C1".to_owned()];
        let statements = StandardStatements { keyspace: "ks", columns: &columns };
        assert_eq!(statements.write(None), "UPDATE \"ks\".\"standard1\" SET \"C0\" = ?, \"C1\" = ? WHERE key = ?");
        assert_eq!(
            statements.write(Some(5)),
            "UPDATE \"ks\".\"standard1\" USING TIMESTAMP 5 SET \"C0\" = ?, \"C1\" = ? WHERE key = ?"
        );
        assert_eq!(statements.read(), "SELECT \"C0\", \"C1\" FROM \"ks\".\"standard1\" WHERE key = ?");
        assert_eq!(statements.read_slice(), "SELECT * FROM \"ks\".\"standard1\" WHERE key = ?");
        assert_eq!(
            statements.counter_write(),
            "UPDATE \"ks\".\"counter1\" SET \"C0\" = \"C0\" + ?, \"C1\" = \"C1\" + ? WHERE key = ?"
        );
        assert_eq!(statements.counter_read(), "SELECT * FROM \"ks\".\"counter1\" WHERE key = ?");
    }

    #[test]
    fn quotes_in_names_are_doubled() {
        let columns = ["a\"b".to_owned()];
        let statements = StandardStatements { keyspace: "k", columns: &columns };
        assert_eq!(statements.read(), "SELECT \"a\"\"b\" FROM \"k\".\"standard1\" WHERE key = ?");
        let odd = KeyspaceSchema { replication_strategy: "it's".to_owned(), ..schema() };
        assert!(odd.create_keyspace().contains("'it''s'"));
    }
}
