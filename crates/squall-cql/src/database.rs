//! The database of a run: connects to it, and creates and empties the tables of the commands. It
//! makes no load. The command line opens one for the schema; the driver opens one for each engine
//! thread.

mod connect;
mod consistency;
mod operation_error;
mod schema;

pub use connect::{Database, DatabaseConnectError, DatabaseHost, DatabaseTarget};
pub(crate) use operation_error::{NextTry, OperationError, innermost_message};
pub use schema::SchemaError;
