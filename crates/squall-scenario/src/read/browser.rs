//! Reads `[browser]` and the steps of browser tasks.

use squall_browser::{BrowserAction, BrowserStep, Expectation};

use super::{
    raw::{RawBrowser, RawBrowserStep, TaskKind},
    table::TomlTable,
};
use crate::{
    Sourced,
    error::{ProblemList, did_you_mean},
};

pub(super) fn browser_settings(table: Option<TomlTable<'_, '_>>, problems: &mut ProblemList<'_>) -> RawBrowser {
    let Some(mut table) = table else { return RawBrowser::default() };
    let browser = RawBrowser {
        executable: table.string("executable", problems),
        args: table.strings("args", problems),
        timeout: table.string_or_number("timeout", problems),
        viewport: table.string("viewport", problems),
        screenshots: table.string("screenshots", problems),
        grid: table.string("grid", problems),
        token: table.string("token", problems),
        ca: table.string("ca", problems),
    };
    table.report_unknown_keys(problems);
    browser
}

/// `kind` of a task.
pub(super) fn task_kind(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> TaskKind {
    let Some(given) = table.string("kind", problems) else { return TaskKind::Http };
    let kinds = [("http", TaskKind::Http), ("browser", TaskKind::Browser), ("cql", TaskKind::Cql)];
    let kind_of = |name: &str| kinds.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind);
    let typed = given.value.as_str();
    kind_of(typed).unwrap_or_else(|| {
        let meant = did_you_mean(typed, kinds.iter().map(|(known, _)| *known));
        let hint = match meant {
            Some(known) => format!("did you mean `{known}`?"),
            None => "write kind = \"http\" (the default), kind = \"browser\" or kind = \"cql\"".to_owned(),
        };
        problems.add_with_hint(&given.location, format!("there is no kind of task `{typed}`"), hint);
        // The other keys are read as those of the kind that is probably meant.
        meant.and_then(kind_of).unwrap_or(TaskKind::Http)
    })
}

/// The step of `table`. `None` if it has no key of a step.
pub(super) fn browser_step(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<RawBrowserStep> {
    let action = action(table, problems);
    let expect = expectation(table, problems);
    if action.is_none() && expect.is_empty() {
        return None;
    }
    Some(RawBrowserStep { step: BrowserStep { action, expect }, timeout: None })
}

fn action(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Option<BrowserAction<Sourced<String>>> {
    let goto = table.string("goto", problems);
    let click = table.string("click", problems);
    let fill = table.string("fill", problems);
    let press = table.string("press", problems);
    let select = table.string("select", problems);
    let wait_for = table.string("wait_for", problems);
    let mut value = table.string_or_number("value", problems);
    let mut on = table.string("on", problems);
    let given: Vec<_> = [&goto, &click, &fill, &press, &select, &wait_for].into_iter().flatten().cloned().collect();
    if let Some(second) = given.get(1) {
        problems.add_with_hint(
            &second.location,
            "a second action in one step",
            "write a [[task.step]] for each action",
        );
    }
    let mut needed_value = |selector: &Sourced<String>, action: &str| {
        value.take().unwrap_or_else(|| {
            problems.add_with_hint(
                &selector.location,
                format!("`{action}` needs a value"),
                format!("add value = \"text\" beside {action} = \"{}\"", selector.value),
            );
            Sourced { value: String::new(), location: selector.location.clone() }
        })
    };
    let action = if let Some(url) = goto {
        Some(BrowserAction::Goto { url })
    } else if let Some(selector) = click {
        Some(BrowserAction::Click { selector })
    } else if let Some(selector) = fill {
        Some(BrowserAction::Fill { value: needed_value(&selector, "fill"), selector })
    } else if let Some(key) = press {
        check_key(&key, problems);
        Some(BrowserAction::Press { key: key.value, selector: on.take() })
    } else if let Some(selector) = select {
        Some(BrowserAction::Select { value: needed_value(&selector, "select"), selector })
    } else {
        wait_for.map(|selector| BrowserAction::WaitFor { selector })
    };
    if let Some(value) = value {
        problems.add(&value.location, "`value` belongs to `fill` and `select`");
    }
    if let Some(on) = on {
        problems.add(&on.location, "`on` belongs to `press`: the element that gets the key");
    }
    action
}

fn check_key(key: &Sourced<String>, problems: &mut ProblemList<'_>) {
    if !squall_browser::is_known_key(&key.value) {
        let hint = "write one character, or a name such as Enter, Tab, Escape, Backspace, ArrowDown";
        problems.add_with_hint(&key.location, format!("there is no key `{}`", key.value), hint);
    }
}

fn expectation(table: &mut TomlTable<'_, '_>, problems: &mut ProblemList<'_>) -> Expectation<Sourced<String>> {
    let node = table.get("expect");
    let Some(mut table) = node.and_then(|node| TomlTable::from_node(node, "expect of a browser step", problems)) else {
        return Expectation::default();
    };
    let expect = Expectation {
        url: table.string("url", problems),
        text: table.string("text", problems),
        selector: table.string("selector", problems),
        visible: table.string("visible", problems),
        hidden: table.string("hidden", problems),
    };
    if let (Some(selector), None) = (&expect.selector, &expect.text) {
        let hint = "add text = \"…\", or write visible = \"…\"";
        problems.add_with_hint(
            &selector.location,
            "`selector` says where `text` is looked for, and there is none",
            hint,
        );
    }
    table.report_unknown_keys(problems);
    expect
}
