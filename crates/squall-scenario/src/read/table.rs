//! Typed access to one TOML table. Remembers which keys were asked for, so that whatever is left over is reported as unknown; a
//! value of the wrong type is reported and then treated as absent, so that reading goes on.

use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Given,
    error::{Place, Problems, did_you_mean},
};

pub(crate) type Node<'a, 'i> = &'a Spanned<DeValue<'i>>;

pub(crate) fn place(node: Node<'_, '_>) -> Place {
    Place::File(node.span())
}

/// A table being read.
pub(crate) struct Table<'a, 'i> {
    table: &'a DeTable<'i>,
    /// What the table is, for messages: `[load]`, `a task`.
    what: &'static str,
    span: Range<usize>,
    asked: Vec<&'static str>,
}

impl<'a, 'i> Table<'a, 'i> {
    pub(crate) fn new(table: &'a DeTable<'i>, span: Range<usize>, what: &'static str) -> Table<'a, 'i> {
        Table { table, what, span, asked: Vec::new() }
    }

    /// `node` as a table; anything else is reported.
    pub(crate) fn of(node: Node<'a, 'i>, what: &'static str, problems: &mut Problems<'_>) -> Option<Table<'a, 'i>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            wrong_type(node, what, "a table", problems);
        }
        Some(Table::new(table?, node.span(), what))
    }

    pub(crate) fn place(&self) -> Place {
        Place::File(self.span.clone())
    }

    /// The raw value of `key`, which is from now on a known key.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<Node<'a, 'i>> {
        self.asked.push(key);
        self.table.get(key)
    }

    pub(crate) fn string(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<String>> {
        let node = self.get(key)?;
        string(node, key, problems)
    }

    /// A string or a number, as text: durations, rates and counts may be written either way.
    pub(crate) fn text(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<String>> {
        let node = self.get(key)?;
        let found = text_of(node.get_ref());
        if found.is_none() {
            wrong_type(node, key, "a string or a number", problems);
        }
        Some(Given { value: found?, place: place(node) })
    }

    pub(crate) fn boolean(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<bool>> {
        let node = self.get(key)?;
        let found = node.get_ref().as_bool();
        if found.is_none() {
            wrong_type(node, key, "true or false", problems);
        }
        Some(Given { value: found?, place: place(node) })
    }

    pub(crate) fn number(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<f64>> {
        let node = self.get(key)?;
        let found = match node.get_ref() {
            value @ (DeValue::Integer(_) | DeValue::Float(_)) => text_of(value).and_then(|text| text.parse().ok()),
            _ => None,
        };
        if found.is_none() {
            wrong_type(node, key, "a number", problems);
        }
        Some(Given { value: found?, place: place(node) })
    }

    pub(crate) fn unsigned(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<u64>> {
        let node = self.get(key)?;
        let found = integer_of(node.get_ref()).and_then(|number| u64::try_from(number).ok());
        if found.is_none() {
            wrong_type(node, key, "a whole number of 0 or more", problems);
        }
        Some(Given { value: found?, place: place(node) })
    }

    /// `"1s"`, `1` or `["1s", "3s"]`, the last as `1s..3s`.
    pub(crate) fn span_of_time(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Option<Given<String>> {
        let node = self.get(key)?;
        let found = match node.get_ref() {
            DeValue::Array(items) if items.len() == 2 => {
                let ends: Option<Vec<String>> = items.iter().map(|item| text_of(item.get_ref())).collect();
                ends.map(|ends| ends.join(".."))
            }
            value => text_of(value),
        };
        if found.is_none() {
            wrong_type(node, key, "a duration like \"1s\", or two: [\"1s\", \"3s\"]", problems);
        }
        Some(Given { value: found?, place: place(node) })
    }

    /// A table of texts in the order in which they were written.
    pub(crate) fn texts(
        &mut self,
        key: &'static str,
        problems: &mut Problems<'_>,
    ) -> Vec<(Given<String>, Given<String>)> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let Some(table) = node.get_ref().as_table() else {
            wrong_type(node, key, "a table of names and values", problems);
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, value) in in_order(table) {
            match text_of(value.get_ref()) {
                Some(text) => pairs.push((key_of(name), Given { value: text, place: place(value) })),
                None => wrong_type(value, name.get_ref(), "a string, a number or true/false", problems),
            }
        }
        pairs
    }

    /// A string, or an array of strings.
    pub(crate) fn strings(&mut self, key: &'static str, problems: &mut Problems<'_>) -> Vec<Given<String>> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match node.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| string(item, key, problems)).collect(),
            _ => string(node, key, problems).into_iter().collect(),
        }
    }

    /// The tables of an array of tables.
    pub(crate) fn tables(
        &mut self,
        key: &'static str,
        what: &'static str,
        problems: &mut Problems<'_>,
    ) -> Vec<Table<'a, 'i>> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match node.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| Table::of(item, what, problems)).collect(),
            DeValue::Table(table) => {
                problems.hint(&place(node), format!("`{key}` is a list of tables"), format!("write [[{key}]]"));
                vec![Table::new(table, node.span(), what)]
            }
            _ => {
                wrong_type(node, key, "a list of tables", problems);
                Vec::new()
            }
        }
    }

    /// Reports every key that nobody asked for.
    pub(crate) fn finish(self, problems: &mut Problems<'_>) {
        for (key, _) in in_order(self.table) {
            let name = key.get_ref().as_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let hint = match did_you_mean(name, self.asked.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => {
                    let mut known = self.asked.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("there are {}", known.join(", "))
                }
            };
            problems.hint(&Place::File(key.span()), format!("unknown key `{name}` in {}", self.what), hint);
        }
    }
}

pub(crate) fn wrong_type(node: Node<'_, '_>, key: &str, wanted: &str, problems: &mut Problems<'_>) {
    let found = node.get_ref().type_str();
    let hint = match (wanted, node.get_ref()) {
        ("a string", DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => "put it in quotes",
        ("a string", _) => "write it as \"text\"",
        (_, DeValue::String(_)) => "write it without quotes",
        _ => "docs/scenarios.md has an example of each key",
    };
    problems.hint(&place(node), format!("`{key}` must be {wanted}, not {} {found}", article(found)), hint);
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn string(node: Node<'_, '_>, key: &str, problems: &mut Problems<'_>) -> Option<Given<String>> {
    let found = node.get_ref().as_str();
    if found.is_none() {
        wrong_type(node, key, "a string", problems);
    }
    Some(Given { value: found?.to_owned(), place: place(node) })
}

/// The entries of a table as they stand in the file; the parser itself sorts them by name.
pub(crate) fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> impl Iterator<Item = (&'a Spanned<std::borrow::Cow<'i, str>>, Node<'a, 'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}

pub(crate) fn key_of(key: &Spanned<std::borrow::Cow<'_, str>>) -> Given<String> {
    Given { value: key.get_ref().to_string(), place: Place::File(key.span()) }
}

/// A scalar as text, numbers in plain decimal.
pub(crate) fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(_) => integer_of(value).map(|number| number.to_string()),
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok().map(|number: f64| number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

pub(crate) fn integer_of(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    let digits = integer.as_str().replace('_', "");
    i64::from_str_radix(&digits, integer.radix()).ok()
}
