//! Resources: rows that users hold one at a time, from a file or counted. Checks them; the run lends them.

use std::time::Duration;

use super::{Builder, value};
use crate::{
    Given,
    data::{DataTable, Order, Per},
    read::RawResource,
    template::{AstKind, Piece, parse},
};

/// More would fill the store with what nobody needs.
const MOST: u64 = 100_000;
/// Of all of them together.
const LARGEST: usize = 32 << 20;

/// The name under which a counted thing knows its number.
const NUMBER: &str = "n";

impl Builder<'_, '_> {
    pub(super) fn resource(&mut self, raw: &RawResource) -> Option<DataTable> {
        let wait = raw.wait.as_ref().map(|given| value::duration(given, self.problems));
        let Some(name) = &raw.name else {
            self.problems.hint(
                &raw.place,
                "a resource needs a name",
                "add name = \"users\" and use {{ users.column }}",
            );
            return None;
        };
        self.new_name(name, "a resource");
        let table = match (&raw.file, &raw.count) {
            (Some(file), None) => {
                if let Some((field, _)) = raw.fields.first() {
                    self.problems.hint(
                        &field.place,
                        "a file has its own fields",
                        "leave `fields` out, or give a count",
                    );
                }
                self.rows(&name.value, file)
            }
            (None, Some(count)) => self.counted(name, count, raw),
            (None, None) => {
                let hint = "add file = \"users.csv\", or count = 100 and fields = { name = \"user-{{ n }}\" }";
                self.problems.hint(&raw.place, "a resource needs a file or a count", hint);
                None
            }
            (Some(_), Some(count)) => {
                self.problems.add(&count.place, "a resource has a file or a count, not both");
                None
            }
        };
        let order = Order::Held { wait: wait.unwrap_or(Some(Duration::ZERO))? };
        table.map(|mut table| {
            (table.order, table.per) = (order, Per::User);
            table
        })
    }

    fn counted(&mut self, name: &Given<String>, count: &Given<u64>, raw: &RawResource) -> Option<DataTable> {
        if !(1..=MOST).contains(&count.value) {
            self.problems.add(&count.place, format!("`count` is from 1 to {MOST}"));
            return None;
        }
        if raw.fields.is_empty() {
            let hint = "add fields = { name = \"user-{{ n }}\" }";
            self.problems.hint(&raw.place, "counted resources need fields", hint);
            return None;
        }
        let each: usize = raw.fields.iter().map(|(column, text)| column.value.len() + text.value.len()).sum();
        if each.saturating_mul(usize::try_from(count.value).unwrap_or(usize::MAX)) > LARGEST {
            self.problems.add(&count.place, format!("so many with such fields are more than {} MiB", LARGEST >> 20));
            return None;
        }
        let columns = raw.fields.iter().map(|(column, _)| column.value.clone()).collect();
        let texts: Vec<Vec<Option<String>>> = raw.fields.iter().map(|(_, text)| self.numbered(text)).collect();
        let cell = |row: usize, column: usize| {
            texts[column].iter().map(|piece| piece.clone().unwrap_or_else(|| row.to_string())).collect()
        };
        let made = DataTable::made(&name.value, columns, usize::try_from(count.value).ok()?, cell);
        made.map_err(|error| self.problems.add(&raw.place, error)).ok()
    }

    /// The pieces of a text; `None` stands for the number.
    fn numbered(&mut self, text: &Given<String>) -> Vec<Option<String>> {
        let mut pieces = Vec::new();
        for piece in parse(&text.value) {
            match piece {
                Ok(Piece::Text(text)) => pieces.push(Some(text)),
                Ok(Piece::Expr(ast)) if ast.kind == AstKind::Name(NUMBER.to_owned()) => pieces.push(None),
                Ok(Piece::Expr(ast)) => {
                    let place = self.narrow(text, &ast.at);
                    self.problems.hint(&place, "only the thing's number is known here", "write {{ n }}");
                }
                Err(error) => {
                    let place = self.narrow(text, &error.at);
                    self.problems.hint(&place, format!("bad template: {error}"), "write {{ n }}");
                }
            }
        }
        pieces
    }
}
