//! User profiles: the YAML file of the `user` command, and the rows that it describes, byte for
//! byte those of cassandra-stress. It reads no file and asks no database; the caller passes the
//! text of the profile and the columns of the table.

mod column_generator;
mod cql_type;
mod cql_value;
mod insert_statement;
mod partition;
mod profile_file;
mod qualified_statement;

#[cfg(feature = "database")]
pub(crate) use column_generator::ColumnGenerator;
pub use column_generator::{ColumnSpec, UnsupportedColumn};
pub use cql_type::{CqlType, CqlTypeError};
pub use cql_value::CqlValue;
pub use insert_statement::insert_statement;
pub use partition::{GeneratedRow, Partition, PartitionGenerator, TableColumn, TableColumns};
pub use profile_file::{ArgumentSource, ProfileInsert, ProfileQuery, TokenRangeQuery, UserProfile, UserProfileError};
#[cfg(feature = "database")]
pub(crate) use qualified_statement::qualified_statement;
