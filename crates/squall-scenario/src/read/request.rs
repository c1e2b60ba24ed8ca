//! Reads one request with its expectations and extractions, from a task or a step.

use toml::de::DeValue;

use super::{
    json::toml_to_json,
    load::basic,
    raw::{RawBody, RawExpect, RawExtract, RawHeaderCheck, RawJsonCheck, RawRequest},
    table::{TomlNode, TomlTable, entries_in_file_order, node_location, report_wrong_type, scalar_text, sourced_key},
};
use crate::{Sourced, error::ProblemList};

const METHODS: [&str; 7] = ["get", "post", "put", "patch", "delete", "head", "options"];

/// The request of `table`. `None` if it has no key of a request. A caller whose `timeout` has another
/// meaning reads it itself.
pub(super) fn request(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawRequest> {
    let mut found = RawRequest::default();
    for method in METHODS {
        let Some(url) = table.string(method, problems) else { continue };
        if found.url.is_some() {
            let (message, hint) = ("a second request in one table", "write a [[task.step]] for each request of a flow");
            problems.add_with_hint(&url.location, message, hint);
            continue;
        }
        found.method = Some(Sourced { value: method.to_uppercase(), location: url.location.clone() });
        found.url = Some(url);
    }
    let (method, url) = (table.string("method", problems), table.string("url", problems));
    if let (Some(_), Some(extra)) = (&found.url, url.as_ref().or(method.as_ref())) {
        problems.add_with_hint(
            &extra.location,
            "the request is given twice",
            "keep either `get = …` or `method` and `url`",
        );
    } else if found.url.is_none() {
        (found.method, found.url) = (method, url);
    }
    found.headers = table.string_map("headers", problems);
    found.query = table.string_map("query", problems);
    found.body = body(table, problems);
    found.basic = basic(table, problems);
    found.bearer = table.string("bearer", problems);
    found.expect = expect(table, problems);
    found.extract = extract(table, problems);
    let says_something = found.url.is_some()
        || found.method.is_some()
        || found.body.is_some()
        || found.expect.is_some()
        || !(found.headers.is_empty() && found.query.is_empty() && found.extract.is_empty());
    says_something.then_some(found)
}

fn body(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawBody> {
    let text = table.string("body", problems).map(|text| (text.location.clone(), RawBody::Text(text)));
    let file = table.string("body_file", problems).map(|file| (file.location.clone(), RawBody::File(file)));
    let json = table.get("json").map(|node| (node_location(node), json_body(node, problems)));
    let form = table.get("form").map(node_location);
    let form = form.map(|at| (at, RawBody::Form(table.string_map("form", problems))));
    // Bodies that can have errors of their own come first, so that these are reported.
    let mut given = [json, file, form, text].into_iter().flatten();
    let first = given.next();
    for (second, _) in given {
        problems.add_with_hint(&second, "the request has two bodies", "keep one of body, body_file, json and form");
    }
    first.map(|(_, body)| body)
}

fn json_body(node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>) -> RawBody {
    match node.get_ref() {
        DeValue::String(text) => RawBody::JsonText(Sourced { value: text.to_string(), location: node_location(node) }),
        _ => RawBody::Json(toml_to_json(node, problems)),
    }
}

fn expect(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawExpect> {
    let mut table = TomlTable::from_node(table.get("expect")?, "expect", problems)?;
    let expect = RawExpect {
        status: status(&mut table, problems),
        headers: entries(&mut table, "header", problems, header_check),
        body_contains: table.strings("body_contains", problems),
        body_matches: table.strings("body_matches", problems),
        json: entries(&mut table, "json", problems, json_check),
        max_ms: table.number("max_ms", problems),
    };
    table.report_unknown_keys(problems);
    Some(expect)
}

/// `200`, `"2xx"` or a list of these.
fn status(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Vec<Sourced<String>> {
    let Some(node) = table.get("status") else { return Vec::new() };
    let one = |node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>| {
        let found = match node.get_ref() {
            value @ (DeValue::Integer(_) | DeValue::String(_)) => scalar_text(value),
            _ => None,
        };
        if found.is_none() {
            report_wrong_type(node, "status", "a status like 200, a class like \"2xx\", or a list of them", problems);
        }
        Some(Sourced { value: found?, location: node_location(node) })
    };
    match node.get_ref() {
        DeValue::Array(items) if items.is_empty() => {
            let hint = "name a status like 200 or a class like \"2xx\", or leave `status` out";
            problems.add_with_hint(&node_location(node), "an empty list of statuses expects nothing", hint);
            Vec::new()
        }
        DeValue::Array(items) => items.iter().filter_map(|item| one(item, problems)).collect(),
        _ => one(node, problems).into_iter().collect(),
    }
}

fn entries<T>(
    table: &mut TomlTable<'_, '_>,
    key: &'static str,
    problems: &mut ProblemList<'_>,
    read: fn(TomlNode<'_, '_>, &mut ProblemList<'_>) -> Option<T>,
) -> Vec<(Sourced<String>, T)> {
    let Some(node) = table.get(key) else { return Vec::new() };
    let Some(inner) = node.get_ref().as_table() else {
        report_wrong_type(node, key, "a table", problems);
        return Vec::new();
    };
    entries_in_file_order(inner).filter_map(|(name, value)| Some((sourced_key(name), read(value, problems)?))).collect()
}

fn header_check(node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawHeaderCheck> {
    match node.get_ref() {
        DeValue::Boolean(present) => Some(RawHeaderCheck::Present(*present)),
        DeValue::Table(inner) => {
            let mut table = TomlTable::new(inner, node.span(), "a header's expectation");
            let contains = table.string("contains", problems).map(RawHeaderCheck::Contains);
            let matches = table.string("matches", problems).map(RawHeaderCheck::Matches);
            table.report_unknown_keys(problems);
            if contains.is_some() == matches.is_some() {
                problems.add(
                    &node_location(node),
                    "a header's expectation is a value, true, { contains = … } or { matches = … }",
                );
            }
            contains.or(matches)
        }
        value => match scalar_text(value) {
            Some(text) => Some(RawHeaderCheck::Equals(Sourced { value: text, location: node_location(node) })),
            None => {
                report_wrong_type(node, "header", "a value, true, { contains = … } or { matches = … }", problems);
                None
            }
        },
    }
}

fn json_check(node: TomlNode<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawJsonCheck> {
    let DeValue::Table(inner) = node.get_ref() else {
        return Some(RawJsonCheck::Equals(toml_to_json(node, problems)));
    };
    let mut table = TomlTable::new(inner, node.span(), "a JSON expectation");
    let present = table.boolean("exists", problems).map(|exists| RawJsonCheck::Present(exists.value));
    let count = table.unsigned("count", problems).map(|count| RawJsonCheck::Count(count.value));
    let equals = table.get("equals").map(|node| RawJsonCheck::Equals(toml_to_json(node, problems)));
    let before = problems.count();
    table.report_unknown_keys(problems);
    let mut given = [present, count, equals].into_iter().flatten();
    let first = given.next();
    if (first.is_none() && problems.count() == before) || given.next().is_some() {
        problems.add(
            &node_location(node),
            "a JSON expectation is a value, or one of { exists = … }, { count = … }, { equals = … }",
        );
    }
    first
}

fn extract(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Vec<(Sourced<String>, RawExtract)> {
    entries(table, "extract", problems, |node, problems| {
        if let DeValue::String(path) = node.get_ref() {
            let json = Some(Sourced { value: path.to_string(), location: node_location(node) });
            return Some(RawExtract { json, ..RawExtract::default() });
        }
        let mut table = TomlTable::from_node(node, "an extraction", problems)?;
        let extract = RawExtract {
            json: table.string("json", problems),
            header: table.string("header", problems),
            regex: table.string("regex", problems),
            group: table.unsigned("group", problems),
            default: table.string_or_number("default", problems),
        };
        table.report_unknown_keys(problems);
        let sources = [&extract.json, &extract.header, &extract.regex].into_iter().flatten().count();
        if sources != 1 {
            problems.add_with_hint(
                &node_location(node),
                "an extraction has exactly one source",
                "write \"$.path\", { json = … }, { header = … } or { regex = … }",
            );
        }
        (sources == 1).then_some(extract)
    })
}
