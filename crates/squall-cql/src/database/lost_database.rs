//! Tells that the database has stopped to answer from other reasons why a step before a run fails. It waits for
//! nothing; the driver asks the nodes of a session for preparing statements for signs of life.

use super::{Database, innermost_message};
use scylla::errors::{
    BrokenConnectionError, BrokenConnectionErrorKind, ExecutionError, PrepareError, RequestAttemptError,
    SchemaAgreementError, UseKeyspaceError,
};
use std::{net::IpAddr, time::Duration};

/// Why a step got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostDatabase {
    #[error(
        "node {node} has not answered for {} s: check it, or wait longer with -mode connectTimeout=",
        silence.as_secs_f64()
    )]
    Silent { node: IpAddr, silence: Duration },
    #[error("the nodes are alive and have not done it within {} s", limit.as_secs_f64())]
    Endless { limit: Duration },
    #[error("the connection to the database is lost: {reason}")]
    Unconnected { reason: String },
}

impl Database {
    /// How the database was lost; `None` if it has answered.
    pub(crate) fn lost(&self, error: &ExecutionError) -> Option<LostDatabase> {
        match error {
            ExecutionError::RequestTimeout(limit)
            | ExecutionError::UseKeyspaceError(UseKeyspaceError::RequestTimeout(limit))
            | ExecutionError::SchemaAgreementError(SchemaAgreementError::Timeout(limit)) => {
                Some(LostDatabase::Endless { limit: *limit })
            }
            ExecutionError::LastAttemptError(attempt)
            | ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt: attempt })
            | ExecutionError::UseKeyspaceError(UseKeyspaceError::RequestError(attempt))
            | ExecutionError::SchemaAgreementError(SchemaAgreementError::RequestError(attempt)) => match attempt {
                RequestAttemptError::BrokenConnectionError(broken) => Some(self.broken(broken)),
                _ => None,
            },
            ExecutionError::ConnectionPoolError(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::MetadataError(_)
            | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_))
            | ExecutionError::SchemaAgreementError(
                SchemaAgreementError::ConnectionPoolError(_) | SchemaAgreementError::RequiredHostAbsent(_),
            ) => Some(LostDatabase::Unconnected { reason: innermost_message(error) }),
            _ => None,
        }
    }

    fn broken(&self, error: &BrokenConnectionError) -> LostDatabase {
        match error.downcast_ref() {
            Some(BrokenConnectionErrorKind::KeepaliveTimeout(node)) => {
                LostDatabase::Silent { node: *node, silence: self.silence }
            }
            _ => LostDatabase::Unconnected { reason: innermost_message(error) },
        }
    }
}
