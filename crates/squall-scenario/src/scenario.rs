//! The entry point of the crate: turns a file's text or a URL into a validated scenario, or into all of its
//! problems. Called by the command line and the Python module.

use squall_engine::SharedCounter;
use squall_http::HttpConfig;
use squall_model::{Plan, PoolContents};
use std::sync::Arc;

use crate::{
    ScenarioDriver, ScenarioErrors, ScenarioFiles, ScenarioOverrides, Sourced, UrlRequest,
    build::{BuiltScenario, ScenarioBuilder, build_scenario, without_credentials},
    compiled_scenario::CompiledScenario,
    data::RowOrder,
    describe,
    error::{ProblemList, SourceLocation},
    read::{self, RawBody, RawExpect, RawRequest, RawScenario, RawTask},
};

/// A validated scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The part of the scenario that the engine and the report use.
    pub plan: Plan,
    compiled: Arc<CompiledScenario>,
}

impl Scenario {
    /// Parses the `text` of a scenario file. Messages call it `file`; `files` reads the files that it names.
    ///
    /// ```
    /// use squall_scenario::{NoFiles, Scenario, ScenarioOverrides};
    /// let text = r#"
    ///     target = "http://127.0.0.1:8089"
    ///     [[task]]
    ///     name = "browse"
    ///     get = "/api/products?page={{ random(1, 20) }}"
    /// "#;
    /// let scenario = Scenario::parse("shop.toml", text, &mut NoFiles, ScenarioOverrides::default()).unwrap();
    /// assert_eq!(scenario.plan.name, "shop");
    ///
    /// let overrides = ScenarioOverrides::default();
    /// let errors = Scenario::parse("shop.toml", "taget = 1", &mut NoFiles, overrides).unwrap_err();
    /// assert!(errors.to_string().contains("did you mean `target`?"));
    /// ```
    pub fn parse(
        file: &str,
        text: &str,
        files: &mut dyn ScenarioFiles,
        overrides: ScenarioOverrides,
    ) -> Result<Scenario, ScenarioErrors> {
        let mut problems = ProblemList::new(file, text);
        let raw = read::read_scenario(text, &mut problems);
        let stem = std::path::Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or("scenario");
        let mut builder = ScenarioBuilder::new(&mut problems, files, text);
        let built = raw.and_then(|raw| build_scenario(raw, overrides, stem, &mut builder));
        problems.finish(built.map(Scenario::from))
    }

    /// A scenario of one request. Its problems name flags instead of lines.
    pub fn from_url(
        request: UrlRequest,
        files: &mut dyn ScenarioFiles,
        overrides: ScenarioOverrides,
    ) -> Result<Scenario, ScenarioErrors> {
        let mut problems = ProblemList::new("command line", "");
        let name = default_run_name(&request.url);
        let raw = raw_scenario_from_url(request, &mut problems);
        let mut builder = ScenarioBuilder::new(&mut problems, files, "");
        let built = build_scenario(raw, ScenarioOverrides { target: None, ..overrides }, &name, &mut builder);
        problems.finish(built.map(Scenario::from))
    }

    /// The settings of the HTTP client.
    pub fn http(&self) -> &HttpConfig {
        self.compiled.connector.config()
    }

    /// The driver of the whole run.
    pub fn driver(&self) -> ScenarioDriver {
        ScenarioDriver::new(self.compiled.clone())
    }

    /// The driver of one worker of a fleet, and the counters that all workers share.
    pub fn driver_with_shared_counters(&self) -> (ScenarioDriver, Vec<SharedCounter>) {
        ScenarioDriver::with_shared_counters(self.compiled.clone())
    }

    /// The resource pools that the scenario uses, with their contents.
    pub fn pool_contents(&self) -> Vec<PoolContents> {
        let leased = self.compiled.data.iter().filter(|table| matches!(table.order, RowOrder::Leased { .. }));
        leased
            .map(|table| PoolContents {
                pool: table.name.clone(),
                payloads: (0..table.rows).map(|row| table.row_as_json(row)).collect(),
            })
            .collect()
    }

    /// The variables that [`ScenarioOverrides::variables`] can set, with their values as written.
    pub fn variables(&self) -> &[(String, serde_json::Value)] {
        &self.compiled.declared_variables
    }

    /// A description of the plan for people.
    pub fn describe(&self) -> String {
        describe::describe(&self.plan, &self.compiled)
    }
}

impl From<BuiltScenario> for Scenario {
    fn from(built: BuiltScenario) -> Scenario {
        Scenario { plan: built.plan, compiled: built.compiled }
    }
}

/// The raw scenario of a file with just this request.
fn raw_scenario_from_url(mut request: UrlRequest, problems: &mut ProblemList<'_>) -> RawScenario {
    let location = SourceLocation::Flag("URL".to_owned());
    let body = take_body(&mut request, problems);
    let has_scheme = request.url.contains("://") || request.url.starts_with("{{");
    let url = if has_scheme { request.url } else { format!("http://{}", request.url) };
    let default_method = if body.is_some() { "POST" } else { "GET" };
    let method = request.method.unwrap_or(Sourced { value: default_method.to_owned(), location: location.clone() });
    let status = request.expect_status.iter().flat_map(|given| {
        given.value.split(',').map(|status| Sourced { value: status.to_owned(), location: given.location.clone() })
    });
    let expect = RawExpect {
        status: status.collect(),
        body_contains: request.expect_body.into_iter().collect(),
        ..RawExpect::default()
    };
    let name = format!("{} {}", method.value.to_ascii_uppercase(), url_path(&url));
    let request = RawRequest {
        method: Some(method),
        url: Some(Sourced { value: url, location: location.clone() }),
        query: parse_pairs(&request.query, problems),
        body,
        expect: Some(expect),
        ..RawRequest::default()
    };
    let task = RawTask {
        name: Some(Sourced { value: name, location: location.clone() }),
        ..RawTask::from_request(request, location)
    };
    RawScenario { tasks: vec![task], ..RawScenario::default() }
}

/// Takes the body out of the request. Several bodies are a problem each after the first.
fn take_body(request: &mut UrlRequest, problems: &mut ProblemList<'_>) -> Option<RawBody> {
    let form = std::mem::take(&mut request.form);
    let form_location = form.first().map(|first| first.location.clone());
    let bodies = [
        request.body.take().map(|body| (body.location.clone(), RawBody::Text(body))),
        request.body_file.take().map(|file| (file.location.clone(), RawBody::File(file))),
        request.json.take().map(|json| (json.location.clone(), RawBody::JsonText(json))),
        form_location.map(|location| (location, RawBody::Form(parse_pairs(&form, problems)))),
    ];
    let mut bodies = bodies.into_iter().flatten();
    let body = bodies.next().map(|(_, body)| body);
    for (second, _) in bodies {
        problems.add(&second, "the request already has a body: give only one");
    }
    body
}

/// The path of a URL, without its query, as a name for its metric.
fn url_path(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..].find('/').map_or("/", |at| &url[host + at..]);
    path.split(['?', '#']).next().unwrap_or("/")
}

/// The URL without credentials and without the values of its query, because reports are passed on to others.
fn default_run_name(url: &str) -> String {
    let shown = without_credentials(url);
    let Some((base, query)) = shown.split_once('?') else { return shown };
    let without_value = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}=…"),
        _ => pair.to_owned(),
    };
    format!("{base}?{}", query.split('&').map(without_value).collect::<Vec<_>>().join("&"))
}

/// Splits `name=value` texts.
fn parse_pairs(given: &[Sourced<String>], problems: &mut ProblemList<'_>) -> read::NameValuePairs {
    let pair = |given: &Sourced<String>| match given.value.split_once('=') {
        Some((name, value)) => {
            let part = |text: &str| Sourced { value: text.to_owned(), location: given.location.clone() };
            Some((part(name), part(value)))
        }
        None => {
            problems.add(&given.location, format!("`{}` is not of the form name=value", given.value));
            None
        }
    };
    given.iter().filter_map(pair).collect()
}
