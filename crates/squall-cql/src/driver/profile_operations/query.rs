//! A named query of a profile. Its arguments are values of the partition of a seed, bound by the names
//! of the columns. Its rows are counted, not checked.

use super::{
    Preparation, each_page,
    table::{ProfileTable, key_text},
};
use crate::{
    ArgumentSource, Consistency, CqlValue, Partition, ProfileQuery,
    database::OperationError,
    driver::{OperationAnswer, OperationCounts, StatementError, row_values::RowValues, seed_source::UserSeeds},
    profile::qualified_statement,
};
use scylla::{client::session::Session, statement::prepared::PreparedStatement};
use std::rc::Rc;

pub(in crate::driver) struct Query {
    table: Rc<ProfileTable>,
    pub(super) statement: PreparedStatement,
    pub(super) consistency: Option<Consistency>,
    arguments: Vec<Argument>,
    source: ArgumentSource,
}

/// The column of an argument, with its position among the columns of its kind.
#[derive(Debug, Clone, Copy)]
enum Argument {
    Key(usize),
    Clustering(usize),
    Value(usize),
}

/// The arguments of one operation.
pub(in crate::driver) struct QueryWork {
    pub(super) values: RowValues,
    pub(super) key: String,
}

impl Query {
    pub(super) async fn prepare(preparation: Preparation<'_>, query: &ProfileQuery) -> Result<Query, StatementError> {
        let table = preparation.table.clone();
        let mut statement = preparation.statement(qualified_statement(&table.description.keyspace, &query.cql)).await?;
        let consistency = query.consistency;
        if let Some(level) = consistency {
            statement.set_consistency(level.into());
        }
        if let Some(level) = query.serial_consistency {
            statement.set_serial_consistency(Some(level.into()));
        }
        let specs = statement.get_variable_col_specs();
        let argument = |name: &str| {
            table.argument(name).ok_or_else(|| StatementError::Argument {
                operation: preparation.operation.name.clone(),
                argument: name.to_owned(),
                table: table.description.table.clone(),
            })
        };
        let arguments = specs.iter().map(|spec| argument(spec.name())).collect::<Result<Vec<_>, _>>()?;
        Ok(Query { statement, consistency, arguments, source: query.arguments, table })
    }

    /// Generates the arguments of one operation; `None` ends the run.
    pub(in crate::driver) fn begin(&self, seeds: &mut UserSeeds) -> Option<QueryWork> {
        let partition = self.table.partition(seeds.take(false)?.seed);
        let row = fastrand::usize(..partition.row_count());
        let value = |argument: &Argument| {
            let row = match self.source {
                ArgumentSource::OneRow => row,
                ArgumentSource::ManyRows => fastrand::usize(..partition.row_count()),
            };
            Some(self.table.value(&partition, row, *argument))
        };
        let values = RowValues(self.arguments.iter().map(value).collect());
        Some(QueryWork { values, key: key_text(&partition.key) })
    }

    pub(super) async fn send(&self, session: &Session, work: &QueryWork) -> Result<OperationAnswer, OperationError> {
        let (mut rows, mut bytes) = (0, 0);
        let count = |result: scylla::response::query_result::QueryResult| {
            if result.is_rows() {
                let page = result.into_rows_result().map_err(super::super::unreadable)?;
                rows += page.rows_num() as u64;
                bytes += page.rows_bytes_size() as u64;
            }
            Ok(())
        };
        each_page(session, &self.statement, &work.values, count).await?;
        Ok(OperationAnswer { counts: OperationCounts { partitions: 1, rows }, bytes })
    }
}

impl ProfileTable {
    fn argument(&self, name: &str) -> Option<Argument> {
        let columns = &self.description.columns;
        let position = |columns: &[crate::TableColumn]| columns.iter().position(|column| column.name == name);
        let key = position(&columns.partition_key).map(Argument::Key);
        let clustering = || position(&columns.clustering).map(Argument::Clustering);
        key.or_else(clustering).or_else(|| position(&columns.values).map(Argument::Value))
    }

    fn value(&self, partition: &Partition, row: usize, argument: Argument) -> CqlValue {
        match argument {
            Argument::Key(position) => partition.key[position].clone(),
            Argument::Clustering(position) => partition.clustering(row).swap_remove(position),
            Argument::Value(position) => self.generator.borrow_mut().row(partition, row).values.swap_remove(position),
        }
    }
}
