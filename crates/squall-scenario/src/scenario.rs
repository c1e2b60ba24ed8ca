//! The front door: text or URL in, validated scenario or every problem out.

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
    /// What the engine and the report must know.
    pub plan: Plan,
    compiled: Arc<CompiledScenario>,
}

impl Scenario {
    /// Reads a scenario file's `text`. `file` is its name for messages; `files` reads what it refers to.
    ///
    /// ```
    /// use squall_scenario::{NoFiles, Overrides, Scenario};
    /// let text = r#"
    ///     target = "http://127.0.0.1:8089"
    ///     [[task]]
    ///     name = "browse"
    ///     get = "/api/products?page={{ random(1, 20) }}"
    /// "#;
    /// let scenario = Scenario::parse("shop.toml", text, &mut NoFiles, Overrides::default()).unwrap();
    /// assert_eq!(scenario.plan.name, "shop");
    ///
    /// let errors = Scenario::parse("shop.toml", "taget = 1", &mut NoFiles, Overrides::default()).unwrap_err();
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
        let name = without_credentials(&request.url);
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

    /// The driver of a member of a fleet, and what it has to be supplied with because the others use it too.
    pub fn driver_with_shared_counters(&self) -> (ScenarioDriver, Vec<SharedCounter>) {
        ScenarioDriver::with_shared_counters(self.compiled.clone())
    }

    /// The pools that it wants to find.
    pub fn pool_contents(&self) -> Vec<PoolContents> {
        let held = self.compiled.data.iter().filter(|table| matches!(table.order, RowOrder::Leased { .. }));
        held.map(|table| PoolContents {
            pool: table.name.clone(),
            payloads: (0..table.rows).map(|row| table.row_as_json(row)).collect(),
        })
        .collect()
    }

    /// What [`ScenarioOverrides::declared_variables`] can set, with the values as they were written.
    pub fn variables(&self) -> &[(String, serde_json::Value)] {
        &self.compiled.declared_variables
    }

    /// The plan in words.
    pub fn describe(&self) -> String {
        describe::describe(&self.plan, &self.compiled)
    }
}

impl From<BuiltScenario> for Scenario {
    fn from(built: BuiltScenario) -> Scenario {
        Scenario { plan: built.plan, compiled: built.compiled }
    }
}

/// The scenario file that would say the same.
fn raw_scenario_from_url(request: UrlRequest, problems: &mut ProblemList<'_>) -> RawScenario {
    let place = SourceLocation::Flag("URL".to_owned());
    let has_scheme = request.url.contains("://") || request.url.starts_with("{{");
    let url = if has_scheme { request.url } else { format!("http://{}", request.url) };
    let bodies = [
        request.body.map(|body| (body.location.clone(), RawBody::Text(body))),
        request.body_file.map(|file| (file.location.clone(), RawBody::File(file))),
        request.json.map(|json| (json.location.clone(), RawBody::JsonText(json))),
        request
            .form
            .first()
            .cloned()
            .map(|first| (first.location, RawBody::Form(parse_pairs(&request.form, problems)))),
    ];
    let mut bodies = bodies.into_iter().flatten();
    let body = bodies.next().map(|(_, body)| body);
    for (second, _) in bodies {
        problems.add(&second, "the request already has a body: give only one");
    }
    let default_method = if body.is_some() { "POST" } else { "GET" };
    let method = request.method.unwrap_or(Sourced { value: default_method.to_owned(), location: place.clone() });
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
        url: Some(Sourced { value: url, location: place.clone() }),
        query: parse_pairs(&request.query, problems),
        body,
        expect: Some(expect),
        ..RawRequest::default()
    };
    let task = RawTask {
        name: Some(Sourced { value: name, location: place.clone() }),
        ..RawTask::from_request(request, place)
    };
    RawScenario { tasks: vec![task], ..RawScenario::default() }
}

/// The path of a URL, without its query, as a name for its metric.
fn url_path(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..].find('/').map_or("/", |at| &url[host + at..]);
    path.split(['?', '#']).next().unwrap_or("/")
}

/// `name=value` texts.
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
