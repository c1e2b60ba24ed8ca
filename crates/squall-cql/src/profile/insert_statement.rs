//! The statement that writes one row of a profile's table. It runs nothing.

use super::{CqlType, TableColumn, TableColumns};
use crate::cql_text::{quoted_name, quoted_table};

/// The statement; its arguments are the values, then the partition key, then the clustering columns.
/// A table of keys only has an `INSERT`, with the keys as arguments.
pub fn insert_statement(keyspace: &str, table: &str, columns: &TableColumns) -> String {
    let table = quoted_table(keyspace, table);
    let keys = columns.partition_key.iter().chain(&columns.clustering).map(|column| quoted_name(&column.name));
    if columns.values.is_empty() {
        let keys: Vec<String> = keys.collect();
        let marks = vec!["?"; keys.len()];
        return format!("INSERT INTO {table} ({}) VALUES ({})", keys.join(", "), marks.join(", "));
    }
    let values: Vec<String> = columns.values.iter().map(assignment).collect();
    let keys: Vec<String> = keys.map(|key| format!("{key} = ?")).collect();
    format!("UPDATE {table} SET {} WHERE {}", values.join(", "), keys.join(" AND "))
}

/// Counters and collections that are not frozen are added to.
fn assignment(column: &TableColumn) -> String {
    let name = quoted_name(&column.name);
    match column.cql_type {
        CqlType::Counter | CqlType::List { frozen: false, .. } | CqlType::Set { frozen: false, .. } => {
            format!("{name} = {name} + ?")
        }
        _ => format!("{name} = ?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, cql_type: &str) -> TableColumn {
        TableColumn { name: name.to_owned(), cql_type: cql_type.parse().unwrap() }
    }

    #[test]
    fn counters_and_collections_are_added_to() {
        let mut columns = TableColumns {
            partition_key: vec![column("p", "text")],
            clustering: vec![column("C", "int")],
            values: vec![column("a", "int"), column("l", "list<int>"), column("f", "frozen<list<int>>")],
        };
        assert_eq!(
            insert_statement("ks", "t", &columns),
            "UPDATE \"ks\".\"t\" SET \"a\" = ?, \"l\" = \"l\" + ?, \"f\" = ? WHERE \"p\" = ? AND \"C\" = ?"
        );
        columns.values.clear();
        assert_eq!(insert_statement("ks", "t", &columns), "INSERT INTO \"ks\".\"t\" (\"p\", \"C\") VALUES (?, ?)");
    }
}
