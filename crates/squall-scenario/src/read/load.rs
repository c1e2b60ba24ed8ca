//! Reads the tables `[load]` and `[http]`.

use toml::de::DeValue;

use super::table::{TomlTable, node_location, report_wrong_type, scalar_text};
use crate::{RawHttp, RawLoad, Sourced, error::ProblemList};

pub(super) fn load(
    table: Option<TomlTable<'_, '_>>,
    problems: &mut ProblemList<'_>,
) -> (RawLoad, Vec<Sourced<String>>) {
    let Some(mut table) = table else { return Default::default() };
    let load = RawLoad {
        rate: table.string_or_number("rate", problems),
        users: table.string_or_number("users", problems),
        pause: table.duration_or_range("pause", problems),
        duration: table.string_or_number("for", problems),
        requests: table.string_or_number("requests", problems),
        ramp_up: table.string_or_number("ramp_up", problems),
        stages: stages(&mut table, problems),
        profile: table.string("profile", problems),
        steps: table.string_or_number("steps", problems),
        arrivals: table.string("arrivals", problems),
        warm_up: table.string_or_number("warm_up", problems),
    };
    let thresholds = table.strings("thresholds", problems);
    table.report_unknown_keys(problems);
    (load, thresholds)
}

/// `"10s:100,30s:500"`, `["10s:100", "30s:500"]` or `[{ for = "10s", to = 100 }]`, all as the first.
fn stages(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<Sourced<String>> {
    let node = table.get("stages")?;
    let DeValue::Array(items) = node.get_ref() else {
        let found = node.get_ref().as_str();
        if found.is_none() {
            report_wrong_type(node, "stages", "a string like \"10s:100,30s:500\" or a list", problems);
        }
        return Some(Sourced { value: found?.to_owned(), location: node_location(node) });
    };
    let mut parts = Vec::new();
    for item in items.iter() {
        match item.get_ref() {
            DeValue::String(text) => parts.push(text.to_string()),
            DeValue::Table(inner) => {
                let mut stage = TomlTable::new(inner, item.span(), "a stage");
                let (lasts, to) = (stage.string_or_number("for", problems), stage.string_or_number("to", problems));
                match (lasts, to) {
                    (Some(lasts), Some(to)) => parts.push(format!("{}:{}", lasts.value, to.value)),
                    _ => problems
                        .add(&node_location(item), "a stage needs `for` and `to`, as in { for = \"10s\", to = 100 }"),
                }
                stage.report_unknown_keys(problems);
            }
            _ => report_wrong_type(item, "stages", "a string like \"10s:100\" or a table { for, to }", problems),
        }
    }
    Some(Sourced { value: parts.join(","), location: node_location(node) })
}

pub(super) fn http(table: Option<TomlTable<'_, '_>>, problems: &mut ProblemList<'_>) -> RawHttp {
    let Some(mut table) = table else { return RawHttp::default() };
    let http = RawHttp {
        headers: table.string_map("headers", problems),
        timeout: table.string_or_number("timeout", problems),
        connect_timeout: table.string_or_number("connect_timeout", problems),
        version: version(&mut table, problems),
        keep_alive: table.boolean("keep_alive", problems),
        insecure: table.boolean("insecure", problems),
        ca: table.string("ca", problems),
        cert: table.string("cert", problems),
        key: table.string("key", problems),
        server_name: table.string("server_name", problems),
        proxy: table.string("proxy", problems),
        redirects: redirects(&mut table, problems),
        compression: table.boolean("compression", problems),
        cookies: table.boolean("cookies", problems),
        basic: basic(&mut table, problems),
        bearer: table.string("bearer", problems),
        unix_socket: table.string("unix_socket", problems),
        phases: table.boolean("phases", problems),
        ip: table.string_or_number("ip", problems),
        resolve: table.string_map("resolve", problems),
    };
    table.report_unknown_keys(problems);
    http
}

fn version(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<Sourced<String>> {
    let version = table.string_or_number("version", problems);
    let http2 = table.boolean("http2", problems);
    let both = version.is_some() && http2.is_some();
    let from_http2 = http2.map(|http2| {
        if both {
            problems.add(&http2.location, "`http2` and `version` say the same thing: keep one");
        }
        Sourced { value: if http2.value { "2" } else { "1.1" }.to_owned(), location: http2.location }
    });
    version.or(from_http2)
}

/// `false`, `true` or a number.
fn redirects(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<Sourced<u32>> {
    let node = table.get("redirects")?;
    let most = match node.get_ref() {
        DeValue::Boolean(false) => Some(0),
        DeValue::Boolean(true) => Some(10),
        value @ DeValue::Integer(_) => scalar_text(value).and_then(|text| text.parse().ok()),
        _ => None,
    };
    if most.is_none() {
        report_wrong_type(node, "redirects", "true, false or how many to follow", problems);
    }
    Some(Sourced { value: most?, location: node_location(node) })
}

/// `"user:password"` or `{ user = …, password = … }`.
pub(super) fn basic(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<Sourced<String>> {
    let node = table.get("basic")?;
    match node.get_ref() {
        DeValue::String(text) if text.contains(':') => {
            Some(Sourced { value: text.to_string(), location: node_location(node) })
        }
        DeValue::Table(inner) => {
            let mut login = TomlTable::new(inner, node.span(), "basic authentication");
            let user = login.string("user", problems).map(|user| user.value);
            let password = login.string("password", problems).map(|password| password.value);
            login.report_unknown_keys(problems);
            if user.is_none() {
                problems.add(&node_location(node), "basic authentication needs a `user`");
            }
            let value = format!("{}:{}", user?, password.unwrap_or_default());
            Some(Sourced { value, location: node_location(node) })
        }
        _ => {
            report_wrong_type(node, "basic", "\"user:password\" or { user = …, password = … }", problems);
            None
        }
    }
}
