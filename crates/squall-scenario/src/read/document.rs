//! Reads the whole scenario file, table by table.

use toml::de::DeTable;

use super::{
    browser::{browser_settings, browser_step, task_kind},
    cql::{cql_settings, cql_step, is_cql_step},
    json::toml_to_json,
    load::{http, load},
    raw::{
        RawBrowserStep, RawCqlStep, RawData, RawJson, RawRequest, RawResource, RawScenario, RawStep, RawTask,
        ScenarioLanguage, TaskKind,
    },
    request::request,
    table::{TomlTable, entries_in_file_order, report_wrong_type, sourced_key},
};
use crate::{
    Sourced,
    error::{ProblemList, SourceLocation},
};

/// The raw scenario of `text`. Text that is not TOML yields `None`: reporting its missing settings would
/// mislead.
pub(crate) fn read_scenario(text: &str, problems: &mut ProblemList<'_>) -> Option<RawScenario> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut last_line = None;
    for error in &errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        // Only the first error of a line is reported, because the parser guesses after it.
        let line = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
        if last_line.replace(line) == Some(line) {
            continue;
        }
        problems.add_with_hint(
            &SourceLocation::File(span),
            format!("not valid TOML: {}", error.message()),
            "see https://toml.io",
        );
    }
    if !errors.is_empty() {
        return None;
    }
    let mut root = TomlTable::new(root.get_ref(), 0..0, "a scenario");
    let name = root.string("name", problems);
    let target = root.string("target", problems);
    let seed = root.unsigned("seed", problems);
    let (load, thresholds) = load(subtable(&mut root, "load", "[load]", problems), problems);
    let http = http(subtable(&mut root, "http", "[http]", problems), problems);
    let browser = browser_settings(subtable(&mut root, "browser", "[browser]", problems), problems);
    let cql = cql_settings(subtable(&mut root, "cql", "[cql]", problems), problems);
    let variables = variables(&mut root, problems);
    let data = root.tables("data", "[[data]]", problems);
    let data = data.into_iter().map(|table| data_source(table, problems)).collect();
    let resources = root.tables("resource", "[[resource]]", problems);
    let resources = resources.into_iter().map(|table| resource(table, problems)).collect();
    let on_start = root.tables("on_start", "[[on_start]]", problems);
    let on_start = on_start.into_iter().map(|table| step(table, TaskKind::Http, problems)).collect();
    let tasks = root.tables("task", "[[task]]", problems);
    let tasks = tasks.into_iter().map(|table| task(table, problems)).collect();
    root.report_unknown_keys(problems);
    let language = ScenarioLanguage::Toml;
    Some(RawScenario {
        language,
        name,
        target,
        seed,
        load,
        thresholds,
        http,
        browser,
        cql,
        variables,
        data,
        resources,
        on_start,
        tasks,
    })
}

fn subtable<'a, 'i>(
    root: &mut TomlTable<'a, 'i>,
    key: &'static str,
    what: &'static str,
    problems: &mut ProblemList<'_>,
) -> Option<TomlTable<'a, 'i>> {
    root.get(key).and_then(|node| TomlTable::from_node(node, what, problems))
}

fn variables(root: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Vec<(Sourced<String>, RawJson)> {
    let Some(node) = root.get("variables") else { return Vec::new() };
    let Some(table) = node.get_ref().as_table() else {
        report_wrong_type(node, "variables", "a table", problems);
        return Vec::new();
    };
    let mut variables = Vec::new();
    for (name, value) in entries_in_file_order(table) {
        match toml_to_json(value, problems) {
            RawJson::Array(_) | RawJson::Object(_) => {
                report_wrong_type(value, name.get_ref(), "a string, a number or true/false", problems);
            }
            scalar => variables.push((sourced_key(name), scalar)),
        }
    }
    variables
}

fn data_source(mut table: TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> RawData {
    let data = RawData {
        location: table.location(),
        name: table.string("name", problems),
        file: table.string("file", problems),
        order: table.string("order", problems),
        per: table.string("per", problems),
    };
    table.report_unknown_keys(problems);
    data
}

fn resource(mut table: TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> RawResource {
    let resource = RawResource {
        location: table.location(),
        name: table.string("name", problems),
        file: table.string("file", problems),
        count: table.unsigned("count", problems),
        fields: table.string_map("fields", problems),
        wait: table.string_or_number("wait", problems),
    };
    table.report_unknown_keys(problems);
    resource
}

fn task(mut table: TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> RawTask {
    let kind = task_kind(&mut table, problems);
    let task = RawTask {
        location: table.location(),
        name: table.string("name", problems),
        weight: table.number("weight", problems),
        group: table.string("group", problems),
        tags: table.string_map("tags", problems),
        requires: table.strings("requires", problems),
        every: table.duration_or_range("every", problems),
        timeout: table.string_or_number("timeout", problems),
        think: table.duration_or_range("think", problems),
        continue_on_failure: table.boolean("continue_on_failure", problems).is_some_and(|given| given.value),
        kind,
        request: if kind == TaskKind::Http { request(&mut table, problems) } else { None },
        browser: if kind == TaskKind::Browser { browser_step(&mut table, problems) } else { None },
        cql: if kind == TaskKind::Cql { cql_step(&mut table, problems) } else { None },
        steps: {
            let steps = table.tables("step", "[[task.step]]", problems);
            steps.into_iter().map(|table| step(table, kind, problems)).collect()
        },
    };
    table.report_unknown_keys(problems);
    task
}

fn step(mut table: TomlTable<'_, '_>, kind: TaskKind, problems: &mut ProblemList<'_>) -> RawStep {
    let timeout = table.string_or_number("timeout", problems);
    let (mut http, mut browser, mut cql) = (None, None, None);
    match kind {
        TaskKind::Browser => {
            browser = browser_step(&mut table, problems).map(|step| RawBrowserStep { timeout, ..step });
        }
        // A task may send requests and statements in turn, so that one checks what the other did.
        TaskKind::Http | TaskKind::Cql if is_cql_step(&mut table) => {
            cql = cql_step(&mut table, problems).map(|step| RawCqlStep { timeout, ..step });
        }
        TaskKind::Http | TaskKind::Cql => {
            http = request(&mut table, problems).map(|request| RawRequest { timeout, ..request });
        }
    }
    let step = RawStep {
        location: table.location(),
        name: table.string("name", problems),
        group: table.string("group", problems),
        think: table.duration_or_range("think", problems),
        continue_on_failure: table.boolean("continue_on_failure", problems).is_some_and(|given| given.value),
        request: http,
        browser,
        cql,
    };
    table.report_unknown_keys(problems);
    step
}
