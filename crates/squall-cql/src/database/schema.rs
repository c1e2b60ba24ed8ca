//! Creates the keyspace and the tables of the commands that write, and empties the tables of a
//! command. The database driver waits until all nodes agree on the schema, so nothing sleeps here.

use super::{Database, innermost_message};
use crate::{BasicOperation, CompressionStyle, KeyspaceSchema, cql_text::quoted_table};

/// Why the schema cannot be changed.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {reason}")]
pub struct SchemaError {
    pub action: String,
    pub reason: String,
}

impl BasicOperation {
    /// The table that the operation works on.
    pub fn table(self) -> &'static str {
        match self {
            BasicOperation::Read | BasicOperation::Write => "standard1",
            BasicOperation::CounterRead | BasicOperation::CounterWrite => "counter1",
        }
    }
}

impl Database {
    /// Creates the keyspace and the table of an operation, unless they exist.
    pub async fn create_schema(
        &self,
        schema: &KeyspaceSchema,
        columns: &[String],
        operation: BasicOperation,
    ) -> Result<(), SchemaError> {
        let style = CompressionStyle::Class;
        self.change_schema(format!("cannot create the keyspace {}", schema.keyspace), schema.create_keyspace()).await?;
        let (table, cql) = match operation.table() {
            "counter1" => ("counter1", schema.create_counter1(columns, style)),
            _ => ("standard1", schema.create_standard1(columns, style)),
        };
        self.change_schema(format!("cannot create the table {}.{table}", schema.keyspace), cql).await
    }

    /// Removes all rows of the table of an operation.
    pub async fn truncate(&self, keyspace: &str, operation: BasicOperation) -> Result<(), SchemaError> {
        let table = operation.table();
        let cql = format!("TRUNCATE {}", quoted_table(keyspace, table));
        self.change_schema(format!("cannot truncate {keyspace}.{table}"), cql).await
    }

    async fn change_schema(&self, action: String, cql: String) -> Result<(), SchemaError> {
        let done = self.session.query_unpaged(cql, &[]).await;
        done.map(drop).map_err(|error| SchemaError { action, reason: innermost_message(&error) })
    }
}
