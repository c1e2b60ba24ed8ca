//! The session of one engine thread and its prepared statements. It binds nothing and reads no values;
//! `bind` and `rows` do.

use super::{
    BoundValues, KeptRows, StatementConnection, StatementFailure, StatementRows, StatementSessionError,
    bind::ValueGenerators,
};
use crate::{
    Consistency, Database,
    database::{OperationError, innermost_message},
    profile::qualified_statement,
};
use scylla::{errors::ExecutionError, response::PagingState, statement::prepared::PreparedStatement};
use std::{
    ops::ControlFlow,
    pin::pin,
    time::{Duration, Instant},
};

/// A connected database of a scenario.
pub struct StatementSession {
    database: Database,
    keyspace: Option<String>,
    request_timeout: Duration,
    /// A database that has not prepared a statement after this time is silent.
    prepare_limit: Duration,
}

/// What a statement says about its sending; `None` takes the session's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementOptions {
    pub consistency: Option<Consistency>,
    /// Rows of one page. All pages are read, one after the other.
    pub page_size: Option<u16>,
    /// For all pages together.
    pub timeout: Option<Duration>,
}

/// A statement that the database has prepared.
#[derive(Debug, Clone)]
pub struct ScenarioStatement {
    pub(super) prepared: PreparedStatement,
    pub(super) consistency: Option<Consistency>,
    /// For all pages together.
    pub(super) timeout: Duration,
    pub(super) generators: ValueGenerators,
}

impl StatementSession {
    /// Connects to every node. All connections stand when it returns.
    pub async fn connect(connection: &StatementConnection) -> Result<StatementSession, StatementSessionError> {
        let database = Database::connect(&connection.target(), connection.connections).await?;
        let (keyspace, request_timeout) = (connection.keyspace.clone(), connection.request_timeout);
        Ok(StatementSession { database, keyspace, request_timeout, prepare_limit: connection.prepare_limit() })
    }

    /// Prepares a statement. Tables without a keyspace belong to that of the session.
    pub async fn prepare(&self, cql: &str, options: StatementOptions) -> Result<ScenarioStatement, StatementFailure> {
        let cql = match &self.keyspace {
            Some(keyspace) => qualified_statement(keyspace, cql),
            None => cql.to_owned(),
        };
        let preparing = tokio::time::timeout(self.prepare_limit, self.database.session.prepare(cql));
        let prepared = preparing.await.map_err(|_| StatementFailure::silent(self.prepare_limit))?;
        let mut prepared = prepared.map_err(|error| StatementFailure {
            message: innermost_message(&error),
            ..OperationError::from(ExecutionError::from(error)).into()
        })?;
        if let Some(level) = options.consistency {
            prepared.set_consistency(level.into());
        }
        if let Some(rows) = options.page_size {
            prepared.set_page_size(i32::from(rows));
        }
        if options.timeout.is_some() {
            prepared.set_request_timeout(options.timeout);
        }
        let timeout = options.timeout.unwrap_or(self.request_timeout);
        let (consistency, generators) = (options.consistency, ValueGenerators::default());
        Ok(ScenarioStatement { prepared, consistency, timeout, generators })
    }

    /// Sends a statement and reads all pages of its answer.
    pub async fn execute(
        &self,
        statement: &ScenarioStatement,
        values: &BoundValues,
        keep: KeptRows,
    ) -> Result<StatementRows, StatementFailure> {
        let mut rows = StatementRows::new(keep);
        let mut state = PagingState::start();
        let began = Instant::now();
        // The driver limits one page. Its own timer is enough for the first one.
        let mut time_left = None;
        loop {
            let limit = time_left;
            let page = pin!(async {
                let page = pin!(self.database.session.execute_single_page(&statement.prepared, values, state));
                let answered = match limit {
                    None => page.await,
                    Some(left) => tokio::time::timeout(left, page)
                        .await
                        .unwrap_or(Err(ExecutionError::RequestTimeout(statement.timeout))),
                };
                answered.map_err(OperationError::from)
            });
            let (page, next) = self.database.with_node(statement.consistency, page).await.0?;
            time_left = Some(statement.timeout.saturating_sub(began.elapsed()));
            rows.add(page)?;
            match next.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(rows),
                ControlFlow::Continue(next) => state = next,
            }
        }
    }
}

impl ScenarioStatement {
    /// The number of values that it takes.
    pub fn value_count(&self) -> usize {
        self.prepared.get_variable_col_specs().len()
    }

    /// The names of the columns that its values are bound to.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.prepared.get_variable_col_specs().iter().map(|spec| spec.name())
    }
}
