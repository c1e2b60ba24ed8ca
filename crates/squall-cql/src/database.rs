//! The database of a run: connects to it, describes its tables, and creates and empties those of the
//! commands. It makes no load. The command line opens one for the schema; the driver opens one for
//! each engine thread.

mod attempt_times;
mod connect;
mod consistency;
mod lost_database;
mod operation_error;
mod schema;
mod table_columns;
mod target;
mod tried_node;

pub use attempt_times::AttemptTimes;
pub use connect::{Database, DatabaseConnectError, DatabaseHost};
pub use lost_database::LostDatabase;
pub(crate) use operation_error::{NextTry, OperationError, innermost_message};
pub use schema::{SchemaChange, SchemaError};
pub(crate) use table_columns::TableDescription;
pub use table_columns::TableError;
pub use target::DatabaseTarget;
pub(crate) use tried_node::{NodeKey, TriedRequest};
