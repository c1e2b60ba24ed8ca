//! The tables `[load]` and `[http]`.

use toml::de::DeValue;

use super::table::{Table, place, text_of, wrong_type};
use crate::{Given, RawHttp, RawLoad, error::Problems};

pub(super) fn load(table: Option<Table<'_, '_>>, problems: &mut Problems<'_>) -> (RawLoad, Vec<Given<String>>) {
    let Some(mut table) = table else { return Default::default() };
    let load = RawLoad {
        rate: table.text("rate", problems),
        users: table.text("users", problems),
        pause: table.span_of_time("pause", problems),
        duration: table.text("for", problems),
        requests: table.text("requests", problems),
        ramp_up: table.text("ramp_up", problems),
        stages: stages(&mut table, problems),
        profile: table.string("profile", problems),
        steps: table.text("steps", problems),
        arrivals: table.string("arrivals", problems),
        warm_up: table.text("warm_up", problems),
    };
    let thresholds = table.strings("thresholds", problems);
    table.finish(problems);
    (load, thresholds)
}

/// `"10s:100,30s:500"`, `["10s:100", "30s:500"]` or `[{ for = "10s", to = 100 }]`, all as the first.
fn stages(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<Given<String>> {
    let node = table.get("stages")?;
    let DeValue::Array(items) = node.get_ref() else {
        let found = node.get_ref().as_str();
        if found.is_none() {
            wrong_type(node, "stages", "a string like \"10s:100,30s:500\" or a list", problems);
        }
        return Some(Given { value: found?.to_owned(), place: place(node) });
    };
    let mut parts = Vec::new();
    for item in items.iter() {
        match item.get_ref() {
            DeValue::String(text) => parts.push(text.to_string()),
            DeValue::Table(inner) => {
                let mut stage = Table::new(inner, item.span(), "a stage");
                let (lasts, to) = (stage.text("for", problems), stage.text("to", problems));
                match (lasts, to) {
                    (Some(lasts), Some(to)) => parts.push(format!("{}:{}", lasts.value, to.value)),
                    _ => problems.add(&place(item), "a stage needs `for` and `to`, as in { for = \"10s\", to = 100 }"),
                }
                stage.finish(problems);
            }
            _ => wrong_type(item, "stages", "a string like \"10s:100\" or a table { for, to }", problems),
        }
    }
    Some(Given { value: parts.join(","), place: place(node) })
}

pub(super) fn http(table: Option<Table<'_, '_>>, problems: &mut Problems<'_>) -> RawHttp {
    let Some(mut table) = table else { return RawHttp::default() };
    let http = RawHttp {
        headers: table.texts("headers", problems),
        timeout: table.text("timeout", problems),
        connect_timeout: table.text("connect_timeout", problems),
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
        ip: table.text("ip", problems),
        resolve: table.texts("resolve", problems),
    };
    table.finish(problems);
    http
}

fn version(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<Given<String>> {
    let version = table.text("version", problems);
    let http2 = table.boolean("http2", problems);
    let both = version.is_some() && http2.is_some();
    let from_http2 = http2.map(|http2| {
        if both {
            problems.add(&http2.place, "`http2` and `version` say the same thing: keep one");
        }
        Given { value: if http2.value { "2" } else { "1.1" }.to_owned(), place: http2.place }
    });
    version.or(from_http2)
}

/// `false`, `true` or a number.
fn redirects(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<Given<u32>> {
    let node = table.get("redirects")?;
    let most = match node.get_ref() {
        DeValue::Boolean(false) => Some(0),
        DeValue::Boolean(true) => Some(10),
        value @ DeValue::Integer(_) => text_of(value).and_then(|text| text.parse().ok()),
        _ => None,
    };
    if most.is_none() {
        wrong_type(node, "redirects", "true, false or how many to follow", problems);
    }
    Some(Given { value: most?, place: place(node) })
}

/// `"user:password"` or `{ user = …, password = … }`.
pub(super) fn basic(table: &mut Table<'_, '_>, problems: &mut Problems<'_>) -> Option<Given<String>> {
    let node = table.get("basic")?;
    match node.get_ref() {
        DeValue::String(text) if text.contains(':') => Some(Given { value: text.to_string(), place: place(node) }),
        DeValue::Table(inner) => {
            let mut login = Table::new(inner, node.span(), "basic authentication");
            let user = login.string("user", problems).map(|user| user.value);
            let password = login.string("password", problems).map(|password| password.value);
            login.finish(problems);
            if user.is_none() {
                problems.add(&place(node), "basic authentication needs a `user`");
            }
            let value = format!("{}:{}", user?, password.unwrap_or_default());
            Some(Given { value, place: place(node) })
        }
        _ => {
            wrong_type(node, "basic", "\"user:password\" or { user = …, password = … }", problems);
            None
        }
    }
}
