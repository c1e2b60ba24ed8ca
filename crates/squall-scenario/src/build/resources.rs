//! Builds resources: rows from a file or numbered rows, each leased to one user at a time. Users acquire
//! them during the run.

use std::time::Duration;

use super::{ScenarioBuilder, value};
use crate::{
    Sourced,
    data::{DataTable, RowLifetime, RowOrder},
    read::RawResource,
    template::{ParsedExprKind, ParsedPart, parse},
};

/// Limits the size of a pool in the store.
const MAX_RESOURCES: u64 = 100_000;
/// Limits the size of all resources of a pool together.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// The variable that is a numbered resource's number.
const NUMBER_VARIABLE: &str = "n";

impl ScenarioBuilder<'_, '_> {
    pub(super) fn resource(&mut self, raw: &RawResource) -> Option<DataTable> {
        let wait = raw.wait.as_ref().map(|given| value::duration(given, self.problems));
        let Some(name) = &raw.name else {
            self.problems.add_with_hint(
                &raw.location,
                "a resource needs a name",
                "add name = \"users\" and use {{ users.column }}",
            );
            return None;
        };
        self.check_new_name(name, "a resource");
        let table = match (&raw.file, &raw.count) {
            (Some(file), None) => {
                if let Some((field, _)) = raw.fields.first() {
                    self.problems.add_with_hint(
                        &field.location,
                        "a file has its own fields",
                        "leave `fields` out, or give a count",
                    );
                }
                self.read_rows(&name.value, file)
            }
            (None, Some(count)) => self.counted_resource(name, count, raw),
            (None, None) => {
                let hint = "add file = \"users.csv\", or count = 100 and fields = { name = \"user-{{ n }}\" }";
                self.problems.add_with_hint(&raw.location, "a resource needs a file or a count", hint);
                None
            }
            (Some(_), Some(count)) => {
                self.problems.add(&count.location, "a resource has a file or a count, not both");
                None
            }
        };
        let order = RowOrder::Leased { wait: wait.unwrap_or(Some(Duration::ZERO))? };
        table.map(|mut table| {
            (table.order, table.per) = (order, RowLifetime::User);
            table
        })
    }

    fn counted_resource(
        &mut self,
        name: &Sourced<String>,
        count: &Sourced<u64>,
        raw: &RawResource,
    ) -> Option<DataTable> {
        if !(1..=MAX_RESOURCES).contains(&count.value) {
            self.problems.add(&count.location, format!("`count` is from 1 to {MAX_RESOURCES}"));
            return None;
        }
        if raw.fields.is_empty() {
            let hint = "add fields = { name = \"user-{{ n }}\" }";
            self.problems.add_with_hint(&raw.location, "counted resources need fields", hint);
            return None;
        }
        let each: usize = raw.fields.iter().map(|(column, text)| column.value.len() + text.value.len()).sum();
        if each.saturating_mul(usize::try_from(count.value).unwrap_or(usize::MAX)) > MAX_TOTAL_BYTES {
            self.problems.add(
                &count.location,
                format!("`count` times the size of `fields` is more than {} MiB", MAX_TOTAL_BYTES >> 20),
            );
            return None;
        }
        let columns = raw.fields.iter().map(|(column, _)| column.value.clone()).collect();
        let texts: Vec<Vec<Option<String>>> = raw.fields.iter().map(|(_, text)| self.number_template(text)).collect();
        let cell = |row: usize, column: usize| {
            texts[column].iter().map(|piece| piece.clone().unwrap_or_else(|| row.to_string())).collect()
        };
        let made = DataTable::generate(&name.value, columns, usize::try_from(count.value).ok()?, cell);
        made.map_err(|error| self.problems.add(&raw.location, error.to_string())).ok()
    }

    /// The parts of a text. `None` is the resource's number.
    fn number_template(&mut self, text: &Sourced<String>) -> Vec<Option<String>> {
        let mut pieces = Vec::new();
        for piece in parse(&text.value) {
            match piece {
                Ok(ParsedPart::Text(text)) => pieces.push(Some(text)),
                Ok(ParsedPart::Expr(parsed)) if parsed.kind == ParsedExprKind::Name(NUMBER_VARIABLE.to_owned()) => {
                    pieces.push(None)
                }
                Ok(ParsedPart::Expr(parsed)) => {
                    let location = self.locate_within(text, &parsed.span);
                    self.problems.add_with_hint(
                        &location,
                        "only the resource's number can be used here",
                        "write {{ n }}",
                    );
                }
                Err(error) => {
                    let location = self.locate_within(text, &error.span);
                    self.problems.add_with_hint(&location, format!("bad template: {error}"), "write {{ n }}");
                }
            }
        }
        pieces
    }
}
