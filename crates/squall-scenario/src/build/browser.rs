//! Builds browser tasks: the settings of browsers, and steps with their templates. Starts no browser.

use squall_browser::{BrowserAction, BrowserStep};
use squall_http::{TlsClientConfig, TlsOptions, websocket_tls};
use squall_metrics::{MetricKey, MetricKind};
use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{
    ScenarioBuilder,
    request::RequestDefaults,
    tasks::{InheritedSettings, step_name},
    value::{pause, positive_duration},
};
use crate::{
    Sourced,
    compiled_scenario::{BrowserSettings, CompiledBrowserStep, GridSettings},
    error::SourceLocation,
    read::{RawBrowser, RawBrowserStep, RawScenario, RawTask, ScenarioLanguage, TaskKind},
    template::Template,
};

/// The time limit of a step, as in Playwright.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// What can be measured of a page: the metric of a step, `:` and one of these names.
pub(crate) const PAGE_FIGURES: [&str; 9] =
    ["ttfb", "fcp", "dom_ready", "load", "lcp", "cls", "inp", "requests", "console_errors"];

impl ScenarioBuilder<'_, '_> {
    pub(super) fn browser_settings(&mut self, raw: &RawScenario) -> BrowserSettings {
        let first = raw.tasks.iter().find(|task| task.kind == TaskKind::Browser);
        if let (Some(task), false) = (first, cfg!(feature = "browser")) {
            let message = "this squall was built without browser users";
            self.problems.add_with_hint(&task.location, message, crate::WHOLE_PROGRAM_HINT);
        }
        let browser = &raw.browser;
        let path = |given: &Option<Sourced<String>>| given.as_ref().map(|path| PathBuf::from(&path.value));
        BrowserSettings {
            executable: path(&browser.executable),
            args: browser.args.iter().map(|arg| arg.value.clone()).collect(),
            viewport: browser.viewport.as_ref().and_then(|given| self.viewport(given)),
            screenshots: path(&browser.screenshots),
            step_timeout: self.step_timeout(raw),
            grid: self.grid(browser, raw.language),
        }
    }

    fn grid(&mut self, browser: &RawBrowser, language: ScenarioLanguage) -> Option<GridSettings> {
        let Some(given) = &browser.grid else {
            if let Some(token) = &browser.token {
                self.problems.add(&token.location, "`token` is the API key of a grid, and there is no `grid`");
            }
            return None;
        };
        let own = browser.executable.as_ref().into_iter().chain(&browser.args);
        for setting in own {
            let message = "this is for a browser that the run starts, and `grid` names the place of the browsers";
            self.problems.add_with_hint(&setting.location, message, "leave one of the two out");
        }
        let (base, query) = match given.value.split_once('?') {
            Some((base, query)) => (base, Some(query.to_owned()).filter(|query| !query.is_empty())),
            None => (given.value.as_str(), None),
        };
        let base = base.trim_end_matches('/').to_owned();
        if !["ws://", "wss://"].iter().any(|scheme| base.strip_prefix(scheme).is_some_and(|host| !host.is_empty())) {
            let message = format!("`{base}` is no URL of a grid");
            self.problems.add_with_hint(&given.location, message, "write grid = \"ws://host:8080\"");
        }
        let tls = match base.starts_with("wss://") {
            // Playwright verifies the grid itself.
            true if language == ScenarioLanguage::Toml => self.grid_tls(given, browser.ca.as_ref()),
            true => None,
            false => {
                if let Some(ca) = &browser.ca {
                    let message = "`ca` is for a grid with TLS, and the URL of `grid` begins with ws://";
                    self.problems.add_with_hint(&ca.location, message, "write wss://, or leave `ca` out");
                }
                None
            }
        };
        let token = browser.token.as_ref().and_then(|token| self.secret(token, "the token"));
        Some(GridSettings { base, query, token, tls })
    }

    /// Trusts the authorities of `ca`, or those of the system.
    fn grid_tls(&mut self, grid: &Sourced<String>, ca: Option<&Sourced<String>>) -> Option<Arc<TlsClientConfig>> {
        let path = match ca {
            Some(ca) => Some(self.require_readable(ca)?),
            None => None,
        };
        let built = websocket_tls(&TlsOptions { ca: path, ..TlsOptions::default() });
        let location = ca.map_or(&grid.location, |ca| &ca.location);
        built.map_err(|error| self.problems.add(location, error.to_string())).ok()
    }

    fn step_timeout(&mut self, raw: &RawScenario) -> Duration {
        let given = raw.browser.timeout.as_ref();
        given.and_then(|given| positive_duration(given, self.problems)).unwrap_or(STEP_TIMEOUT)
    }

    fn viewport(&mut self, given: &Sourced<String>) -> Option<(u32, u32)> {
        let size = |text: &str| text.trim().parse::<u32>().ok().filter(|pixels| (1..=10_000).contains(pixels));
        let parsed = given.value.split_once('x').and_then(|(width, height)| Some((size(width)?, size(height)?)));
        if parsed.is_none() {
            let message = format!("`{}` is not a size in pixels", given.value);
            self.problems.add_with_hint(&given.location, message, "write viewport = \"1280x720\"");
        }
        parsed
    }

    pub(super) fn browser_steps(
        &mut self,
        task: &str,
        raw: &RawTask,
        inherited: &InheritedSettings<'_>,
        defaults: &RequestDefaults,
    ) -> Vec<CompiledBrowserStep> {
        let no_step = "add goto = \"/path\" (or click, fill, press, select, wait_for, expect)";
        match (&raw.browser, raw.steps.as_slice()) {
            (Some(step), []) => self.browser_step(task, step, &raw.location, inherited, defaults).into_iter().collect(),
            (None, []) => {
                let message = format!("the browser task `{task}` has no step");
                self.problems.add_with_hint(&raw.location, message, no_step);
                Vec::new()
            }
            (Some(_), _) => {
                let message = format!("the browser task `{task}` has an action and steps");
                self.problems.add_with_hint(&raw.location, message, "move the action into a [[task.step]] of its own");
                Vec::new()
            }
            (None, steps) => {
                let mut compiled: Vec<CompiledBrowserStep> = Vec::new();
                for (index, raw) in steps.iter().enumerate() {
                    let name = step_name(raw, index);
                    let metric = format!("{task}/{name}");
                    if compiled.iter().any(|other| other.metric.name == metric) {
                        let location = raw.name.as_ref().map_or(&raw.location, |name| &name.location);
                        self.problems.add(location, format!("`{task}` already has a step called `{name}`"));
                    }
                    let Some(step) = &raw.browser else {
                        let message = format!("the step `{name}` does nothing");
                        self.problems.add_with_hint(&raw.location, message, no_step);
                        continue;
                    };
                    let think = raw.think.as_ref().map(|think| pause(think, self.problems));
                    let own = InheritedSettings {
                        group: raw.group.as_ref().map(|group| group.value.as_str()).or(inherited.group),
                        tags: inherited.tags.clone(),
                        think: think.unwrap_or(inherited.think),
                        continue_on_failure: raw.continue_on_failure || inherited.continue_on_failure,
                    };
                    if let Some(mut step) = self.browser_step(&metric, step, &raw.location, &own, defaults) {
                        step.group = raw.group.as_ref().map(|group| group.value.clone());
                        compiled.push(step);
                    }
                }
                compiled
            }
        }
    }

    fn browser_step(
        &mut self,
        metric: &str,
        raw: &RawBrowserStep,
        location: &SourceLocation,
        inherited: &InheritedSettings<'_>,
        defaults: &RequestDefaults,
    ) -> Option<CompiledBrowserStep> {
        let timeout = raw.timeout.as_ref().and_then(|given| positive_duration(given, self.problems));
        let step = match &raw.step.action {
            Some(BrowserAction::Goto { url }) => {
                let url = self.page_url(url, defaults)?;
                let rest = BrowserStep { action: None, expect: raw.step.expect.clone() };
                let expect = self.texts(&rest).expect;
                BrowserStep { action: Some(BrowserAction::Goto { url }), expect }
            }
            _ => self.texts(&raw.step),
        };
        Some(CompiledBrowserStep {
            metric: MetricKey {
                name: metric.to_owned(),
                kind: MetricKind::Request,
                group: inherited.group.map(str::to_owned),
                tags: inherited.tags.clone(),
            },
            group: None,
            think: inherited.think.filter(|think| !think.is_none()),
            continue_on_failure: inherited.continue_on_failure,
            timeout,
            step,
            location: self.problems.file_and_line(location),
            display_text: display_text(&raw.step),
        })
    }

    fn texts(&mut self, step: &BrowserStep<Sourced<String>>) -> BrowserStep<Template> {
        let compiled = step.try_map(|text| Ok::<_, std::convert::Infallible>(self.template(text).fold_constants()));
        compiled.expect("a wrong template is reported and replaced")
    }

    /// A whole URL: paths start from the target, as those of requests do.
    fn page_url(&mut self, url: &Sourced<String>, defaults: &RequestDefaults) -> Option<Template> {
        let (origin, path) = self.split_url(url, defaults)?;
        let mut whole = Template::text(origin);
        whole.append(path);
        Some(whole.fold_constants())
    }
}

fn display_text(step: &BrowserStep<Sourced<String>>) -> String {
    let shown = step.try_map(|text| Ok::<_, std::convert::Infallible>(text.value.clone())).expect("nothing fails");
    let action = shown.action.as_ref().map(ToString::to_string);
    let expect = &shown.expect;
    let expected = [&expect.url, &expect.text, &expect.visible, &expect.hidden];
    let words = ["url", "text", "visible", "hidden"].into_iter().zip(expected);
    let words: Vec<&str> = words.filter(|(_, given)| given.is_some()).map(|(word, _)| word).collect();
    match (action, words.is_empty()) {
        (Some(action), true) => action,
        (Some(action), false) => format!("{action}  expects {}", words.join(", ")),
        (None, _) => format!("expects {}", words.join(", ")),
    }
}
