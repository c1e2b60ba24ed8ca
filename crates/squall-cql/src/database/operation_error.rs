//! A failed try of an operation: its outcome code, its message, and whether another try makes
//! sense. It counts nothing; the user of the driver records it.

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use squall_metrics::{Outcome, OutcomeCategory};
use std::error::Error;

/// Why one try of an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct OperationError {
    pub(crate) outcome: Outcome,
    pub(crate) message: String,
    pub(crate) next_try: NextTry,
}

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextTry {
    AtOnce,
    /// The connection is missing, broken or full, so that the next try would fail at once.
    AfterPause,
    /// The database answered, and its answer is wrong.
    Never,
}

impl OperationError {
    /// The answer differs from what the seed generates, or has another number of rows.
    pub(crate) fn invalid(code: &'static str, message: String) -> OperationError {
        let outcome = Outcome::new(OutcomeCategory::CheckFailed, code);
        OperationError { outcome, message, next_try: NextTry::Never }
    }

    pub(crate) fn is_validation(&self) -> bool {
        self.next_try == NextTry::Never
    }
}

impl From<ExecutionError> for OperationError {
    fn from(error: ExecutionError) -> OperationError {
        let (category, code) = match &error {
            ExecutionError::RequestTimeout(_) => (OutcomeCategory::Timeout, "CLIENT_TIMEOUT"),
            ExecutionError::LastAttemptError(error) => attempt_code(error),
            ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }) => {
                preparation_code(first_attempt)
            }
            ExecutionError::ConnectionPoolError(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_)) => {
                (OutcomeCategory::TransportError, "NO_CONNECTION")
            }
            ExecutionError::BadQuery(_) | ExecutionError::PrepareError(_) => BAD_STATEMENT,
            _ => (OutcomeCategory::ProtocolError, "DRIVER_ERROR"),
        };
        let transport_failed = category == OutcomeCategory::TransportError;
        OperationError {
            outcome: Outcome::new(category, code),
            message: innermost_message(&error),
            next_try: if transport_failed { NextTry::AfterPause } else { NextTry::AtOnce },
        }
    }
}

const BAD_STATEMENT: (OutcomeCategory, &str) = (OutcomeCategory::Exception, "BAD_STATEMENT");

/// A statement that the database does not accept is a mistake of the scenario; every other error is the
/// database's.
fn preparation_code(error: &RequestAttemptError) -> (OutcomeCategory, &'static str) {
    match error {
        RequestAttemptError::DbError(DbError::SyntaxError | DbError::Invalid | DbError::Unauthorized, _) => {
            BAD_STATEMENT
        }
        error => attempt_code(error),
    }
}

fn attempt_code(error: &RequestAttemptError) -> (OutcomeCategory, &'static str) {
    match error {
        RequestAttemptError::DbError(error, _) => database_code(error),
        RequestAttemptError::BrokenConnectionError(_) => (OutcomeCategory::TransportError, "CONNECTION_BROKEN"),
        RequestAttemptError::UnableToAllocStreamId => (OutcomeCategory::TransportError, "CONNECTION_BUSY"),
        _ => (OutcomeCategory::ProtocolError, "DRIVER_ERROR"),
    }
}

fn database_code(error: &DbError) -> (OutcomeCategory, &'static str) {
    match error {
        DbError::ReadTimeout { .. } => (OutcomeCategory::Timeout, "READ_TIMEOUT"),
        DbError::WriteTimeout { .. } => (OutcomeCategory::Timeout, "WRITE_TIMEOUT"),
        other => (OutcomeCategory::ProtocolError, protocol_code(other)),
    }
}

fn protocol_code(error: &DbError) -> &'static str {
    match error {
        DbError::Unavailable { .. } => "UNAVAILABLE",
        DbError::Overloaded => "OVERLOADED",
        DbError::IsBootstrapping => "BOOTSTRAPPING",
        DbError::ReadFailure { .. } => "READ_FAILURE",
        DbError::WriteFailure { .. } => "WRITE_FAILURE",
        DbError::TruncateError => "TRUNCATE_ERROR",
        DbError::RateLimitReached { .. } => "RATE_LIMIT",
        DbError::SyntaxError => "SYNTAX_ERROR",
        DbError::Invalid => "INVALID",
        DbError::ConfigError => "CONFIG_ERROR",
        DbError::AuthenticationError => "AUTHENTICATION",
        DbError::Unauthorized => "UNAUTHORIZED",
        DbError::AlreadyExists { .. } => "ALREADY_EXISTS",
        DbError::FunctionFailure { .. } => "FUNCTION_FAILURE",
        DbError::Unprepared { .. } => "UNPREPARED",
        DbError::ServerError => "SERVER_ERROR",
        DbError::ProtocolError => "PROTOCOL_ERROR",
        _ => "DATABASE_ERROR",
    }
}

/// The cause of a nested error: the database's own text, or else the innermost message.
pub(crate) fn innermost_message(error: &(dyn Error + 'static)) -> String {
    let innermost = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source()).last();
    let text = innermost.unwrap_or(error).to_string();
    // Some errors repeat their cause in their own text instead of naming it as their source.
    let cause = text.rsplit_once("Error message: ").or_else(|| text.rsplit_once("failed with: "));
    cause.map_or(text.as_str(), |(_, cause)| cause).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_database_have_their_own_code_and_text() {
        let error = ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Overloaded,
            "too many requests".to_owned(),
        ));
        let error = OperationError::from(error);
        assert_eq!(error.outcome, Outcome::new(OutcomeCategory::ProtocolError, "OVERLOADED"));
        assert_eq!((error.message.as_str(), error.next_try), ("too many requests", NextTry::AtOnce));
        let timeout = OperationError::from(ExecutionError::RequestTimeout(std::time::Duration::from_secs(12)));
        assert_eq!(timeout.outcome.category, OutcomeCategory::Timeout);
        let unconnected = OperationError::from(ExecutionError::EmptyPlan);
        assert_eq!(unconnected.next_try, NextTry::AfterPause);
    }

    #[test]
    fn a_failed_preparation_has_the_code_of_its_cause() {
        let failed = |error: DbError| {
            let first_attempt = RequestAttemptError::DbError(error, "reason".to_owned());
            OperationError::from(ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }))
        };
        assert_eq!(failed(DbError::SyntaxError).outcome, Outcome::new(OutcomeCategory::Exception, "BAD_STATEMENT"));
        let overloaded = Outcome::new(OutcomeCategory::ProtocolError, "OVERLOADED");
        assert_eq!(failed(DbError::Overloaded).outcome, overloaded);
        let first_attempt = RequestAttemptError::UnableToAllocStreamId;
        let busy =
            OperationError::from(ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }));
        assert_eq!(busy.outcome, Outcome::new(OutcomeCategory::TransportError, "CONNECTION_BUSY"));
        assert_eq!(busy.next_try, NextTry::AfterPause);
    }
}
