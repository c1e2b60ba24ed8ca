//! Reads the columns of a profile's table from the database. It generates nothing.

use super::{Database, LostDatabase, innermost_message};
use crate::{TableColumn, TableColumns, UserProfile};

/// A table as the database describes it.
#[derive(Debug, Clone)]
pub(crate) struct TableDescription {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) columns: TableColumns,
    /// The names of the static columns, which are among the values.
    pub(crate) statics: Vec<String>,
    /// Whether rows are in descending order of each clustering column.
    pub(crate) descending: Vec<bool>,
}

/// Why the columns of a table are not known.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot read the columns of {table}: {reason}")]
    Unreadable { table: String, reason: String },
    #[error("cannot read the columns of {table}: {lost}")]
    Lost { table: String, lost: LostDatabase },
    #[error("the database has no table {table}: add keyspace_definition and table_definition to the profile")]
    Missing { table: String },
}

/// Name, clustering order, kind, position and type.
type ColumnRow = (String, String, String, i32, String);

const COLUMNS: &str = "SELECT column_name, clustering_order, kind, position, type FROM system_schema.columns \
                       WHERE keyspace_name = ? AND table_name = ?";

impl Database {
    /// The table of a profile. A name that does not exist as written is taken in lower case, as CQL
    /// takes names without quotes.
    pub(crate) async fn describe_table(&self, profile: &UserProfile) -> Result<TableDescription, TableError> {
        let written = (profile.keyspace.clone(), profile.table.clone());
        let lower = (written.0.to_lowercase(), written.1.to_lowercase());
        for (keyspace, table) in [written, lower] {
            let mut rows = self.column_rows(&keyspace, &table).await?;
            if !rows.is_empty() {
                rows.sort_by(|a, b| (a.3, &a.0).cmp(&(b.3, &b.0)));
                return Ok(describe(keyspace, table, &rows));
            }
        }
        Err(TableError::Missing { table: format!("{}.{}", profile.keyspace, profile.table) })
    }

    async fn column_rows(&self, keyspace: &str, table: &str) -> Result<Vec<ColumnRow>, TableError> {
        let table_name = || format!("{keyspace}.{table}");
        let failed = |error: &(dyn std::error::Error + 'static)| TableError::Unreadable {
            table: table_name(),
            reason: innermost_message(error),
        };
        let result = self.session.query_unpaged(COLUMNS, (keyspace, table)).await;
        let result = result.map_err(|error| match self.lost(&error) {
            Some(lost) => TableError::Lost { table: table_name(), lost },
            None => failed(&error),
        })?;
        let rows = result.into_rows_result().map_err(|error| failed(&error))?;
        let rows = rows.rows::<ColumnRow>().map_err(|error| failed(&error))?;
        rows.collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))
    }
}

fn describe(keyspace: String, table: String, rows: &[ColumnRow]) -> TableDescription {
    let of_kind = |wanted: fn(&str) -> bool| rows.iter().filter(move |row| wanted(&row.2));
    let column = |(name, _, _, _, cql_type): &ColumnRow| TableColumn {
        name: name.clone(),
        cql_type: cql_type.parse().unwrap_or_else(|_| crate::CqlType::Other(cql_type.clone())),
    };
    let is_value = |kind: &str| kind != "partition_key" && kind != "clustering";
    TableDescription {
        keyspace,
        table,
        columns: TableColumns {
            partition_key: of_kind(|kind| kind == "partition_key").map(column).collect(),
            clustering: of_kind(|kind| kind == "clustering").map(column).collect(),
            values: of_kind(is_value).map(column).collect(),
        },
        statics: of_kind(|kind| kind == "static").map(|row| row.0.clone()).collect(),
        descending: of_kind(|kind| kind == "clustering").map(|row| row.1.eq_ignore_ascii_case("desc")).collect(),
    }
}
