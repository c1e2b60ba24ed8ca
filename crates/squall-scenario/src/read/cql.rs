//! Reads `[cql]` and CQL statements of tasks.

use toml::de::{DeTable, DeValue};

use super::{
    json::toml_to_json,
    raw::{RawColumnExtract, RawCqlArgument, RawCqlExpect, RawCqlStep},
    table::{TomlNode, TomlTable, entries_in_file_order, node_location, report_wrong_type, sourced_key},
};
use crate::{RawCql, Sourced, error::ProblemList};

pub(super) fn cql_settings(table: Option<TomlTable<'_, '_>>, problems: &mut ProblemList<'_>) -> RawCql {
    let Some(mut table) = table else { return RawCql::default() };
    let cql = RawCql {
        location: Some(table.location()),
        nodes: table.strings("nodes", problems),
        port: table.unsigned("port", problems),
        user: table.string("user", problems),
        password: table.string("password", problems),
        truststore: table.string("truststore", problems),
        truststore_password: table.string("truststore_password", problems),
        keystore: table.string("keystore", problems),
        keystore_password: table.string("keystore_password", problems),
        hostname_verification: table.boolean("hostname_verification", problems),
        keyspace: table.string("keyspace", problems),
        consistency: table.string("consistency", problems),
        datacenter: table.string("datacenter", problems),
        connections: table.unsigned("connections", problems),
        timeout: table.string_or_number("timeout", problems),
        compression: table.string("compression", problems),
    };
    table.report_unknown_keys(problems);
    cql
}

/// Whether the step of `table` is a CQL statement.
pub(super) fn is_cql_step(table: &mut TomlTable<'_, '_>) -> bool {
    table.get("statement").is_some()
}

/// The statement of `table`, without the time limit. `None` if it has none.
pub(super) fn cql_step(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawCqlStep> {
    let statement = table.string("statement", problems);
    let values = values(table, problems);
    let consistency = table.string("consistency", problems);
    let page_size = table.unsigned("page_size", problems);
    let expect = expectation(table, problems);
    let extract = extract(table, problems);
    Some(RawCqlStep { statement: statement?, values, consistency, page_size, timeout: None, expect, extract })
}

fn values(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Vec<RawCqlArgument> {
    let Some(node) = table.get("values") else { return Vec::new() };
    match node.get_ref() {
        DeValue::Array(items) => items.iter().filter_map(|item| value(item, problems)).collect(),
        _ => {
            report_wrong_type(node, "values", "a list with one value for each ?", problems);
            Vec::new()
        }
    }
}

fn value(node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawCqlArgument> {
    // A map or a user-defined type may have a key `population`, too.
    let is_generator = |table: &DeTable<'_>| {
        let text = |name: &str| table.get(name).is_some_and(|value| matches!(value.get_ref(), DeValue::String(_)));
        text("population") && table.keys().all(|key| matches!(key.get_ref().as_ref(), "population" | "size"))
    };
    if !node.get_ref().as_table().is_some_and(is_generator) {
        return Some(RawCqlArgument::Given(toml_to_json(node, problems)));
    }
    let mut table = TomlTable::from_node(node, "a generated value", problems)?;
    let population = table.string("population", problems);
    let size = table.string("size", problems);
    table.report_unknown_keys(problems);
    Some(RawCqlArgument::Generated { population: population?, size })
}

fn expectation(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> RawCqlExpect {
    let node = table.get("expect");
    let Some(mut table) = node.and_then(|node| TomlTable::from_node(node, "expect of a statement", problems)) else {
        return RawCqlExpect::default();
    };
    let expect = RawCqlExpect {
        rows: table.unsigned("rows", problems),
        min_rows: table.unsigned("min_rows", problems),
        max_rows: table.unsigned("max_rows", problems),
        columns: table.string_map("columns", problems),
        max_ms: table.number("max_ms", problems),
    };
    table.report_unknown_keys(problems);
    expect
}

fn extract(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Vec<RawColumnExtract> {
    let Some(node) = table.get("extract") else { return Vec::new() };
    let Some(table) = node.get_ref().as_table() else {
        report_wrong_type(node, "extract", "a table of variables and columns", problems);
        return Vec::new();
    };
    let one = |(name, node): (_, TomlNode<'_, '_>)| {
        if let DeValue::String(column) = node.get_ref() {
            let column = Sourced { value: column.to_string(), location: node_location(node) };
            return Some(RawColumnExtract { variable: sourced_key(name), column, default: None });
        }
        let mut table = TomlTable::from_node(node, "an extraction of a column", problems)?;
        let column = table.string("column", problems);
        let default = table.string_or_number("default", problems);
        table.report_unknown_keys(problems);
        if column.is_none() {
            let hint = "write the name of a column, or { column = \"name\", default = \"text\" }";
            problems.add_with_hint(&node_location(node), "an extraction needs a column", hint);
        }
        Some(RawColumnExtract { variable: sourced_key(name), column: column?, default })
    };
    entries_in_file_order(table).filter_map(one).collect()
}
