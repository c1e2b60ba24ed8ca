//! The raw scenario: every table as written. All fields are optional; `build` reports missing and
//! conflicting ones.

use squall_browser::BrowserStep;

use crate::{RawCql, RawHttp, RawLoad, Sourced, error::SourceLocation};

pub(crate) type NameValuePairs = Vec<(Sourced<String>, Sourced<String>)>;

#[derive(Debug, Default)]
pub(crate) struct RawScenario {
    pub(crate) language: ScenarioLanguage,
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) target: Option<Sourced<String>>,
    pub(crate) seed: Option<Sourced<u64>>,
    pub(crate) load: RawLoad,
    pub(crate) thresholds: Vec<Sourced<String>>,
    pub(crate) http: RawHttp,
    pub(crate) browser: RawBrowser,
    pub(crate) cql: RawCql,
    pub(crate) variables: Vec<(Sourced<String>, RawJson)>,
    pub(crate) data: Vec<RawData>,
    pub(crate) resources: Vec<RawResource>,
    pub(crate) on_start: Vec<RawStep>,
    pub(crate) tasks: Vec<RawTask>,
}

/// What a scenario is written in: decides how messages name settings, and which metrics are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ScenarioLanguage {
    #[default]
    Toml,
    Python,
}

impl ScenarioLanguage {
    /// The name of [`RawLoad::duration`].
    pub(crate) fn duration(self) -> &'static str {
        match self {
            ScenarioLanguage::Toml => "for",
            ScenarioLanguage::Python => "duration",
        }
    }

    /// The name of [`RawLoad::profile`].
    pub(crate) fn profile(self) -> &'static str {
        match self {
            ScenarioLanguage::Toml => "profile",
            ScenarioLanguage::Python => "mode",
        }
    }

    /// How to give the scenario a target.
    pub(crate) fn target_hint(self) -> &'static str {
        match self {
            ScenarioLanguage::Toml => "add target = \"http://…\" at the top of the file, or --target",
            ScenarioLanguage::Python => "add --target http://…, or @scenario(target=\"http://…\")",
        }
    }

    /// Whether the run may have metrics that the plan does not name: Python code names its metrics
    /// at run time. A threshold on a metric that never appears fails.
    pub(crate) fn allows_unknown_metrics(self) -> bool {
        self == ScenarioLanguage::Python
    }
}

#[derive(Debug)]
pub(crate) struct RawData {
    pub(crate) location: SourceLocation,
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) file: Option<Sourced<String>>,
    pub(crate) order: Option<Sourced<String>>,
    pub(crate) per: Option<Sourced<String>>,
}

/// The browsers of browser tasks.
#[derive(Debug, Clone, Default)]
pub struct RawBrowser {
    pub executable: Option<Sourced<String>>,
    pub args: Vec<Sourced<String>>,
    /// The time limit of each step.
    pub timeout: Option<Sourced<String>>,
    /// `1280x720`.
    pub viewport: Option<Sourced<String>>,
    /// The folder for pictures of failed steps.
    pub screenshots: Option<Sourced<String>>,
    /// The URL of a grid.
    pub grid: Option<Sourced<String>>,
    /// The grid's API key: itself, `@FILE` or `$NAME`.
    pub token: Option<Sourced<String>>,
    /// A file with the authorities of the grid's certificate.
    pub ca: Option<Sourced<String>>,
}

/// What the users of a task are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TaskKind {
    #[default]
    Http,
    Browser,
    Cql,
}

/// A CQL statement of a task.
#[derive(Debug)]
pub(crate) struct RawCqlStep {
    pub(crate) statement: Sourced<String>,
    pub(crate) values: Vec<RawCqlArgument>,
    pub(crate) consistency: Option<Sourced<String>>,
    pub(crate) page_size: Option<Sourced<u64>>,
    pub(crate) timeout: Option<Sourced<String>>,
    pub(crate) expect: RawCqlExpect,
    pub(crate) extract: Vec<RawColumnExtract>,
}

/// A variable that takes a column of the first row.
#[derive(Debug)]
pub(crate) struct RawColumnExtract {
    pub(crate) variable: Sourced<String>,
    pub(crate) column: Sourced<String>,
    pub(crate) default: Option<Sourced<String>>,
}

impl RawCqlStep {
    /// Stands for the statements of code.
    pub(crate) fn sample(location: SourceLocation) -> RawCqlStep {
        RawCqlStep {
            statement: Sourced { value: String::new(), location },
            values: Vec::new(),
            consistency: None,
            page_size: None,
            timeout: None,
            expect: RawCqlExpect::default(),
            extract: Vec::new(),
        }
    }
}

/// A value of a statement.
#[derive(Debug)]
pub(crate) enum RawCqlArgument {
    Given(RawJson),
    /// `{ population = "uniform(1..100)", size = "fixed(8)" }`.
    Generated {
        population: Sourced<String>,
        size: Option<Sourced<String>>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct RawCqlExpect {
    pub(crate) rows: Option<Sourced<u64>>,
    pub(crate) min_rows: Option<Sourced<u64>>,
    pub(crate) max_rows: Option<Sourced<u64>>,
    /// Columns of the first row.
    pub(crate) columns: NameValuePairs,
    pub(crate) max_ms: Option<Sourced<f64>>,
}

/// A step of a browser task.
#[derive(Debug)]
pub(crate) struct RawBrowserStep {
    pub(crate) step: BrowserStep<Sourced<String>>,
    /// The time limit of the step.
    pub(crate) timeout: Option<Sourced<String>>,
}

/// A pool of resources, each leased to one user at a time.
#[derive(Debug)]
pub(crate) struct RawResource {
    pub(crate) location: SourceLocation,
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) file: Option<Sourced<String>>,
    pub(crate) count: Option<Sourced<u64>>,
    /// The fields of numbered resources.
    pub(crate) fields: NameValuePairs,
    pub(crate) wait: Option<Sourced<String>>,
}

#[derive(Debug)]
pub(crate) struct RawTask {
    pub(crate) location: SourceLocation,
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) weight: Option<Sourced<f64>>,
    pub(crate) group: Option<Sourced<String>>,
    pub(crate) tags: NameValuePairs,
    pub(crate) requires: Vec<Sourced<String>>,
    pub(crate) every: Option<Sourced<String>>,
    /// The time limit of the whole task.
    pub(crate) timeout: Option<Sourced<String>>,
    pub(crate) think: Option<Sourced<String>>,
    pub(crate) continue_on_failure: bool,
    pub(crate) kind: TaskKind,
    /// The request in the task's own table.
    pub(crate) request: Option<RawRequest>,
    /// The step of a browser task in the task's own table.
    pub(crate) browser: Option<RawBrowserStep>,
    /// The statement of a CQL task in the task's own table.
    pub(crate) cql: Option<RawCqlStep>,
    pub(crate) steps: Vec<RawStep>,
}

impl RawTask {
    /// A task with just one request.
    pub(crate) fn from_request(request: RawRequest, location: SourceLocation) -> RawTask {
        RawTask {
            location,
            name: None,
            weight: None,
            group: None,
            tags: Vec::new(),
            requires: Vec::new(),
            every: None,
            timeout: None,
            think: None,
            continue_on_failure: false,
            kind: TaskKind::Http,
            request: Some(request),
            browser: None,
            cql: None,
            steps: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RawStep {
    pub(crate) location: SourceLocation,
    pub(crate) name: Option<Sourced<String>>,
    pub(crate) group: Option<Sourced<String>>,
    pub(crate) think: Option<Sourced<String>>,
    pub(crate) continue_on_failure: bool,
    pub(crate) request: Option<RawRequest>,
    /// Set in place of `request` in a browser task.
    pub(crate) browser: Option<RawBrowserStep>,
    /// Set in place of `request` if the step is a CQL statement.
    pub(crate) cql: Option<RawCqlStep>,
}

#[derive(Debug, Default)]
pub(crate) struct RawRequest {
    pub(crate) method: Option<Sourced<String>>,
    pub(crate) url: Option<Sourced<String>>,
    pub(crate) headers: NameValuePairs,
    pub(crate) query: NameValuePairs,
    pub(crate) body: Option<RawBody>,
    pub(crate) basic: Option<Sourced<String>>,
    pub(crate) bearer: Option<Sourced<String>>,
    /// The time limit of this request.
    pub(crate) timeout: Option<Sourced<String>>,
    pub(crate) expect: Option<RawExpect>,
    pub(crate) extract: Vec<(Sourced<String>, RawExtract)>,
}

#[derive(Debug)]
pub(crate) enum RawBody {
    Text(Sourced<String>),
    File(Sourced<String>),
    Json(RawJson),
    /// JSON as text, sent unchanged.
    JsonText(Sourced<String>),
    Form(NameValuePairs),
}

/// A JSON value whose strings may be templates.
#[derive(Debug, Clone)]
pub(crate) enum RawJson {
    Text(Sourced<String>),
    /// A number or a boolean, as JSON writes it.
    Literal(Sourced<String>),
    Array(Vec<RawJson>),
    Object(Vec<(String, RawJson)>),
}

#[derive(Debug, Default)]
pub(crate) struct RawExpect {
    pub(crate) status: Vec<Sourced<String>>,
    pub(crate) headers: Vec<(Sourced<String>, RawHeaderCheck)>,
    pub(crate) body_contains: Vec<Sourced<String>>,
    pub(crate) body_matches: Vec<Sourced<String>>,
    pub(crate) json: Vec<(Sourced<String>, RawJsonCheck)>,
    pub(crate) max_ms: Option<Sourced<f64>>,
}

#[derive(Debug)]
pub(crate) enum RawHeaderCheck {
    Equals(Sourced<String>),
    Contains(Sourced<String>),
    Matches(Sourced<String>),
    /// Whether the path selects anything.
    Present(bool),
}

#[derive(Debug)]
pub(crate) enum RawJsonCheck {
    Equals(RawJson),
    Present(bool),
    Count(u64),
}

#[derive(Debug, Default)]
pub(crate) struct RawExtract {
    pub(crate) json: Option<Sourced<String>>,
    pub(crate) header: Option<Sourced<String>>,
    pub(crate) regex: Option<Sourced<String>>,
    /// The group of the regex; default 1 if it has one.
    pub(crate) group: Option<Sourced<u64>>,
    pub(crate) default: Option<Sourced<String>>,
}
