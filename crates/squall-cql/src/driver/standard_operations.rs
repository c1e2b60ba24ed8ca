//! The four operations on `standard1` and `counter1`: prepares their statements, sends one try, and
//! compares the rows of a read with the generated ones. It retries and records nothing.

use super::{StatementError, different, unreadable};
use crate::{
    BasicOperation, Database, RowValidation, StandardColumns, StandardRow, StandardStatements, StressSettings,
    cql_text::{blob_literal, with_values},
    database::OperationError,
};
use scylla::{
    client::session::Session,
    deserialize::row::ColumnIterator,
    errors::ExecutionError,
    response::query_result::{QueryResult, QueryRowsResult},
    serialize::{
        SerializationError,
        row::{RowSerializationContext, SerializeRow},
        value::SerializeValue,
        writers::RowWriter,
    },
    statement::prepared::PreparedStatement,
};
use std::cell::RefCell;

/// The prepared statements of one thread's connections.
pub(super) struct StandardOperations {
    /// Generators that keep no state between operations.
    pub(super) columns: RefCell<StandardColumns>,
    /// One for each operation of the run.
    statements: Vec<OperationStatement>,
    /// Sends the text with its values instead of the prepared statement.
    unprepared: bool,
    /// Compares the cells of a read; `false` only counts its rows.
    compare: bool,
    /// Accepts cells without a value, because writes leave some out.
    cells_may_be_null: bool,
}

/// What one operation sends: the row of its seed, how many of its cells have a value, and the
/// increment of each counter.
pub(super) struct OperationData<'r> {
    pub(super) row: &'r StandardRow,
    pub(super) populated: usize,
    pub(super) increments: &'r [i64],
}

impl StandardOperations {
    pub(super) async fn prepare(
        database: &Database,
        settings: &StressSettings,
        operations: impl Iterator<Item = BasicOperation>,
    ) -> Result<StandardOperations, StatementError> {
        let mut statements = Vec::new();
        for operation in operations {
            let prepared = database.session.prepare(operation.statement(settings)).await;
            let failed = |error| {
                StatementError::new(database, operation.name(), error, |name, reason| refusal(operation, name, reason))
            };
            statements.push((operation, prepared.map_err(failed)?));
        }
        let columns =
            StandardColumns::new(&settings.columns.names, settings.command.key_size, settings.columns.size.clone());
        Ok(StandardOperations {
            columns: RefCell::new(columns),
            statements,
            unprepared: settings.mode.unprepared,
            compare: settings.errors.validation == RowValidation::Compare,
            cells_may_be_null: settings.insert.row_population.is_some(),
        })
    }

    pub(super) fn kind(&self, operation: usize) -> BasicOperation {
        self.statements[operation].0
    }

    /// The bytes of the values that the operation with this index sends.
    pub(super) fn value_bytes(&self, operation: usize, data: &OperationData<'_>) -> u64 {
        let others = match self.kind(operation) {
            BasicOperation::Write => data.row.cells().take(data.populated).map(<[u8]>::len).sum(),
            BasicOperation::CounterWrite => size_of_val(data.increments),
            BasicOperation::Read | BasicOperation::CounterRead => 0,
        };
        (data.row.key().len() + others) as u64
    }

    /// Sends the operation with this index once. Returns the bytes of the rows of the answer.
    pub(super) async fn execute(
        &self,
        database: &Database,
        operation: usize,
        data: &OperationData<'_>,
    ) -> Result<u64, OperationError> {
        let operation = &self.statements[operation];
        let result = match self.unprepared {
            true => database.session.query_unpaged(statement_text(operation, data), ()).await?,
            false => send_prepared(&database.session, operation, data).await?,
        };
        if operation.0.writes() {
            return Ok(0);
        }
        let rows = result.into_rows_result().map_err(unreadable)?;
        match operation.0 {
            _ if !self.compare => {}
            BasicOperation::Read => self.check_row(&rows, data.row)?,
            _ => check_any(&rows)?,
        }
        Ok(rows.rows_bytes_size() as u64)
    }

    /// The statement with its values, for messages.
    pub(super) fn text(&self, operation: usize, data: &OperationData<'_>) -> String {
        statement_text(&self.statements[operation], data)
    }

    fn check_row(&self, rows: &QueryRowsResult, expected: &StandardRow) -> Result<(), OperationError> {
        check_any(rows)?;
        if rows.rows_num() > 1 {
            return Err(different(format!("the key has {} rows", rows.rows_num())));
        }
        let cells: ColumnIterator<'_, '_> = rows.first_row().map_err(unreadable)?;
        let mut expected = expected.cells();
        for cell in cells {
            let cell = cell.map_err(unreadable)?;
            // With `-col slice` the key is a column of the result, too.
            if cell.spec.name() == "key" {
                continue;
            }
            let equal = match (cell.slice, expected.next()) {
                (Some(slice), Some(expected)) => slice.as_slice() == expected,
                (None, Some(_)) => self.cells_may_be_null,
                (_, None) => false,
            };
            if !equal {
                return Err(different(format!("{} has another value", cell.spec.name())));
            }
        }
        match expected.next() {
            Some(_) => Err(different("columns are missing".to_owned())),
            None => Ok(()),
        }
    }
}

type OperationStatement = (BasicOperation, PreparedStatement);

/// Why the database does not prepare the statement of an operation.
fn refusal(kind: BasicOperation, operation: String, reason: String) -> StatementError {
    match kind {
        _ if reason.starts_with("Undefined column name") => StatementError::OtherColumns { operation, reason },
        BasicOperation::Read | BasicOperation::CounterRead => StatementError::NoTable { operation, reason },
        BasicOperation::Write | BasicOperation::CounterWrite => StatementError::Refused { operation, reason },
    }
}

fn check_any(rows: &QueryRowsResult) -> Result<(), OperationError> {
    match rows.rows_num() {
        0 => Err(OperationError::invalid("MISSING_ROW", "the key has no row".to_owned())),
        _ => Ok(()),
    }
}

async fn send_prepared(
    session: &Session,
    (operation, statement): &OperationStatement,
    data: &OperationData<'_>,
) -> Result<QueryResult, ExecutionError> {
    match operation {
        BasicOperation::Write => session.execute_unpaged(statement, WriteValues(data)).await,
        BasicOperation::CounterWrite => session.execute_unpaged(statement, CounterValues(data)).await,
        BasicOperation::Read | BasicOperation::CounterRead => {
            session.execute_unpaged(statement, (data.row.key(),)).await
        }
    }
}

/// The statement with its values instead of the markers.
fn statement_text((operation, statement): &OperationStatement, data: &OperationData<'_>) -> String {
    let cells: Vec<String> = match operation {
        BasicOperation::Write => {
            let cells = data.row.cells().enumerate();
            cells.map(|(i, cell)| if i < data.populated { blob_literal(cell) } else { "null".to_owned() }).collect()
        }
        BasicOperation::CounterWrite => data.increments.iter().map(i64::to_string).collect(),
        BasicOperation::Read | BasicOperation::CounterRead => Vec::new(),
    };
    let key = blob_literal(data.row.key());
    with_values(statement.get_statement(), cells.into_iter().chain([key]))
}

impl BasicOperation {
    fn statement(self, settings: &StressSettings) -> String {
        let statements = StandardStatements { keyspace: &settings.schema.keyspace, columns: &settings.columns.names };
        match self {
            BasicOperation::Write => statements.write(settings.columns.timestamp),
            BasicOperation::Read if settings.columns.slice => statements.read_slice(),
            BasicOperation::Read => statements.read(),
            BasicOperation::CounterWrite => statements.counter_write(),
            BasicOperation::CounterRead => statements.counter_read(),
        }
    }
}

/// The cells and the key, bound without a copy.
struct WriteValues<'d>(&'d OperationData<'d>);

impl SerializeRow for WriteValues<'_> {
    fn serialize(&self, ctx: &RowSerializationContext<'_>, writer: &mut RowWriter) -> Result<(), SerializationError> {
        let (data, mut specs) = (self.0, ctx.columns().iter());
        for ((number, cell), spec) in data.row.cells().enumerate().zip(specs.by_ref()) {
            let value = (number < data.populated).then_some(cell);
            value.serialize(spec.typ(), writer.make_cell_writer())?;
        }
        serialize_key(data, specs.next(), writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// The increments and the key.
struct CounterValues<'d>(&'d OperationData<'d>);

impl SerializeRow for CounterValues<'_> {
    fn serialize(&self, ctx: &RowSerializationContext<'_>, writer: &mut RowWriter) -> Result<(), SerializationError> {
        let (data, mut specs) = (self.0, ctx.columns().iter());
        for (increment, spec) in data.increments.iter().zip(specs.by_ref()) {
            scylla::value::Counter(*increment).serialize(spec.typ(), writer.make_cell_writer())?;
        }
        serialize_key(data, specs.next(), writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

fn serialize_key(
    data: &OperationData<'_>,
    spec: Option<&scylla::frame::response::result::ColumnSpec<'_>>,
    writer: &mut RowWriter,
) -> Result<(), SerializationError> {
    match spec {
        Some(spec) => data.row.key().serialize(spec.typ(), writer.make_cell_writer()).map(drop),
        // The statement has one marker for each column and one for the key.
        None => Ok(()),
    }
}
