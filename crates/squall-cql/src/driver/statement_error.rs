//! Why a statement cannot be prepared, and how an answer of the database can be wrong.

use crate::{
    Database, LostDatabase, TableError, UnsupportedColumn,
    database::{OperationError, innermost_message},
};
use scylla::errors::PrepareError;
use std::time::Duration;

/// Why the statements of a run cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    #[error("cannot prepare {operation}: {reason}")]
    Refused { operation: String, reason: String },
    #[error("cannot prepare {operation}: {reason}; run write or counter_write first: they create the tables")]
    NoTable { operation: String, reason: String },
    #[error(
        "cannot prepare {operation}: {reason}; give the columns of the table in -col, or another -schema keyspace="
    )]
    OtherColumns { operation: String, reason: String },
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Column(#[from] UnsupportedColumn),
    #[error("cannot prepare {operation}: {lost}")]
    Lost { operation: String, lost: LostDatabase },
    #[error("the database did not prepare the statements within {} s", limit.as_secs_f64())]
    Silent { limit: Duration },
    #[error("columnspec: {table} has no column {column}: {hint}")]
    UnknownColumn { column: String, table: String, hint: String },
    #[error("-tokenrange split-factor= makes {ranges} ranges of the ring, and {most} are possible: use a smaller one")]
    TokenRanges { ranges: u64, most: u64 },
    #[error("cannot prepare {operation}: its argument {argument} is no column of {table} that can be generated")]
    Argument { operation: String, argument: String, table: String },
    #[error(
        "cannot prepare {operation}: one operation may write {rows} rows, and a logged batch has at most 65,535: \
         use batchtype=unlogged or fewer partitions"
    )]
    LoggedBatch { operation: String, rows: u64 },
}

impl StatementError {
    /// `refusal` makes the error from the reason of a database that has answered.
    pub(super) fn new(
        database: &Database,
        operation: &str,
        error: PrepareError,
        refusal: impl FnOnce(String, String) -> StatementError,
    ) -> StatementError {
        let (operation, error) = (operation.to_owned(), error.into());
        match database.lost(&error) {
            Some(lost) => StatementError::Lost { operation, lost },
            None => refusal(operation, innermost_message(&error)),
        }
    }

    pub(super) fn refused(operation: String, reason: String) -> StatementError {
        StatementError::Refused { operation, reason }
    }

    /// Whether the database did not answer.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            StatementError::Lost { .. }
                | StatementError::Silent { .. }
                | StatementError::Table(TableError::Lost { .. })
        )
    }
}

/// The answer differs from the generated data.
pub(super) fn different(message: String) -> OperationError {
    OperationError::invalid("VALIDATION", message)
}

/// The answer has a form that the statement cannot have.
pub(super) fn unreadable(error: impl std::error::Error + 'static) -> OperationError {
    OperationError::invalid("UNREADABLE_ROW", innermost_message(&error))
}
