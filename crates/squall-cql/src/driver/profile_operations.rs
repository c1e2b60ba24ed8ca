//! The operations of user profiles on one thread's connections: their statements, and the data and
//! the sending of one operation. It retries and records nothing; the user does.

mod insert;
mod query;
mod table;
mod token_range;
mod validation;

use super::{
    OperationAnswer, StatementError,
    workload::{ProfileOperation, ProfileOperationKind, ProfileWorkload},
};
use crate::{Consistency, Database, StressSettings, database::OperationError};
use insert::{Insert, InsertWork};
use query::{Query, QueryWork};
use scylla::{client::session::Session, response::PagingState, statement::prepared::PreparedStatement};
use std::{ops::ControlFlow, rc::Rc};
use table::ProfileTable;
pub(super) use token_range::{NextPage, TokenRangeQuery, TokenRangeScan};
use validation::{Validation, ValidationWork};

/// The statements of one thread, in the order of the run's operations.
pub(super) struct ProfileOperations {
    operations: Vec<PreparedOperation>,
}

pub(super) enum PreparedOperation {
    Insert(Box<Insert>),
    Validation(Validation),
    Query(Query),
    TokenRange(TokenRangeQuery),
}

/// What one operation sends.
pub(super) enum ProfileWork {
    Insert(InsertWork),
    Validation(ValidationWork),
    Query(QueryWork),
    TokenRange(TokenRangeScan),
}

impl ProfileOperations {
    pub(super) async fn prepare(
        database: &Database,
        settings: &StressSettings,
        workload: &ProfileWorkload,
    ) -> Result<ProfileOperations, StatementError> {
        let mut tables = Vec::new();
        for profile in workload.profiles.iter() {
            tables.push(Rc::new(ProfileTable::read(database, settings, profile).await?));
        }
        let mut operations = Vec::new();
        for operation in &workload.operations {
            let preparation = Preparation { database, settings, table: tables[operation.profile].clone(), operation };
            operations.push(preparation.prepare().await?);
        }
        Ok(ProfileOperations { operations })
    }

    pub(super) fn get(&self, index: usize) -> &PreparedOperation {
        &self.operations[index]
    }
}

impl PreparedOperation {
    /// Sends the operation once.
    pub(super) async fn send(
        &self,
        session: &Session,
        work: &mut ProfileWork,
    ) -> Result<OperationAnswer, OperationError> {
        match (self, work) {
            (PreparedOperation::Insert(insert), ProfileWork::Insert(work)) => insert.send(session, work).await,
            (PreparedOperation::Validation(check), ProfileWork::Validation(work)) => check.send(session, work).await,
            (PreparedOperation::Query(query), ProfileWork::Query(work)) => query.send(session, work).await,
            (PreparedOperation::TokenRange(query), ProfileWork::TokenRange(scan)) => query.send(session, scan).await,
            _ => unreachable!("an operation makes its own work"),
        }
    }
}

impl PreparedOperation {
    /// The level of its statement, if it has its own.
    pub(super) fn consistency(&self) -> Option<Consistency> {
        match self {
            PreparedOperation::Query(query) => query.consistency,
            _ => None,
        }
    }

    /// The text of the statement that `work` sends.
    pub(super) fn statement(&self, work: &ProfileWork) -> &str {
        let statement = match (self, work) {
            (PreparedOperation::Insert(insert), _) => &insert.statement,
            (PreparedOperation::Validation(check), ProfileWork::Validation(work)) => check.statement(work),
            (PreparedOperation::Validation(_), _) => return "",
            (PreparedOperation::Query(query), _) => &query.statement,
            (PreparedOperation::TokenRange(query), _) => &query.statement,
        };
        statement.get_statement()
    }
}

impl ProfileWork {
    /// The bytes of the values that one try sends; the bounds of a token range.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            ProfileWork::Insert(work) => work.bytes(),
            ProfileWork::Validation(work) => work.values.bytes(),
            ProfileWork::Query(work) => work.values.bytes(),
            ProfileWork::TokenRange(_) => 16,
        }
    }

    /// The partition keys, for messages.
    pub(super) fn keys(&self) -> String {
        match self {
            ProfileWork::Insert(work) => work.keys.join(", "),
            ProfileWork::Validation(work) => work.key.clone(),
            ProfileWork::Query(work) => work.key.clone(),
            ProfileWork::TokenRange(scan) => scan.to_string(),
        }
    }
}

/// What preparing one operation needs.
struct Preparation<'p> {
    database: &'p Database,
    settings: &'p StressSettings,
    table: Rc<ProfileTable>,
    operation: &'p ProfileOperation,
}

impl Preparation<'_> {
    async fn prepare(self) -> Result<PreparedOperation, StatementError> {
        let profile = self.table.profile.clone();
        Ok(match &self.operation.kind {
            ProfileOperationKind::Insert => PreparedOperation::Insert(Box::new(Insert::prepare(self).await?)),
            ProfileOperationKind::Validate => PreparedOperation::Validation(Validation::prepare(self).await?),
            ProfileOperationKind::Query(name) => {
                PreparedOperation::Query(Query::prepare(self, &profile.queries[name]).await?)
            }
            ProfileOperationKind::TokenRange(name) => {
                let query = &profile.token_range_queries[name];
                PreparedOperation::TokenRange(TokenRangeQuery::prepare(self, query).await?)
            }
        })
    }

    async fn statement(&self, cql: String) -> Result<PreparedStatement, StatementError> {
        let prepared = self.database.session.prepare(cql).await;
        let failed = |error| StatementError::new(self.database, &self.operation.name, error, StatementError::refused);
        prepared.map_err(failed)
    }
}

/// Reads all pages of a statement, one after the other.
async fn each_page(
    session: &Session,
    statement: &PreparedStatement,
    values: &super::row_values::RowValues,
    mut page: impl FnMut(scylla::response::query_result::QueryResult) -> Result<(), OperationError>,
) -> Result<(), OperationError> {
    let mut state = PagingState::start();
    loop {
        let (result, next) = session.execute_single_page(statement, values, state).await?;
        page(result)?;
        match next.into_paging_control_flow() {
            ControlFlow::Break(()) => return Ok(()),
            ControlFlow::Continue(next) => state = next,
        }
    }
}
