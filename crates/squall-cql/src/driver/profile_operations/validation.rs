//! The operation `validate` of a profile: reads a partition, or a range of its clustering columns, and
//! compares every row with the generated one.

use super::{
    Preparation, each_page,
    table::{ProfileTable, key_text},
};
use crate::{
    CqlType, CqlValue, RowValidation,
    cql_text::{quoted_name, quoted_table},
    database::OperationError,
    driver::{
        OperationAnswer, OperationCounts, StatementError, different, row_values::RowValues, seed_source::UserSeeds,
        unreadable,
    },
};
use scylla::{client::session::Session, deserialize::row::ColumnIterator, statement::prepared::PreparedStatement};
use std::{cmp::Ordering, rc::Rc};

pub(in crate::driver) struct Validation {
    table: Rc<ProfileTable>,
    /// The whole partition first, then ranges.
    statements: Vec<(RowRange, PreparedStatement)>,
    compare: bool,
    /// Accepts columns without a value, because inserts leave some out.
    values_may_be_null: bool,
}

/// Rows between two rows, compared by their first clustering columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowRange {
    /// 0 is the whole partition.
    depth: usize,
    with_lower: bool,
    with_upper: bool,
}

/// What one operation asks for and expects.
pub(in crate::driver) struct ValidationWork {
    statement: usize,
    pub(super) values: RowValues,
    pub(super) key: String,
    /// In the order of the database.
    expected: Vec<ExpectedRow>,
}

struct ExpectedRow {
    /// Of all columns.
    values: Vec<CqlValue>,
    /// Whether cassandra-stress writes it, too.
    of_cassandra_stress: bool,
}

/// A set of rows that the database may have: all of a partition, or those that cassandra-stress writes.
struct PossibleRows<'w> {
    rows: Box<dyn Iterator<Item = &'w ExpectedRow> + 'w>,
    /// How the result differs.
    difference: Option<OperationError>,
}

impl Validation {
    pub(super) async fn prepare(preparation: Preparation<'_>) -> Result<Validation, StatementError> {
        let table = preparation.table.clone();
        let mut statements = Vec::new();
        for range in RowRange::all(table.description.columns.clustering.len()) {
            statements.push((range, preparation.statement(table.validation_statement(range)).await?));
        }
        let settings = preparation.settings;
        let population = settings.insert.row_population.as_ref().unwrap_or(&table.profile.insert.row_population);
        Ok(Validation {
            statements,
            compare: settings.errors.validation == RowValidation::Compare,
            values_may_be_null: population.min() < 1.0,
            table,
        })
    }

    /// Chooses a partition and a range; `None` ends the run.
    pub(in crate::driver) fn begin(&self, seeds: &mut UserSeeds) -> Option<ValidationWork> {
        let partition = self.table.partition(seeds.take(false)?.seed);
        let statement = fastrand::usize(..self.statements.len());
        let range = self.statements[statement].0;
        let random_row = || partition.clustering(fastrand::usize(..partition.row_count()));
        let (mut lower, mut upper) = (random_row(), random_row());
        if compare_rows(&lower, &upper, range.depth, &[]).is_gt() {
            std::mem::swap(&mut lower, &mut upper);
        }
        let mut rows: Vec<(usize, Vec<CqlValue>)> =
            (0..partition.row_count()).map(|number| (number, partition.clustering(number))).collect();
        rows.retain(|(_, row)| range.contains(row, &lower, &upper));
        let descending = &self.table.description.descending;
        rows.sort_by(|(_, a), (_, b)| compare_rows(a, b, a.len(), descending));
        let mut generator = self.table.generator.borrow_mut();
        let of_cassandra_stress = generator.rows_of_cassandra_stress(&partition);
        let expected = rows.into_iter().map(|(number, clustering)| {
            let values = generator.row(&partition, number).values;
            ExpectedRow {
                values: partition.key.iter().cloned().chain(clustering).chain(values).collect(),
                of_cassandra_stress: number < of_cassandra_stress,
            }
        });
        let expected = expected.collect();
        let bounds = lower.into_iter().take(range.depth).chain(upper.into_iter().take(range.depth));
        let values = RowValues(partition.key.iter().cloned().chain(bounds).map(Some).collect());
        Some(ValidationWork { statement, values, key: key_text(&partition.key), expected })
    }

    pub(super) async fn send(
        &self,
        session: &Session,
        work: &ValidationWork,
    ) -> Result<OperationAnswer, OperationError> {
        let (mut possible, mut rows, mut bytes) = (PossibleRows::of(&work.expected), 0, 0);
        let statement = self.statement(work);
        let check = |result: scylla::response::query_result::QueryResult| {
            let page = result.into_rows_result().map_err(unreadable)?;
            rows += page.rows_num() as u64;
            bytes += page.rows_bytes_size() as u64;
            if self.compare {
                for row in page.rows::<ColumnIterator<'_, '_>>().map_err(unreadable)? {
                    self.check_row(row.map_err(unreadable)?, &mut possible)?;
                }
            }
            Ok(())
        };
        each_page(session, statement, &work.values, check).await?;
        if self.compare {
            possible.iter_mut().for_each(|possible| possible.check_end(work.expected.len()));
            one_is_equal(&mut possible)?;
        }
        Ok(OperationAnswer { counts: OperationCounts { partitions: rows.min(1), rows }, bytes })
    }

    pub(super) fn statement(&self, work: &ValidationWork) -> &PreparedStatement {
        &self.statements[work.statement].1
    }

    /// Compares the next row with each set of possible rows that equals the result so far.
    fn check_row(&self, row: ColumnIterator<'_, '_>, possible: &mut [PossibleRows<'_>]) -> Result<(), OperationError> {
        let cells = row.map(|cell| cell.map(|cell| cell.slice.map(|slice| slice.as_slice())));
        let cells: Vec<Option<&[u8]>> = cells.collect::<Result<_, _>>().map_err(unreadable)?;
        for possible in possible.iter_mut().filter(|possible| possible.difference.is_none()) {
            possible.difference = match possible.rows.next() {
                None => Some(different("the partition has more rows than were generated".into())),
                Some(expected) => self.difference(&cells, &expected.values),
            };
        }
        one_is_equal(possible)
    }

    fn difference(&self, cells: &[Option<&[u8]>], expected: &[CqlValue]) -> Option<OperationError> {
        let keys = expected.len() - self.table.description.columns.values.len();
        let mut pairs = cells.iter().zip(self.table.columns().zip(expected)).enumerate();
        let differing = pairs.find(|(position, (cell, (column, expected)))| match cell {
            // All rows of a partition have one value, which the last one wrote.
            _ if self.table.description.statics.contains(&column.name) => false,
            Some(bytes) => *bytes != expected.to_bytes(),
            None => *position < keys || !(self.values_may_be_null || is_stored_as_null(&column.cql_type, expected)),
        });
        differing.map(|(_, (_, (column, _)))| different(format!("{} has another value", column.name)))
    }
}

impl<'w> PossibleRows<'w> {
    /// All rows first, because its differences are reported.
    fn of(expected: &'w [ExpectedRow]) -> Vec<PossibleRows<'w>> {
        let set = |rows| PossibleRows { rows, difference: None };
        let mut possible = vec![set(Box::new(expected.iter()) as Box<dyn Iterator<Item = _>>)];
        if expected.iter().any(|row| !row.of_cassandra_stress) {
            possible.push(set(Box::new(expected.iter().filter(|row| row.of_cassandra_stress))));
        }
        possible
    }

    /// Notes rows that the result does not have.
    fn check_end(&mut self, expected: usize) {
        let missing = self.rows.by_ref().count();
        if missing > 0 && self.difference.is_none() {
            let message = format!("{missing} of {expected} rows are missing");
            self.difference = Some(OperationError::invalid("MISSING_ROW", message));
        }
    }
}

/// Fails with the first difference if the result equals none of the possible sets.
fn one_is_equal(possible: &mut [PossibleRows<'_>]) -> Result<(), OperationError> {
    match possible.iter().all(|possible| possible.difference.is_some()) {
        true => possible.iter_mut().find_map(|possible| possible.difference.take()).map_or(Ok(()), Err),
        false => Ok(()),
    }
}

/// The database stores no empty collection, unless it is frozen.
fn is_stored_as_null(cql_type: &CqlType, value: &CqlValue) -> bool {
    let (CqlType::List { frozen: false, .. } | CqlType::Set { frozen: false, .. }) = cql_type else { return false };
    matches!(value, CqlValue::List(elements) | CqlValue::Set(elements) if elements.is_empty())
}

/// Compares the first `depth` clustering columns.
fn compare_rows(a: &[CqlValue], b: &[CqlValue], depth: usize, descending: &[bool]) -> Ordering {
    let orders = a.iter().zip(b).take(depth).enumerate().map(|(column, (a, b))| {
        let order = a.order(b);
        if descending.get(column) == Some(&true) { order.reverse() } else { order }
    });
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

impl RowRange {
    /// The whole partition, a closed range of each prefix, and all kinds of ranges of whole rows.
    fn all(depth: usize) -> Vec<RowRange> {
        let range = |depth, with_lower, with_upper| RowRange { depth, with_lower, with_upper };
        let mut ranges = vec![range(0, true, true)];
        ranges.extend((1..=depth).map(|depth| range(depth, true, true)));
        if depth > 0 {
            ranges.extend([(false, true), (true, false), (false, false)].map(|(l, u)| range(depth, l, u)));
        }
        ranges
    }

    fn contains(self, row: &[CqlValue], lower: &[CqlValue], upper: &[CqlValue]) -> bool {
        let (from_lower, from_upper) =
            (compare_rows(row, lower, self.depth, &[]), compare_rows(row, upper, self.depth, &[]));
        let above = from_lower.is_gt() || (self.with_lower && from_lower.is_eq());
        self.depth == 0 || (above && (from_upper.is_lt() || (self.with_upper && from_upper.is_eq())))
    }
}

impl ProfileTable {
    fn validation_statement(&self, range: RowRange) -> String {
        let names = |columns: &mut dyn Iterator<Item = &crate::TableColumn>| {
            columns.map(|column| quoted_name(&column.name)).collect::<Vec<_>>()
        };
        let all = names(&mut self.columns()).join(", ");
        let columns = &self.description.columns;
        let mut conditions: Vec<String> =
            names(&mut columns.partition_key.iter()).iter().map(|name| format!("{name} = ?")).collect();
        if range.depth > 0 {
            let prefix = names(&mut columns.clustering.iter().take(range.depth)).join(", ");
            let marks = vec!["?"; range.depth].join(", ");
            let (lower, upper) = (if range.with_lower { ">=" } else { ">" }, if range.with_upper { "<=" } else { "<" });
            conditions.push(format!("({prefix}) {lower} ({marks})"));
            conditions.push(format!("({prefix}) {upper} ({marks})"));
        }
        let table = quoted_table(&self.description.keyspace, &self.description.table);
        format!("SELECT {all} FROM {table} WHERE {}", conditions.join(" AND "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_the_rows_between_two_rows() {
        let row = |values: &[i32]| values.iter().map(|value| CqlValue::Int(*value)).collect::<Vec<_>>();
        let (lower, upper) = (row(&[1, 5]), row(&[2, 3]));
        let inside = |range: RowRange| -> Vec<(i32, i32)> {
            let rows = (1..=2).flat_map(|a| [3, 5].map(|b| (a, b)));
            rows.filter(|(a, b)| range.contains(&row(&[*a, *b]), &lower, &upper)).collect()
        };
        let ranges = RowRange::all(2);
        assert_eq!(ranges.len(), 6);
        assert_eq!(inside(ranges[0]).len(), 4);
        assert_eq!(inside(ranges[1]).len(), 4, "whole values of the first column");
        assert_eq!(inside(ranges[2]), [(1, 5), (2, 3)]);
        assert_eq!(inside(ranges[3]), [(2, 3)], "without the lower row");
        assert_eq!(inside(ranges[4]), [(1, 5)], "without the upper row");
        assert_eq!(inside(ranges[5]), []);
    }
}
