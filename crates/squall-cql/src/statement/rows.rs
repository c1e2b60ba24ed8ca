//! The rows of an answer. They stay in the form of the protocol until a value is asked for.

use super::{RowValue, StatementFailure};
use crate::database::{OperationError, innermost_message};
use scylla::{
    response::query_result::{QueryResult, QueryRowsResult},
    value::Row,
};

/// Which rows of an answer are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptRows {
    /// All are counted, and the first one is kept.
    First,
    All,
}

/// The rows that a statement returned.
#[derive(Debug)]
pub struct StatementRows {
    keep: KeptRows,
    pages: Vec<QueryRowsResult>,
    count: u64,
    bytes: u64,
    returns_rows: bool,
}

impl StatementRows {
    pub(super) fn new(keep: KeptRows) -> StatementRows {
        StatementRows { keep, pages: Vec::new(), count: 0, bytes: 0, returns_rows: false }
    }

    pub(super) fn add(&mut self, page: QueryResult) -> Result<(), StatementFailure> {
        if !page.is_rows() {
            return Ok(());
        }
        self.returns_rows = true;
        let page = page.into_rows_result().map_err(unreadable)?;
        self.bytes += page.rows_bytes_size() as u64;
        let first = self.count == 0;
        self.count += page.rows_num() as u64;
        if self.keep == KeptRows::All || first {
            self.pages.truncate(if self.keep == KeptRows::All { usize::MAX } else { 0 });
            self.pages.push(page);
        }
        Ok(())
    }

    /// The number of rows of all pages.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the statement is one that returns rows, such as SELECT.
    pub fn returns_rows(&self) -> bool {
        self.returns_rows
    }

    /// The names of the columns; empty if the statement returns no rows.
    pub fn columns(&self) -> Vec<&str> {
        self.pages.first().map_or_else(Vec::new, |page| page.column_specs().iter().map(|spec| spec.name()).collect())
    }

    /// The position of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.pages.first()?.column_specs().get_by_name(name).map(|(position, _)| position)
    }

    /// The values of the first row.
    pub fn first(&self) -> Result<Option<Vec<RowValue>>, StatementFailure> {
        self.rows().next().transpose()
    }

    /// The values of the kept rows.
    pub fn rows(&self) -> impl Iterator<Item = Result<Vec<RowValue>, StatementFailure>> {
        self.pages.iter().flat_map(|page| {
            let (rows, error) = match page.rows::<Row>() {
                Ok(rows) => (Some(rows), None),
                Err(error) => (None, Some(Err(unreadable(error)))),
            };
            let rows = rows.into_iter().flatten().map(|row| match row {
                Ok(row) => Ok(row.columns.into_iter().map(RowValue::from).collect()),
                Err(error) => Err(unreadable(error)),
            });
            rows.chain(error)
        })
    }
}

fn unreadable(error: impl std::error::Error + 'static) -> StatementFailure {
    OperationError::invalid("UNREADABLE_ROW", innermost_message(&error)).into()
}
