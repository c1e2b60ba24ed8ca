//! Single statements of scenarios: a session for one engine thread, prepared statements, values bound by
//! the types that the database names, and the rows of an answer. It records nothing and retries nothing.
//! squall-scenario calls it for tasks in TOML and for Python code.

mod bind;
mod bind_value;
mod connection;
mod failure;
mod generated_value;
mod row_value;
mod rows;
mod session;

pub use bind::{BindError, BoundValues};
pub use bind_value::StatementValue;
pub use connection::{Login, StatementConnection};
pub use failure::{StatementFailure, StatementSessionError};
pub use generated_value::{GeneratedValue, GeneratedValueError};
pub use row_value::{RowValue, ScalarKind};
pub use rows::{KeptRows, StatementRows};
pub use session::{ScenarioStatement, StatementOptions, StatementSession};
