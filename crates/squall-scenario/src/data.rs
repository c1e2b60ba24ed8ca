//! Data sources: parses CSV and JSONL bytes into rows, keeps them in one block of memory, and hands them
//! to users. Reads no file itself. `build` makes the tables, the driver's flows draw the rows.

mod resource_row;

use squall_engine::{NumberQuota, SharedCounter};
use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::template::TemplateValue;

/// One data source, read completely before the run starts.
#[derive(Debug)]
pub(crate) struct DataTable {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) order: RowOrder,
    pub(crate) per: RowLifetime,
    pub(crate) rows: usize,
    /// All cells, row by row.
    text: String,
    /// Where each cell ends in `text`.
    cell_ends: Vec<usize>,
    /// Whether JSON writes a cell without quotes. Empty if it quotes all cells.
    literals: Vec<bool>,
    /// For each column, the first line of the file that lacks it.
    pub(crate) first_missing_line: Vec<Option<usize>>,
    /// The columns that the scenario uses.
    pub(crate) used_columns: Vec<usize>,
}

/// Why a data file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataTableError {
    #[error("line {line}: a quote is opened and never closed")]
    UnclosedQuote { line: usize },
    #[error(transparent)]
    Csv(#[from] csv::Error),
    #[error("not UTF-8: {0}")]
    NotUtf8(#[from] std::str::Utf8Error),
    #[error("line {line}, column {column}: not JSON: {message}")]
    NotJson { line: usize, column: usize, message: String },
    #[error("line {line}: not a JSON object")]
    NotAnObject { line: usize },
    #[error("the column `{column}` occurs twice")]
    DuplicateColumn { column: String },
    #[error("it has no rows")]
    NoRows,
}

/// The current row of a user.
#[derive(Debug, PartialEq)]
pub(crate) enum UserRow {
    /// A row of the table.
    TableIndex(usize),
    /// Values stored with a resource that did not come from this table: one for each used column.
    ResourceValues(Box<[TemplateValue]>),
}

/// Which row a user gets next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// One after the other, and from the first again after the last. All users share the position.
    InTurn,
    Random,
    /// One after the other, each at most once in the whole run.
    Unique,
    /// User n has row n, so a user has the same row on every thread and worker.
    ByUserNumber,
    /// A resource that only one user of the run holds at a time, across all processes. `wait` is how
    /// long a user waits in the queue for one.
    Leased {
        wait: Duration,
    },
}

/// How long a user keeps a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLifetime {
    Iteration,
    /// The user keeps it until it ends.
    User,
}

impl DataTable {
    /// A cell's text, and whether JSON writes it without quotes.
    pub(crate) fn value<'r>(&'r self, row: &'r UserRow, column: usize) -> (&'r str, bool) {
        match row {
            UserRow::TableIndex(row) => self.cell(*row, column),
            UserRow::ResourceValues(values) => (&values[column].text, values[column].literal),
        }
    }

    pub(crate) fn cell(&self, row: usize, column: usize) -> (&str, bool) {
        let index = row * self.columns.len() + column;
        let begin = if index == 0 { 0 } else { self.cell_ends[index - 1] };
        (&self.text[begin..self.cell_ends[index]], self.literals.get(index).copied().unwrap_or(false))
    }

    /// Parses comma-separated values whose first line names the columns.
    pub(crate) fn csv(name: &str, bytes: &[u8]) -> Result<DataTable, DataTableError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if let Some(line) = unclosed_quote(bytes) {
            return Err(DataTableError::UnclosedQuote { line });
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(bytes);
        let headers = reader.headers()?;
        let columns: Vec<String> = headers.iter().map(str::to_owned).collect();
        let mut table = DataTable::new(name, columns)?;
        for record in reader.records() {
            let record = record?;
            record.iter().for_each(|cell| table.push(cell, None));
            table.rows += 1;
        }
        table.require_rows()
    }

    /// Parses one JSON object per line. The columns are all keys that occur.
    pub(crate) fn jsonl(name: &str, bytes: &[u8]) -> Result<DataTable, DataTableError> {
        let text = std::str::from_utf8(bytes)?;
        let mut rows = Vec::new();
        let mut columns: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let value = serde_json::from_str(line).map_err(|error: serde_json::Error| {
                // The message ends with a line number that is always 1, because each line is parsed alone.
                let message = error.to_string();
                let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
                DataTableError::NotJson { line: index + 1, column: error.column(), message: message.to_owned() }
            })?;
            let serde_json::Value::Object(row) = value else {
                return Err(DataTableError::NotAnObject { line: index + 1 });
            };
            columns.extend(row.keys().filter(|key| seen.insert((*key).clone())).cloned());
            rows.push((index + 1, row));
        }
        let mut table = DataTable::new(name, columns)?;
        for (line, row) in &rows {
            for index in 0..table.columns.len() {
                match row.get(&table.columns[index]) {
                    None => {
                        table.first_missing_line[index].get_or_insert(*line);
                        table.push("", Some(false));
                    }
                    Some(value) => {
                        let (text, literal) = json_to_cell(value);
                        table.push(&text, Some(literal));
                    }
                }
            }
        }
        table.rows = rows.len();
        table.require_rows()
    }

    /// Generates rows. `cell` gets the numbers of the row and the column.
    pub(crate) fn generate(
        name: &str,
        columns: Vec<String>,
        rows: usize,
        cell: impl Fn(usize, usize) -> String,
    ) -> Result<DataTable, DataTableError> {
        let mut table = DataTable::new(name, columns)?;
        for row in 0..rows {
            for column in 0..table.columns.len() {
                table.push(&cell(row, column), None);
            }
        }
        table.rows = rows;
        table.require_rows()
    }

    /// Gives each user the row of its number, if rows are unique and kept by the user. Used in closed
    /// models, where users are numbered from 0 and may move between workers.
    pub(crate) fn assign_rows_by_user(&mut self) {
        if self.order == RowOrder::Unique && self.per == RowLifetime::User {
            self.order = RowOrder::ByUserNumber;
        }
    }

    /// One row as a JSON object.
    pub(crate) fn row_as_json(&self, row: usize) -> String {
        let cells = self.columns.iter().enumerate().map(|(index, column)| {
            let value = match self.cell(row, index) {
                (text, true) => serde_json::from_str(text).unwrap_or(serde_json::Value::Null),
                (text, false) => serde_json::Value::from(text),
            };
            (column.clone(), value)
        });
        serde_json::Value::Object(cells.collect()).to_string()
    }

    fn new(name: &str, columns: Vec<String>) -> Result<DataTable, DataTableError> {
        if let Some(twice) = columns.iter().enumerate().find(|(i, column)| columns[..*i].contains(column)) {
            return Err(DataTableError::DuplicateColumn { column: twice.1.clone() });
        }
        Ok(DataTable {
            name: name.to_owned(),
            order: RowOrder::InTurn,
            per: RowLifetime::Iteration,
            rows: 0,
            text: String::new(),
            cell_ends: Vec::new(),
            literals: Vec::new(),
            first_missing_line: vec![None; columns.len()],
            used_columns: Vec::new(),
            columns,
        })
    }

    fn push(&mut self, cell: &str, literal: Option<bool>) {
        self.text.push_str(cell);
        self.cell_ends.push(self.text.len());
        self.literals.extend(literal);
    }

    fn require_rows(self) -> Result<DataTable, DataTableError> {
        if self.rows == 0 { Err(DataTableError::NoRows) } else { Ok(self) }
    }
}

/// A JSON value as a cell: its text, and whether JSON writes it without quotes.
fn json_to_cell(value: &serde_json::Value) -> (Cow<'_, str>, bool) {
    match value {
        serde_json::Value::String(text) => (text.into(), false),
        other => (other.to_string().into(), true),
    }
}

/// The line on which a quoted cell opens that is never closed. The CSV reader accepts such a file and
/// takes everything after the quote as one cell.
fn unclosed_quote(bytes: &[u8]) -> Option<usize> {
    #[derive(PartialEq)]
    enum QuoteState {
        CellStart,
        Unquoted,
        Quoted,
        /// After a quote inside a quoted cell: the cell's end, or the first half of an escaped quote.
        ClosingOrEscapedQuote,
    }
    let (mut at, mut line, mut opened) = (QuoteState::CellStart, 1, 1);
    for &byte in bytes {
        at = match (at, byte) {
            (QuoteState::CellStart, b'"') => {
                opened = line;
                QuoteState::Quoted
            }
            (QuoteState::Quoted, b'"') => QuoteState::ClosingOrEscapedQuote,
            (QuoteState::Quoted, _) | (QuoteState::ClosingOrEscapedQuote, b'"') => QuoteState::Quoted,
            (_, b',' | b'\n' | b'\r') => QuoteState::CellStart,
            _ => QuoteState::Unquoted,
        };
        line += usize::from(byte == b'\n');
    }
    (at == QuoteState::Quoted).then_some(opened)
}

/// Hands the rows of one data source to the users of all threads.
#[derive(Debug)]
pub(crate) struct DataFeeder {
    next: AtomicU64,
    /// The numbers of the rows that are left, where each is used at most once.
    unique_rows: NumberQuota,
}

impl DataFeeder {
    pub(crate) fn new(table: &DataTable) -> DataFeeder {
        DataFeeder { next: AtomicU64::new(0), unique_rows: NumberQuota::fixed(table.rows as u64) }
    }

    /// A feeder whose unique rows come from a counter that all processes of the run share.
    pub(crate) fn with_shared_counter(table: &DataTable) -> (DataFeeder, Option<SharedCounter>) {
        let mut feeder = DataFeeder::new(table);
        if table.order != RowOrder::Unique {
            return (feeder, None);
        }
        let (unique, refill) = NumberQuota::with_refill();
        feeder.unique_rows = unique;
        let (name, limit) = (format!("data `{}`", table.name), table.rows as u64);
        (feeder, Some(SharedCounter { name, limit, refill }))
    }

    /// The next row for `user`. `None` when no row is left.
    pub(crate) async fn next_row(&self, table: &DataTable, user: u64, rng: &mut fastrand::Rng) -> Option<usize> {
        match table.order {
            RowOrder::Random => Some(rng.usize(..table.rows)),
            RowOrder::ByUserNumber => usize::try_from(user).ok().filter(|row| *row < table.rows),
            RowOrder::Unique => {
                let row = self.unique_rows.acquire().await?;
                usize::try_from(row).ok().filter(|row| *row < table.rows)
            }
            RowOrder::InTurn | RowOrder::Leased { .. } => {
                // Relaxed: the counter publishes no other memory.
                let turn = self.next.fetch_add(1, Ordering::Relaxed);
                Some((turn % table.rows as u64) as usize)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cell_is_found_by_row_and_column() {
        let table = DataTable::csv("user", b"\xef\xbb\xbfname, password\nann,\"a,b\"\nbob,\n").unwrap();
        assert_eq!((table.columns.as_slice(), table.rows), (&["name".to_owned(), "password".to_owned()][..], 2));
        assert_eq!([table.cell(0, 0), table.cell(0, 1)], [("ann", false), ("a,b", false)]);
        assert_eq!([table.cell(1, 0), table.cell(1, 1)], [("bob", false), ("", false)]);
    }

    #[test]
    fn csv_with_unclosed_quote_is_rejected_with_its_line() {
        for (text, line) in [
            ("a,b\n1,\"x\n2,y\n", Some(2)),
            ("\"a\n1\n", Some(1)),
            ("a\n\"x\ny\"\n\"z\"\"\n", Some(4)),
            ("a,b\n\"x\ny\",\"\"\"\"\n", None),
            ("a\n5\" pipe\n", None),
        ] {
            assert_eq!(unclosed_quote(text.as_bytes()), line, "{text:?}");
            assert_eq!(DataTable::csv("d", text.as_bytes()).is_err(), line.is_some(), "{text:?}");
        }
    }

    #[test]
    fn jsonl_numbers_stay_numbers() {
        let table = DataTable::jsonl("p", b"{\"id\":7,\"name\":\"x\"}\n\n{\"id\":8,\"tags\":[1]}\n").unwrap();
        assert_eq!(table.columns, ["id", "name", "tags"]);
        assert_eq!([table.cell(0, 0), table.cell(0, 1), table.cell(0, 2)], [("7", true), ("x", false), ("", false)]);
        assert_eq!(table.cell(1, 2), ("[1]", true));
    }

    #[test]
    fn broken_data_file_error_names_the_line() {
        for (result, expected) in [
            (DataTable::csv("d", b"a,b\n1\n"), "line: 2"),
            (DataTable::csv("d", b"a,b\n"), "no rows"),
            (DataTable::csv("d", b""), "no rows"),
            (DataTable::csv("d", b"a,a\n1,2\n"), "twice"),
            (DataTable::jsonl("d", b"{}\n[1]\n"), "line 2: not a JSON object"),
            (DataTable::jsonl("d", b"{\"a\":\n"), "line 1, column 5: not JSON: EOF"),
            (DataTable::jsonl("d", b"\xff"), "UTF-8"),
        ] {
            let error = result.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    fn table(rows: usize, order: RowOrder) -> DataTable {
        let text = format!("id\n{}", (0..rows).map(|row| format!("{row}\n")).collect::<String>());
        DataTable { order, ..DataTable::csv("d", text.as_bytes()).unwrap() }
    }

    #[tokio::test]
    async fn unique_row_is_handed_out_once() {
        let table = table(10, RowOrder::Unique);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut handed_out = Vec::new();
        let feeder = DataFeeder::new(&table);
        while let Some(row) = feeder.next_row(&table, 0, &mut rng).await {
            handed_out.push(row);
        }
        handed_out.sort_unstable();
        assert_eq!(handed_out, (0..10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn unique_rows_come_from_the_shared_counter() {
        let table = table(10, RowOrder::Unique);
        let (feeder, counter) = DataFeeder::with_shared_counter(&table);
        let SharedCounter { limit, refill, .. } = counter.expect("it has to be supplied");
        assert_eq!(limit, 10);
        refill.add_block(4..6);
        refill.close();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut handed_out = Vec::new();
        for _ in 0..3 {
            handed_out.push(feeder.next_row(&table, 0, &mut rng).await);
        }
        assert_eq!(handed_out, [Some(4), Some(5), None]);
    }

    #[tokio::test]
    async fn user_row_by_number_is_the_same_on_every_feeder() {
        let mut table = DataTable { per: RowLifetime::User, ..table(3, RowOrder::Unique) };
        table.assign_rows_by_user();
        let mut rng = fastrand::Rng::with_seed(1);
        for worker in 0..2 {
            let (feeder, counter) = DataFeeder::with_shared_counter(&table);
            assert!(counter.is_none(), "rows by user number need no counter");
            for (user, expected) in [(2, Some(2)), (0, Some(0)), (2, Some(2)), (3, None)] {
                assert_eq!(feeder.next_row(&table, user, &mut rng).await, expected, "worker {worker}");
            }
        }
    }

    #[tokio::test]
    async fn rows_in_turn_restart_after_the_last() {
        let table = table(3, RowOrder::InTurn);
        let (feeder, counter) = DataFeeder::with_shared_counter(&table);
        assert!(counter.is_none(), "everybody may use them");
        let mut rng = fastrand::Rng::with_seed(1);
        for expected in [0, 1, 2, 0, 1] {
            assert_eq!(feeder.next_row(&table, 0, &mut rng).await, Some(expected));
        }
    }
}
