//! Scenarios that are written as code: builds the plan and the HTTP client from what the code
//! declares (load, thresholds, tasks). The code makes the requests, so there is no driver here. The
//! Python module calls it.

use squall_http::Connector;
use squall_model::Plan;

use crate::{
    BrowserSettings, NoFiles, RawBrowser, RawCql, RawLoad, ScenarioErrors, ScenarioOverrides, Sourced,
    build::{ScenarioBuilder, build_scenario},
    error::{ProblemList, SourceLocation},
    read::{RawCqlStep, RawRequest, RawScenario, RawTask, ScenarioLanguage, TaskKind},
};

/// What the code declares, before validation. Values have a [`SourceLocation::Code`].
#[derive(Debug, Clone)]
pub struct RawCodeScenario {
    /// The file as the user named it.
    pub file: String,
    /// Where the code declares the scenario.
    pub location: SourceLocation,
    pub name: Sourced<String>,
    /// The base of relative URLs.
    pub target: Option<Sourced<String>>,
    /// Scheme and host of the first absolute URL in the code. With one, the scenario needs no
    /// target.
    pub absolute_origin: Option<String>,
    pub load: RawLoad,
    pub thresholds: Vec<Sourced<String>>,
    /// The database of the code's CQL statements.
    pub cql: RawCql,
    pub tasks: Vec<RawCodeTask>,
    /// The browsers of tasks that use one.
    pub browser: RawBrowser,
    /// What the reader should know about the settings.
    pub notes: Vec<String>,
}

/// A task whose requests the code makes.
#[derive(Debug, Clone)]
pub struct RawCodeTask {
    pub name: Sourced<String>,
    pub weight: Sourced<f64>,
    /// The names of tasks that the same user must complete first.
    pub requires: Vec<Sourced<String>>,
    /// The time between two starts by the same user: `2s`, or `2s..5s` for a random one.
    pub every: Option<Sourced<String>>,
}

/// A validated scenario that code runs.
#[derive(Debug, Clone)]
pub struct CodeScenario {
    /// The part of the scenario that the engine and the report use.
    pub plan: Plan,
    /// Makes the HTTP clients of its users.
    pub connector: Connector,
    pub browser: BrowserSettings,
    /// The database of its users; `None` if the code declares none.
    #[cfg(feature = "cql")]
    pub cql: Option<squall_cql::StatementConnection>,
    /// What the code says about its settings, and how the run differs from what it declares, where no flag
    /// says so literally.
    pub notes: Vec<String>,
}

impl CodeScenario {
    /// Validates `raw` and reports every mistake at once.
    ///
    /// ```
    /// use squall_scenario::{
    ///     CodeLocation, CodeScenario, RawCodeScenario, RawCodeTask, RawLoad, ScenarioOverrides,
    ///     SourceLocation, Sourced,
    /// };
    /// fn line_3(setting: Option<&str>) -> SourceLocation {
    ///     let setting = setting.map(Into::into);
    ///     SourceLocation::Code(CodeLocation { file: "shop.py".into(), line: 3, setting })
    /// }
    /// fn given<T>(value: T, setting: &str) -> Sourced<T> {
    ///     Sourced { value, location: line_3(Some(setting)) }
    /// }
    /// let mut shop = RawCodeScenario {
    ///     file: "shop.py".into(),
    ///     location: line_3(None),
    ///     name: given("Shop".into(), "name"),
    ///     target: Some(given("http://127.0.0.1:8089".into(), "target")),
    ///     absolute_origin: None,
    ///     load: RawLoad { rate: Some(given("50".into(), "rate")), ..RawLoad::default() },
    ///     thresholds: Vec::new(),
    ///     cql: Default::default(),
    ///     tasks: vec![RawCodeTask {
    ///         name: given("browse".into(), "task 'browse': name"),
    ///         weight: given(1.0, "task 'browse': weight"),
    ///         requires: Vec::new(),
    ///         every: None,
    ///     }],
    ///     browser: Default::default(),
    ///     notes: Vec::new(),
    /// };
    /// let scenario = CodeScenario::build(shop.clone(), ScenarioOverrides::default()).unwrap();
    /// assert_eq!(scenario.plan.name, "Shop");
    ///
    /// shop.load.duration = Some(given("soon".into(), "duration"));
    /// let errors = CodeScenario::build(shop, ScenarioOverrides::default()).unwrap_err();
    /// assert!(errors.to_string().starts_with("shop.py:3: duration: `soon` is not a duration"));
    /// ```
    pub fn build(raw: RawCodeScenario, overrides: ScenarioOverrides) -> Result<CodeScenario, ScenarioErrors> {
        let mut problems = ProblemList::new(&raw.file, "");
        let mut files = NoFiles;
        let mut builder = ScenarioBuilder::new(&mut problems, &mut files, "");
        let (default_name, mut notes) = (raw.name.value.clone(), raw.notes.clone());
        let built = build_scenario(raw.into(), overrides, &default_name, &mut builder);
        problems.finish(built.map(|built| {
            notes.extend_from_slice(&built.compiled.notes);
            CodeScenario {
                plan: built.plan,
                connector: built.compiled.connector.clone(),
                browser: built.compiled.browser.clone(),
                #[cfg(feature = "cql")]
                cql: built.compiled.cql.clone(),
                notes,
            }
        }))
    }
}

impl From<RawCodeScenario> for RawScenario {
    fn from(raw: RawCodeScenario) -> RawScenario {
        let sample = match (&raw.target, raw.absolute_origin) {
            (Some(target), _) => Sourced { value: "/".to_owned(), location: target.location.clone() },
            (None, Some(origin)) => Sourced { value: format!("{origin}/"), location: raw.location },
            (None, None) => Sourced { value: "/".to_owned(), location: raw.location },
        };
        // With a database, code may send statements only, and needs no target.
        let statements_only = raw.cql.location.is_some() && raw.target.is_none() && sample.value == "/";
        let mut tasks: Vec<RawTask> = raw.tasks.into_iter().map(|task| raw_task(task, &sample)).collect();
        if statements_only {
            tasks.iter_mut().for_each(|task| {
                (task.kind, task.request) = (TaskKind::Cql, None);
                task.cql = Some(RawCqlStep::sample(sample.location.clone()));
            });
        }
        RawScenario {
            language: ScenarioLanguage::Python,
            name: Some(raw.name),
            target: raw.target,
            load: raw.load,
            thresholds: raw.thresholds,
            cql: raw.cql,
            tasks,
            browser: raw.browser,
            ..RawScenario::default()
        }
    }
}

/// The task with a request for the URL `sample` in place of those that the code makes. Building it
/// checks target, headers and addresses as for any other request; nothing sends it.
fn raw_task(task: RawCodeTask, sample: &Sourced<String>) -> RawTask {
    let request = RawRequest { url: Some(sample.clone()), ..RawRequest::default() };
    let location = task.name.location.clone();
    RawTask {
        name: Some(task.name),
        weight: Some(task.weight),
        requires: task.requires,
        every: task.every,
        ..RawTask::from_request(request, location)
    }
}
