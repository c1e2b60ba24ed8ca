//! Typed access to one TOML table. It remembers the keys that were read and reports all others as
//! unknown. A value of the wrong type is reported and then treated as absent, so that reading continues.

use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Sourced,
    error::{ProblemList, SourceLocation, did_you_mean},
};

pub(crate) type TomlNode<'a, 'i> = &'a Spanned<DeValue<'i>>;

pub(crate) fn node_location(node: TomlNode<'_, '_>) -> SourceLocation {
    SourceLocation::File(node.span())
}

/// A table being read.
pub(crate) struct TomlTable<'a, 'i> {
    table: &'a DeTable<'i>,
    /// What the table is, for messages: `[load]`, `a task`.
    description: &'static str,
    span: Range<usize>,
    known_keys: Vec<&'static str>,
}

impl<'a, 'i> TomlTable<'a, 'i> {
    pub(crate) fn new(table: &'a DeTable<'i>, span: Range<usize>, what: &'static str) -> TomlTable<'a, 'i> {
        TomlTable { table, description: what, span, known_keys: Vec::new() }
    }

    /// `node` as a table. Reports a node of another type.
    pub(crate) fn from_node(
        node: TomlNode<'a, 'i>,
        what: &'static str,
        problems: &mut ProblemList<'_>,
    ) -> Option<TomlTable<'a, 'i>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            report_wrong_type(node, what, "a table", problems);
        }
        Some(TomlTable::new(table?, node.span(), what))
    }

    pub(crate) fn location(&self) -> SourceLocation {
        SourceLocation::File(self.span.clone())
    }

    /// The raw value of `key`. Makes `key` a known one.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<TomlNode<'a, 'i>> {
        self.known_keys.push(key);
        self.table.get(key)
    }

    pub(crate) fn string(&mut self, key: &'static str, problems: &mut ProblemList<'_>) -> Option<Sourced<String>> {
        let node = self.get(key)?;
        string(node, key, problems)
    }

    /// A string or a number, as text: durations, rates and counts may be written either way.
    pub(crate) fn string_or_number(
        &mut self,
        key: &'static str,
        problems: &mut ProblemList<'_>,
    ) -> Option<Sourced<String>> {
        let node = self.get(key)?;
        let found = scalar_text(node.get_ref());
        if found.is_none() {
            report_wrong_type(node, key, "a string or a number", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    }

    pub(crate) fn boolean(&mut self, key: &'static str, problems: &mut ProblemList<'_>) -> Option<Sourced<bool>> {
        let node = self.get(key)?;
        let found = node.get_ref().as_bool();
        if found.is_none() {
            report_wrong_type(node, key, "true or false", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    }

    pub(crate) fn number(&mut self, key: &'static str, problems: &mut ProblemList<'_>) -> Option<Sourced<f64>> {
        let node = self.get(key)?;
        let found = match node.get_ref() {
            value @ (DeValue::Integer(_) | DeValue::Float(_)) => scalar_text(value).and_then(|text| text.parse().ok()),
            _ => None,
        };
        if found.is_none() {
            report_wrong_type(node, key, "a number", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    }

    pub(crate) fn unsigned(&mut self, key: &'static str, problems: &mut ProblemList<'_>) -> Option<Sourced<u64>> {
        let node = self.get(key)?;
        let found = parse_integer(node.get_ref()).and_then(|number| u64::try_from(number).ok());
        if found.is_none() {
            report_wrong_type(node, key, "a whole number of 0 or more", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    }

    /// `"1s"`, `1` or `["1s", "3s"]`, the last as `1s..3s`.
    pub(crate) fn duration_or_range(
        &mut self,
        key: &'static str,
        problems: &mut ProblemList<'_>,
    ) -> Option<Sourced<String>> {
        let node = self.get(key)?;
        let found = match node.get_ref() {
            DeValue::Array(items) if items.len() == 2 => {
                let ends: Option<Vec<String>> = items.iter().map(|item| scalar_text(item.get_ref())).collect();
                ends.map(|ends| ends.join(".."))
            }
            value => scalar_text(value),
        };
        if found.is_none() {
            report_wrong_type(node, key, "a duration like \"1s\", or two: [\"1s\", \"3s\"]", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    }

    /// A table of texts, in file order.
    pub(crate) fn string_map(
        &mut self,
        key: &'static str,
        problems: &mut ProblemList<'_>,
    ) -> Vec<(Sourced<String>, Sourced<String>)> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let Some(table) = node.get_ref().as_table() else {
            report_wrong_type(node, key, "a table of names and values", problems);
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, value) in entries_in_file_order(table) {
            match scalar_text(value.get_ref()) {
                Some(text) => pairs.push((sourced_key(name), Sourced { value: text, location: node_location(value) })),
                None => report_wrong_type(value, name.get_ref(), "a string, a number or true/false", problems),
            }
        }
        pairs
    }

    /// A string, or an array of strings.
    pub(crate) fn strings(&mut self, key: &'static str, problems: &mut ProblemList<'_>) -> Vec<Sourced<String>> {
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
        problems: &mut ProblemList<'_>,
    ) -> Vec<TomlTable<'a, 'i>> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match node.get_ref() {
            DeValue::Array(items) => {
                items.iter().filter_map(|item| TomlTable::from_node(item, what, problems)).collect()
            }
            DeValue::Table(table) => {
                problems.add_with_hint(
                    &node_location(node),
                    format!("`{key}` is a list of tables"),
                    format!("write [[{key}]]"),
                );
                vec![TomlTable::new(table, node.span(), what)]
            }
            _ => {
                report_wrong_type(node, key, "a list of tables", problems);
                Vec::new()
            }
        }
    }

    /// Reports every key that was not read.
    pub(crate) fn report_unknown_keys(self, problems: &mut ProblemList<'_>) {
        for (key, _) in entries_in_file_order(self.table) {
            let name = key.get_ref().as_ref();
            if self.known_keys.contains(&name) {
                continue;
            }
            let hint = match did_you_mean(name, self.known_keys.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => {
                    let mut known = self.known_keys.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("there are {}", known.join(", "))
                }
            };
            problems.add_with_hint(
                &SourceLocation::File(key.span()),
                format!("unknown key `{name}` in {}", self.description),
                hint,
            );
        }
    }
}

pub(crate) fn report_wrong_type(node: TomlNode<'_, '_>, key: &str, expected: &str, problems: &mut ProblemList<'_>) {
    let found = node.get_ref().type_str();
    let hint = match (expected, node.get_ref()) {
        ("a string", DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => "put it in quotes",
        ("a string", _) => "write it as \"text\"",
        (_, DeValue::String(_)) => "write it without quotes",
        _ => "docs/scenarios.md has an example of each key",
    };
    problems.add_with_hint(
        &node_location(node),
        format!("`{key}` must be {expected}, not {} {found}", article(found)),
        hint,
    );
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn string(node: TomlNode<'_, '_>, key: &str, problems: &mut ProblemList<'_>) -> Option<Sourced<String>> {
    let found = node.get_ref().as_str();
    if found.is_none() {
        report_wrong_type(node, key, "a string", problems);
    }
    Some(Sourced { value: found?.to_owned(), location: node_location(node) })
}

/// The entries of a table in file order. The parser sorts them by name.
pub(crate) fn entries_in_file_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> impl Iterator<Item = (&'a Spanned<std::borrow::Cow<'i, str>>, TomlNode<'a, 'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter()
}

pub(crate) fn sourced_key(key: &Spanned<std::borrow::Cow<'_, str>>) -> Sourced<String> {
    Sourced { value: key.get_ref().to_string(), location: SourceLocation::File(key.span()) }
}

/// A scalar as text. Numbers are decimal.
pub(crate) fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(_) => parse_integer(value).map(|number| number.to_string()),
        DeValue::Float(float) => float.as_str().replace('_', "").parse().ok().map(|number: f64| number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

pub(crate) fn parse_integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    let digits = integer.as_str().replace('_', "");
    i64::from_str_radix(&digits, integer.radix()).ok()
}
