//! Why a session or a statement of a scenario failed, in the words of scenarios.

use crate::{
    DatabaseConnectError, TlsStoreError,
    database::{NextTry, OperationError},
};
use scylla::errors::ExecutionError;
use squall_engine::DriverError;
use squall_metrics::{Outcome, OutcomeCategory, OutcomeCode};
use std::time::Duration;

/// Why a scenario cannot use its database.
#[derive(Debug, thiserror::Error)]
pub enum StatementSessionError {
    #[error("{nodes} did not answer within {seconds} s: check `nodes` and `port` of [cql]")]
    Silent { nodes: String, seconds: f64 },
    #[error("cannot connect to {nodes}: {reason}")]
    Refused { nodes: String, reason: String },
    #[error("{nodes} wants a password: add `user` and `password` to [cql]")]
    PasswordNeeded { nodes: String },
    #[error("cannot resolve {hosts}: check `nodes` of [cql]")]
    UnknownHost { hosts: String },
    #[error("node {node} belongs to the cluster and cannot be connected: start it")]
    NodeDown { node: String },
    #[error(
        "{open} of {wanted} connections stand after {seconds} s: the nodes may limit their number; \
         use a lower `connections` of [cql]"
    )]
    MissingConnections { open: u64, wanted: u64, seconds: f64 },
    #[error("the TLS settings of [cql] cannot be used: {}", .0.reason())]
    Tls(TlsStoreError),
    #[error(transparent)]
    Other(DatabaseConnectError),
}

impl From<StatementSessionError> for DriverError {
    fn from(error: StatementSessionError) -> DriverError {
        let reason = error.to_string();
        match error {
            StatementSessionError::Tls(_) => DriverError::Connect { reason },
            _ => DriverError::Unreachable { reason },
        }
    }
}

impl From<DatabaseConnectError> for StatementSessionError {
    fn from(error: DatabaseConnectError) -> StatementSessionError {
        match error {
            DatabaseConnectError::Silent { nodes, limit } => {
                StatementSessionError::Silent { nodes, seconds: limit.as_secs_f64() }
            }
            DatabaseConnectError::Refused { nodes, reason } => StatementSessionError::Refused { nodes, reason },
            DatabaseConnectError::PasswordNeeded { nodes } => StatementSessionError::PasswordNeeded { nodes },
            DatabaseConnectError::UnknownHost { hosts } => StatementSessionError::UnknownHost { hosts },
            DatabaseConnectError::NodeDown { node } => StatementSessionError::NodeDown { node },
            DatabaseConnectError::MissingConnections { open, wanted, limit } => {
                StatementSessionError::MissingConnections { open, wanted, seconds: limit.as_secs_f64() }
            }
            DatabaseConnectError::Tls(error) => StatementSessionError::Tls(error),
            other => StatementSessionError::Other(other),
        }
    }
}

/// A statement that the database did not carry out.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StatementFailure {
    pub outcome: Outcome,
    pub message: String,
    /// The connection is missing, broken or full, so that the next statement would fail at once.
    pub transport_failed: bool,
}

impl StatementFailure {
    pub(super) fn silent(limit: Duration) -> StatementFailure {
        let message = format!("the database did not prepare the statement within {} s", limit.as_secs_f64());
        let error = OperationError::from(ExecutionError::RequestTimeout(limit));
        StatementFailure { message, ..error.into() }
    }

    /// Whether the database did not answer.
    pub fn is_lost(&self) -> bool {
        matches!(self.outcome.category, OutcomeCategory::TransportError)
            || self.outcome.code == OutcomeCode::Named("CLIENT_TIMEOUT")
    }
}

impl From<OperationError> for StatementFailure {
    fn from(error: OperationError) -> StatementFailure {
        let transport_failed = error.next_try == NextTry::AfterPause;
        StatementFailure { outcome: error.outcome, message: error.message, transport_failed }
    }
}
