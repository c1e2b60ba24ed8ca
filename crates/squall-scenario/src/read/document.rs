//! The whole file, table by table.

use toml::de::DeTable;

use super::{
    json::json,
    load::{http, load},
    raw::{RawData, RawJson, RawResource, RawScenario, RawStep, RawTask},
    request::request,
    table::{Table, in_order, key_of, wrong_type},
};
use crate::{
    Given,
    error::{Place, Problems},
};

/// Everything that `text` says. A text that is not TOML is reported as such and yields nothing, because what would be missing from it
/// then says nothing about the user.
pub(crate) fn read(text: &str, problems: &mut Problems<'_>) -> Option<RawScenario> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut last_line = None;
    for error in &errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        // After the first mistake of a line the parser only guesses what the rest of it is.
        let line = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
        if last_line.replace(line) == Some(line) {
            continue;
        }
        problems.hint(&Place::File(span), format!("not valid TOML: {}", error.message()), "see https://toml.io");
    }
    if !errors.is_empty() {
        return None;
    }
    let mut root = Table::new(root.get_ref(), 0..0, "a scenario");
    let name = root.string("name", problems);
    let target = root.string("target", problems);
    let seed = root.unsigned("seed", problems);
    let (load, thresholds) = load(inner(&mut root, "load", "[load]", problems), problems);
    let http = http(inner(&mut root, "http", "[http]", problems), problems);
    let variables = variables(&mut root, problems);
    let data = root.tables("data", "[[data]]", problems);
    let data = data.into_iter().map(|table| data_source(table, problems)).collect();
    let resources = root.tables("resource", "[[resource]]", problems);
    let resources = resources.into_iter().map(|table| resource(table, problems)).collect();
    let on_start = root.tables("on_start", "[[on_start]]", problems);
    let on_start = on_start.into_iter().map(|table| step(table, problems)).collect();
    let tasks = root.tables("task", "[[task]]", problems);
    let tasks = tasks.into_iter().map(|table| task(table, problems)).collect();
    root.finish(problems);
    Some(RawScenario { name, target, seed, load, thresholds, http, variables, data, resources, on_start, tasks })
}

fn inner<'a, 'i>(
    root: &mut Table<'a, 'i>,
    key: &'static str,
    what: &'static str,
    problems: &mut Problems<'_>,
) -> Option<Table<'a, 'i>> {
    root.get(key).and_then(|node| Table::of(node, what, problems))
}

fn variables(root: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Vec<(Given<String>, RawJson)> {
    let Some(node) = root.get("variables") else { return Vec::new() };
    let Some(table) = node.get_ref().as_table() else {
        wrong_type(node, "variables", "a table", problems);
        return Vec::new();
    };
    let mut variables = Vec::new();
    for (name, value) in in_order(table) {
        match json(value, problems) {
            RawJson::Array(_) | RawJson::Object(_) => {
                wrong_type(value, name.get_ref(), "a string, a number or true/false", problems);
            }
            scalar => variables.push((key_of(name), scalar)),
        }
    }
    variables
}

fn data_source(mut table: Table<'_, '_>, problems: &mut Problems<'_>) -> RawData {
    let data = RawData {
        place: table.place(),
        name: table.string("name", problems),
        file: table.string("file", problems),
        order: table.string("order", problems),
        per: table.string("per", problems),
    };
    table.finish(problems);
    data
}

fn resource(mut table: Table<'_, '_>, problems: &mut Problems<'_>) -> RawResource {
    let resource = RawResource {
        place: table.place(),
        name: table.string("name", problems),
        file: table.string("file", problems),
        count: table.unsigned("count", problems),
        fields: table.texts("fields", problems),
        wait: table.text("wait", problems),
    };
    table.finish(problems);
    resource
}

fn task(mut table: Table<'_, '_>, problems: &mut Problems<'_>) -> RawTask {
    let task = RawTask {
        place: table.place(),
        name: table.string("name", problems),
        weight: table.number("weight", problems),
        group: table.string("group", problems),
        tags: table.texts("tags", problems),
        requires: table.strings("requires", problems),
        every: table.span_of_time("every", problems),
        timeout: table.text("timeout", problems),
        think: table.span_of_time("think", problems),
        continue_on_failure: table.boolean("continue_on_failure", problems).is_some_and(|given| given.value),
        request: request(&mut table, problems),
        steps: {
            let steps = table.tables("step", "[[task.step]]", problems);
            steps.into_iter().map(|table| step(table, problems)).collect()
        },
    };
    table.finish(problems);
    task
}

fn step(mut table: Table<'_, '_>, problems: &mut Problems<'_>) -> RawStep {
    let timeout = table.text("timeout", problems);
    let step = RawStep {
        place: table.place(),
        name: table.string("name", problems),
        group: table.string("group", problems),
        think: table.span_of_time("think", problems),
        continue_on_failure: table.boolean("continue_on_failure", problems).is_some_and(|given| given.value),
        request: request(&mut table, problems).map(|mut request| {
            request.timeout = timeout;
            request
        }),
    };
    table.finish(problems);
    step
}
