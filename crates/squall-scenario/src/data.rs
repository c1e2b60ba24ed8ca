//! Rows from CSV and JSONL files, kept in one piece of memory, and the dealing of them to users. Reads no file itself.

mod resource_row;

use squall_engine::{NumberQuota, SharedCounter};
use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::template::TemplateValue;

/// One data source, read completely before the run.
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
    /// Which cells JSON writes without quotes; empty if none is.
    literals: Vec<bool>,
    /// For each column the first line of the file that does not have it.
    pub(crate) first_missing_line: Vec<Option<usize>>,
    /// The columns that the scenario uses.
    pub(crate) used_columns: Vec<usize>,
}

/// A row in a user's hand.
#[derive(Debug, PartialEq)]
pub(crate) enum UserRow {
    /// Of the table.
    TableIndex(usize),
    /// Of a thing that somebody else has put into the pool: a value for each column that is used.
    ResourceValues(Box<[TemplateValue]>),
}

/// Which row comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// One after the other, from the beginning again after the last; all users share the count.
    InTurn,
    Random,
    /// One after the other, each only once in the whole run.
    Unique,
    /// Row n is user n's. Nobody draws it, so a user finds it again on another thread or worker.
    ByUserNumber,
    /// A resource: one that no other user of the run holds, however many processes make it. `wait`: for how long one that asks
    /// stands in the queue.
    Leased {
        wait: Duration,
    },
}

/// How long a user keeps a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLifetime {
    Iteration,
    /// For as long as it lives.
    User,
}

impl DataTable {
    /// A text, and whether JSON writes it without quotes.
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

    /// Reads comma-separated values whose first line names the columns.
    pub(crate) fn csv(name: &str, bytes: &[u8]) -> Result<DataTable, String> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if let Some(line) = unclosed_quote(bytes) {
            return Err(format!("line {line}: a quote is opened and never closed"));
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(bytes);
        let headers = reader.headers().map_err(|error| error.to_string())?;
        let columns: Vec<String> = headers.iter().map(str::to_owned).collect();
        let mut table = DataTable::new(name, columns)?;
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            record.iter().for_each(|cell| table.push(cell, None));
            table.rows += 1;
        }
        table.require_rows()
    }

    /// Reads one JSON object per line; columns are all names that occur.
    pub(crate) fn jsonl(name: &str, bytes: &[u8]) -> Result<DataTable, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
        let mut rows = Vec::new();
        let mut columns: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let value = serde_json::from_str(line).map_err(|error: serde_json::Error| {
                // Its own line number is always 1.
                let said = error.to_string();
                let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
                format!("line {}, column {}: not JSON: {said}", index + 1, error.column())
            })?;
            let serde_json::Value::Object(row) = value else {
                return Err(format!("line {}: not a JSON object", index + 1));
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

    /// Rows that are made: `cell` gets the row's number and the column's.
    pub(crate) fn generate(
        name: &str,
        columns: Vec<String>,
        rows: usize,
        cell: impl Fn(usize, usize) -> String,
    ) -> Result<DataTable, String> {
        let mut table = DataTable::new(name, columns)?;
        for row in 0..rows {
            for column in 0..table.columns.len() {
                table.push(&cell(row, column), None);
            }
        }
        table.rows = rows;
        table.require_rows()
    }

    /// Where users are numbered from 0 upwards and may go from one worker to another, a unique row for each is that of its number.
    pub(crate) fn assign_rows_by_user(&mut self) {
        if self.order == RowOrder::Unique && self.per == RowLifetime::User {
            self.order = RowOrder::ByUserNumber;
        }
    }

    /// A row as a JSON object.
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

    fn new(name: &str, columns: Vec<String>) -> Result<DataTable, String> {
        if let Some(twice) = columns.iter().enumerate().find(|(i, column)| columns[..*i].contains(column)) {
            return Err(format!("the column `{}` occurs twice", twice.1));
        }
        let (text, ends, literals) = (String::new(), Vec::new(), Vec::new());
        let (order, per) = (RowOrder::InTurn, RowLifetime::Iteration);
        let missing = vec![None; columns.len()];
        let (name, used) = (name.to_owned(), Vec::new());
        Ok(DataTable {
            name,
            columns,
            order,
            per,
            rows: 0,
            text,
            cell_ends: ends,
            literals,
            first_missing_line: missing,
            used_columns: used,
        })
    }

    fn push(&mut self, cell: &str, literal: Option<bool>) {
        self.text.push_str(cell);
        self.cell_ends.push(self.text.len());
        self.literals.extend(literal);
    }

    fn require_rows(self) -> Result<DataTable, String> {
        if self.rows == 0 { Err("it has no rows".to_owned()) } else { Ok(self) }
    }
}

/// A value of a JSON object as a cell: its text, and whether JSON writes it without quotes.
fn json_to_cell(value: &serde_json::Value) -> (Cow<'_, str>, bool) {
    match value {
        serde_json::Value::String(text) => (text.into(), false),
        other => (other.to_string().into(), true),
    }
}

/// The line where a quoted cell begins that the end of the file cuts off. The reader takes such a file without a word, and all that
/// follows the quote as one cell.
fn unclosed_quote(bytes: &[u8]) -> Option<usize> {
    #[derive(PartialEq)]
    enum QuoteState {
        CellStart,
        Unquoted,
        Quoted,
        /// After a quote inside a quoted cell: its end, or the first half of a quote that is meant.
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

/// Deals the rows of one source to all users of all threads.
#[derive(Debug)]
pub(crate) struct DataFeeder {
    next: AtomicU64,
    /// One for each row, of rows that are used once.
    unique_rows: NumberQuota,
}

impl DataFeeder {
    pub(crate) fn new(table: &DataTable) -> DataFeeder {
        DataFeeder { next: AtomicU64::new(0), unique_rows: NumberQuota::fixed(table.rows as u64) }
    }

    /// The same where others deal the same rows: those that are used once have to be supplied.
    pub(crate) fn with_shared_counter(table: &DataTable) -> (DataFeeder, Option<SharedCounter>) {
        let mut dealer = DataFeeder::new(table);
        if table.order != RowOrder::Unique {
            return (dealer, None);
        }
        let (unique, supply) = NumberQuota::with_refill();
        dealer.unique_rows = unique;
        let (name, limit) = (format!("data `{}`", table.name), table.rows as u64);
        (dealer, Some(SharedCounter { name, limit, refill: supply }))
    }

    /// The next row for `user`, or `None` when a unique source has no more.
    pub(crate) async fn next_row(&self, table: &DataTable, user: u64, rng: &mut fastrand::Rng) -> Option<usize> {
        match table.order {
            RowOrder::Random => Some(rng.usize(..table.rows)),
            RowOrder::ByUserNumber => usize::try_from(user).ok().filter(|row| *row < table.rows),
            RowOrder::Unique => {
                let row = self.unique_rows.acquire().await?;
                usize::try_from(row).ok().filter(|row| *row < table.rows)
            }
            RowOrder::InTurn | RowOrder::Leased { .. } => {
                // A counter and nothing else: no other memory is published by it.
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
    fn csv_cells_are_found_by_row_and_column() {
        let table = DataTable::csv("user", b"\xef\xbb\xbfname, password\nann,\"a,b\"\nbob,\n").unwrap();
        assert_eq!((table.columns.as_slice(), table.rows), (&["name".to_owned(), "password".to_owned()][..], 2));
        assert_eq!([table.cell(0, 0), table.cell(0, 1)], [("ann", false), ("a,b", false)]);
        assert_eq!([table.cell(1, 0), table.cell(1, 1)], [("bob", false), ("", false)]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_not_a_cell() {
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
    fn jsonl_keeps_what_is_a_number() {
        let table = DataTable::jsonl("p", b"{\"id\":7,\"name\":\"x\"}\n\n{\"id\":8,\"tags\":[1]}\n").unwrap();
        assert_eq!(table.columns, ["id", "name", "tags"]);
        assert_eq!([table.cell(0, 0), table.cell(0, 1), table.cell(0, 2)], [("7", true), ("x", false), ("", false)]);
        assert_eq!(table.cell(1, 2), ("[1]", true));
    }

    #[test]
    fn broken_files_say_where() {
        for (result, expected) in [
            (DataTable::csv("d", b"a,b\n1\n"), "line: 2"),
            (DataTable::csv("d", b"a,b\n"), "no rows"),
            (DataTable::csv("d", b""), "no rows"),
            (DataTable::csv("d", b"a,a\n1,2\n"), "twice"),
            (DataTable::jsonl("d", b"{}\n[1]\n"), "line 2: not a JSON object"),
            (DataTable::jsonl("d", b"{\"a\":\n"), "line 1, column 5: not JSON: EOF"),
            (DataTable::jsonl("d", b"\xff"), "UTF-8"),
        ] {
            let error = result.expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    fn table(rows: usize, order: RowOrder) -> DataTable {
        let text = format!("id\n{}", (0..rows).map(|row| format!("{row}\n")).collect::<String>());
        DataTable { order, ..DataTable::csv("d", text.as_bytes()).unwrap() }
    }

    #[tokio::test]
    async fn unique_rows_are_each_dealt_once() {
        let table = table(10, RowOrder::Unique);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut dealt = Vec::new();
        let dealer = DataFeeder::new(&table);
        while let Some(row) = dealer.next_row(&table, 0, &mut rng).await {
            dealt.push(row);
        }
        dealt.sort_unstable();
        assert_eq!(dealt, (0..10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn unique_rows_are_those_that_were_supplied() {
        let table = table(10, RowOrder::Unique);
        let (dealer, ration) = DataFeeder::with_shared_counter(&table);
        let SharedCounter { limit, refill, .. } = ration.expect("it has to be supplied");
        assert_eq!(limit, 10);
        refill.add_block(4..6);
        refill.close();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut dealt = Vec::new();
        for _ in 0..3 {
            dealt.push(dealer.next_row(&table, 0, &mut rng).await);
        }
        assert_eq!(dealt, [Some(4), Some(5), None]);
    }

    #[tokio::test]
    async fn a_users_own_row_is_the_same_wherever_the_user_is() {
        let mut table = DataTable { per: RowLifetime::User, ..table(3, RowOrder::Unique) };
        table.assign_rows_by_user();
        let mut rng = fastrand::Rng::with_seed(1);
        for worker in 0..2 {
            let (dealer, ration) = DataFeeder::with_shared_counter(&table);
            assert!(ration.is_none(), "nobody has to draw them");
            for (user, expected) in [(2, Some(2)), (0, Some(0)), (2, Some(2)), (3, None)] {
                assert_eq!(dealer.next_row(&table, user, &mut rng).await, expected, "worker {worker}");
            }
        }
    }

    #[tokio::test]
    async fn rows_in_turn_begin_again() {
        let table = table(3, RowOrder::InTurn);
        let (dealer, ration) = DataFeeder::with_shared_counter(&table);
        assert!(ration.is_none(), "everybody may use them");
        let mut rng = fastrand::Rng::with_seed(1);
        for expected in [0, 1, 2, 0, 1] {
            assert_eq!(dealer.next_row(&table, 0, &mut rng).await, Some(expected));
        }
    }
}
