//! One request with its expectations and extractions, as written into a task or a step.

use toml::de::DeValue;

use super::{
    json::json,
    load::basic,
    raw::{RawBody, RawExpect, RawExtract, RawHeaderCheck, RawJsonCheck, RawRequest},
    table::{Node, Table, in_order, key_of, place, text_of, wrong_type},
};
use crate::{Given, error::Problems};

const METHODS: [&str; 7] = ["get", "post", "put", "patch", "delete", "head", "options"];

/// The request of `table`, or `None` if none of its keys speaks of one. `timeout` is left to the caller where it means something else.
pub(super) fn request(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<RawRequest> {
    let mut found = RawRequest::default();
    for method in METHODS {
        let Some(url) = table.string(method, problems) else { continue };
        if found.url.is_some() {
            let (message, hint) = ("a second request in one table", "write a [[task.step]] for each request of a flow");
            problems.hint(&url.place, message, hint);
            continue;
        }
        found.method = Some(Given { value: method.to_uppercase(), place: url.place.clone() });
        found.url = Some(url);
    }
    let (method, url) = (table.string("method", problems), table.string("url", problems));
    if let (Some(_), Some(extra)) = (&found.url, url.as_ref().or(method.as_ref())) {
        problems.hint(&extra.place, "the request is given twice", "keep either `get = …` or `method` and `url`");
    } else if found.url.is_none() {
        (found.method, found.url) = (method, url);
    }
    found.headers = table.texts("headers", problems);
    found.query = table.texts("query", problems);
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

fn body(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<RawBody> {
    let text = table.string("body", problems).map(|text| (text.place.clone(), RawBody::Text(text)));
    let file = table.string("body_file", problems).map(|file| (file.place.clone(), RawBody::File(file)));
    let json = table.get("json").map(|node| (place(node), json_body(node, problems)));
    let form = table.get("form").map(place);
    let form = form.map(|at| (at, RawBody::Form(table.texts("form", problems))));
    // What can be wrong in itself comes first, so that it is looked at.
    let mut given = [json, file, form, text].into_iter().flatten();
    let first = given.next();
    for (second, _) in given {
        problems.hint(&second, "the request has two bodies", "keep one of body, body_file, json and form");
    }
    first.map(|(_, body)| body)
}

fn json_body(node: Node<'_, '_>, problems: &mut Problems<'_>) -> RawBody {
    match node.get_ref() {
        DeValue::String(text) => RawBody::JsonText(Given { value: text.to_string(), place: place(node) }),
        _ => RawBody::Json(json(node, problems)),
    }
}

fn expect(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<RawExpect> {
    let mut table = Table::of(table.get("expect")?, "expect", problems)?;
    let expect = RawExpect {
        status: status(&mut table, problems),
        headers: entries(&mut table, "header", problems, header_check),
        body_contains: table.strings("body_contains", problems),
        body_matches: table.strings("body_matches", problems),
        json: entries(&mut table, "json", problems, json_check),
        max_ms: table.number("max_ms", problems),
    };
    table.finish(problems);
    Some(expect)
}

/// `200`, `"2xx"` or a list of such.
fn status(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Vec<Given<String>> {
    let Some(node) = table.get("status") else { return Vec::new() };
    let one = |node: Node<'_, '_>, problems: &mut Problems<'_>| {
        let found = match node.get_ref() {
            value @ (DeValue::Integer(_) | DeValue::String(_)) => text_of(value),
            _ => None,
        };
        if found.is_none() {
            wrong_type(node, "status", "a status like 200, a class like \"2xx\", or a list of them", problems);
        }
        Some(Given { value: found?, place: place(node) })
    };
    match node.get_ref() {
        DeValue::Array(items) if items.is_empty() => {
            let hint = "name a status like 200 or a class like \"2xx\", or leave `status` out";
            problems.hint(&place(node), "an empty list of statuses expects nothing", hint);
            Vec::new()
        }
        DeValue::Array(items) => items.iter().filter_map(|item| one(item, problems)).collect(),
        _ => one(node, problems).into_iter().collect(),
    }
}

fn entries<T>(
    table: &mut Table<'_, '_>,
    key: &'static str,
    problems: &mut Problems<'_>,
    read: fn(Node<'_, '_>, &mut Problems<'_>) -> Option<T>,
) -> Vec<(Given<String>, T)> {
    let Some(node) = table.get(key) else { return Vec::new() };
    let Some(inner) = node.get_ref().as_table() else {
        wrong_type(node, key, "a table", problems);
        return Vec::new();
    };
    in_order(inner).filter_map(|(name, value)| Some((key_of(name), read(value, problems)?))).collect()
}

fn header_check(node: Node<'_, '_>, problems: &mut Problems<'_>) -> Option<RawHeaderCheck> {
    match node.get_ref() {
        DeValue::Boolean(present) => Some(RawHeaderCheck::Present(*present)),
        DeValue::Table(inner) => {
            let mut table = Table::new(inner, node.span(), "a header's expectation");
            let contains = table.string("contains", problems).map(RawHeaderCheck::Contains);
            let matches = table.string("matches", problems).map(RawHeaderCheck::Matches);
            table.finish(problems);
            if contains.is_some() == matches.is_some() {
                problems
                    .add(&place(node), "a header's expectation is a value, true, { contains = … } or { matches = … }");
            }
            contains.or(matches)
        }
        value => match text_of(value) {
            Some(text) => Some(RawHeaderCheck::Equals(Given { value: text, place: place(node) })),
            None => {
                wrong_type(node, "header", "a value, true, { contains = … } or { matches = … }", problems);
                None
            }
        },
    }
}

fn json_check(node: Node<'_, '_>, problems: &mut Problems<'_>) -> Option<RawJsonCheck> {
    let DeValue::Table(inner) = node.get_ref() else {
        return Some(RawJsonCheck::Equals(json(node, problems)));
    };
    let mut table = Table::new(inner, node.span(), "a JSON expectation");
    let present = table.boolean("exists", problems).map(|exists| RawJsonCheck::Present(exists.value));
    let count = table.unsigned("count", problems).map(|count| RawJsonCheck::Count(count.value));
    let equals = table.get("equals").map(|node| RawJsonCheck::Equals(json(node, problems)));
    let before = problems.count();
    table.finish(problems);
    let mut given = [present, count, equals].into_iter().flatten();
    let first = given.next();
    if (first.is_none() && problems.count() == before) || given.next().is_some() {
        problems.add(
            &place(node),
            "a JSON expectation is a value, or one of { exists = … }, { count = … }, { equals = … }",
        );
    }
    first
}

fn extract(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Vec<(Given<String>, RawExtract)> {
    entries(table, "extract", problems, |node, problems| {
        if let DeValue::String(path) = node.get_ref() {
            let json = Some(Given { value: path.to_string(), place: place(node) });
            return Some(RawExtract { json, ..RawExtract::default() });
        }
        let mut table = Table::of(node, "an extraction", problems)?;
        let extract = RawExtract {
            json: table.string("json", problems),
            header: table.string("header", problems),
            regex: table.string("regex", problems),
            group: table.unsigned("group", problems),
            default: table.text("default", problems),
        };
        table.finish(problems);
        let sources = [&extract.json, &extract.header, &extract.regex].into_iter().flatten().count();
        if sources != 1 {
            problems.hint(
                &place(node),
                "an extraction has exactly one source",
                "write \"$.path\", { json = … }, { header = … } or { regex = … }",
            );
        }
        (sources == 1).then_some(extract)
    })
}
