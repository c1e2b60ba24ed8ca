//! The tables `standard1` and `counter1`: keys, cells and statements of the commands without a
//! profile. It sends nothing.

mod rows;
mod statements;

pub use rows::{StandardColumns, StandardRow, populated_columns};
pub use statements::{KeyspaceSchema, StandardStatements};
