//! Binds values to a prepared statement, each by the type that the database names for it. What a value of
//! a type looks like is the job of `bind_value`.

use super::{
    GeneratedValue, ScenarioStatement, StatementValue,
    bind_value::Misfit,
    generated_value::{cql_type, draw},
};
use crate::{CqlValue, UnsupportedColumn, profile::ColumnGenerator};
use scylla::serialize::{
    SerializationError,
    row::{RowSerializationContext, SerializeRow},
    value::SerializeValue,
    writers::{CellWriter, RowWriter},
};
use std::cell::RefCell;

/// The arguments of a statement.
#[derive(Debug, Default)]
pub struct BoundValues {
    cells: Vec<Cell>,
    /// Of all pages that were asked for.
    sent_bytes: std::cell::Cell<u64>,
}

impl BoundValues {
    /// The bytes of the values that were sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }
}

#[derive(Debug)]
enum Cell {
    Null,
    Converted(scylla::value::CqlValue),
    Generated(CqlValue),
}

/// The generators of a statement's values, by position.
#[derive(Debug, Clone, Default)]
pub(super) struct ValueGenerators(RefCell<Vec<Option<ColumnGenerator>>>);

/// Why values do not fit a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("the statement takes {expected} ({names}), not {given}")]
    Count { expected: String, names: String, given: usize },
    #[error("value {position} (column {column}, {cql_type}): {reason}")]
    Misfit { position: usize, column: String, cql_type: String, reason: String },
    #[error("the column {column} has the type {cql_type}, which has no generator: write its value")]
    Ungenerated { column: String, cql_type: String },
    #[error(transparent)]
    TooLarge(UnsupportedColumn),
}

impl ScenarioStatement {
    /// Gives the values at these positions a generator.
    pub fn with_generators(self, generated: &[Option<GeneratedValue>]) -> Result<ScenarioStatement, BindError> {
        self.check_count(generated.len())?;
        let specs = self.prepared.get_variable_col_specs();
        let generators = generated.iter().zip(specs.iter()).map(|(generated, spec)| {
            generated.as_ref().map(|generated| generated.generator(spec.name(), spec.typ())).transpose()
        });
        let generators = ValueGenerators(RefCell::new(generators.collect::<Result<_, _>>()?));
        Ok(ScenarioStatement { generators, ..self })
    }

    /// Converts the values to the types of the statement's markers.
    pub fn bind(&self, values: &[StatementValue]) -> Result<BoundValues, BindError> {
        self.check_count(values.len())?;
        let specs = self.prepared.get_variable_col_specs();
        let mut generators = self.generators.0.borrow_mut();
        let mut cells = Vec::with_capacity(values.len());
        for (position, (value, spec)) in values.iter().zip(specs.iter()).enumerate() {
            cells.push(match value {
                StatementValue::Null => Cell::Null,
                StatementValue::Generated { seed } => {
                    let generator = generators.get_mut(position).and_then(Option::as_mut);
                    Cell::Generated(draw(generator.expect("a generated value has a generator"), *seed))
                }
                value => Cell::Converted(value.convert(spec.typ()).map_err(|Misfit(reason)| BindError::Misfit {
                    position: position + 1,
                    column: spec.name().to_owned(),
                    cql_type: cql_type(spec.typ()).to_string(),
                    reason,
                })?),
            });
        }
        Ok(BoundValues { cells, ..BoundValues::default() })
    }

    /// Checks the values that are the same in every sending, before the run; `None` is not known yet.
    pub fn check(&self, values: &[Option<StatementValue>]) -> Result<(), BindError> {
        let known: Vec<StatementValue> =
            values.iter().map(|value| value.clone().unwrap_or(StatementValue::Null)).collect();
        self.bind(&known).map(drop)
    }

    fn check_count(&self, given: usize) -> Result<(), BindError> {
        let expected = self.value_count();
        if given == expected {
            return Ok(());
        }
        let names: Vec<&str> = self.value_names().collect();
        let (names, values) = (names.join(", "), if expected == 1 { "value" } else { "values" });
        let expected = match expected {
            0 => return Err(BindError::Count { expected: "no values".to_owned(), names: "no ?".to_owned(), given }),
            count => format!("{count} {values}"),
        };
        Err(BindError::Count { expected, names, given })
    }
}

impl SerializeRow for BoundValues {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter,
    ) -> Result<(), SerializationError> {
        let mut bytes = Vec::new();
        for (cell, column) in self.cells.iter().zip(context.columns()) {
            let out = writer.make_cell_writer();
            bytes.clear();
            match cell {
                Cell::Null => {
                    out.set_null();
                    continue;
                }
                Cell::Converted(value) => {
                    _ = value.serialize(column.typ(), CellWriter::new_without_size(&mut bytes))?
                }
                Cell::Generated(value) => value.write(&mut bytes),
            }
            out.set_value(&bytes).map_err(SerializationError::new)?;
            self.sent_bytes.update(|sent| sent + bytes.len() as u64);
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}
