//! A scenario with every name resolved and every template compiled. Immutable, and shared by all
//! threads. `build` makes it, the driver runs it.

use squall_browser::BrowserStep;
use squall_http::{Connector, TlsClientConfig};
use squall_metrics::MetricKey;
use squall_model::Pause;
use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    check::{ResponseChecks, ValueExtractor},
    data::DataTable,
    template::{ColumnRef, Template},
};

#[derive(Debug)]
pub(crate) struct CompiledScenario {
    pub(crate) connector: Connector,
    pub(crate) browser: BrowserSettings,
    /// The database of the statements; `None` if there are none.
    #[cfg(feature = "cql")]
    pub(crate) cql: Option<squall_cql::StatementConnection>,
    pub(crate) data: Vec<DataTable>,
    /// The variables of a user.
    pub(crate) variables: Vec<ScenarioVariable>,
    /// Runs once for each user. May have no steps.
    pub(crate) on_start: CompiledFlow,
    /// In the plan's order.
    pub(crate) tasks: Vec<CompiledFlow>,
    /// Set in an open model, where iterations are numbered over all users: an iteration's random values
    /// depend on this seed and its number. In a closed model they depend on the user's seed and the
    /// iteration's number of that user.
    pub(crate) open_model_seed: Option<u64>,
    /// The names that thresholds can use.
    pub(crate) metric_names: Vec<String>,
    /// The variables that `--param` can set, with their values as written.
    pub(crate) declared_variables: Vec<(String, serde_json::Value)>,
    /// How the run differs from what the scenario declares, where no flag says so literally.
    pub(crate) notes: Vec<String>,
}

/// A variable with a value of its own for every user.
#[derive(Debug)]
pub(crate) struct ScenarioVariable {
    pub(crate) name: String,
    /// Its value when the user starts. Without one, a response must set it before it is used.
    pub(crate) initial: Option<Template>,
    /// The initial value is a number or a boolean.
    pub(crate) literal: bool,
}

/// A sequence of steps.
#[derive(Debug, Default)]
pub(crate) struct CompiledFlow {
    /// Names of the groups that time the whole flow.
    pub(crate) spans: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<CompiledStep>,
    /// The CQL statements among the steps.
    pub(crate) statements: Vec<CompiledStatement>,
    /// The order of `steps` and `statements`.
    pub(crate) order: Vec<FlowStep>,
    /// The steps of a browser task, which has no `steps`.
    pub(crate) browser_steps: Vec<CompiledBrowserStep>,
    /// The data sources whose rows it uses.
    pub(crate) data: Vec<usize>,
}

/// A step of a task, by its index among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowStep {
    Request(usize),
    Statement(usize),
}

#[derive(Debug)]
pub(crate) struct CompiledStep {
    pub(crate) metric: MetricKey,
    /// Consecutive steps of one group are timed together.
    pub(crate) group: Option<String>,
    /// The wait after the step.
    pub(crate) think: Option<Pause>,
    pub(crate) continue_on_failure: bool,
    pub(crate) request: CompiledRequest,
    pub(crate) checks: ResponseChecks,
    pub(crate) extracts: Vec<ValueExtractor>,
}

/// The browsers of browser tasks.
#[derive(Debug, Clone)]
pub struct BrowserSettings {
    pub executable: Option<PathBuf>,
    pub args: Vec<String>,
    /// Width and height.
    pub viewport: Option<(u32, u32)>,
    /// The folder for pictures of failed steps.
    pub screenshots: Option<PathBuf>,
    /// The time limit of each step.
    pub step_timeout: Duration,
    /// Where the browsers are; `None` starts them for the run.
    pub grid: Option<GridSettings>,
}

/// A browser grid.
#[derive(Clone)]
pub struct GridSettings {
    /// `ws://host:port`, without a path at its end and without a query.
    pub base: String,
    /// What the URL gives after `?`.
    pub query: Option<String>,
    /// The API key.
    pub token: Option<String>,
    /// How tasks in TOML verify a grid with a `wss://` URL.
    pub tls: Option<Arc<TlsClientConfig>>,
}

impl GridSettings {
    /// The URL of its sessions for CDP clients.
    pub fn cdp_url(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}/devtools/browser{query}", self.base)
    }

    /// The URL of its sessions for Playwright.
    pub fn playwright_url(&self) -> String {
        format!("{}/?{}", self.base, self.query.as_deref().unwrap_or("browser=chromium"))
    }
}

/// Does not show the token.
impl std::fmt::Debug for GridSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridSettings").field("base", &self.base).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct CompiledBrowserStep {
    pub(crate) metric: MetricKey,
    pub(crate) group: Option<String>,
    pub(crate) think: Option<Pause>,
    pub(crate) continue_on_failure: bool,
    /// `None` takes the one of all browsers.
    pub(crate) timeout: Option<Duration>,
    pub(crate) step: BrowserStep<Template>,
    /// `shop.toml:12`, for messages.
    pub(crate) location: String,
    /// The step as written, for `--check`.
    pub(crate) display_text: String,
}

impl CompiledBrowserStep {
    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        let visited = self.step.try_map(|text| {
            text.columns_used(used);
            Ok::<(), std::convert::Infallible>(())
        });
        visited.expect("nothing fails");
    }
}

/// A CQL statement.
#[derive(Debug)]
pub(crate) struct CompiledStatement {
    pub(crate) metric: MetricKey,
    pub(crate) group: Option<String>,
    pub(crate) think: Option<Pause>,
    pub(crate) continue_on_failure: bool,
    pub(crate) cql: String,
    pub(crate) arguments: Vec<StatementArgument>,
    #[cfg(feature = "cql")]
    pub(crate) options: squall_cql::StatementOptions,
    pub(crate) checks: RowChecks,
    pub(crate) extracts: Vec<ColumnExtractor>,
    /// `shop.toml:12`, for messages.
    pub(crate) location: String,
}

/// A value of a statement.
#[derive(Debug)]
pub(crate) enum StatementArgument {
    /// A text in the form that CQL writes the type of the column in.
    Text(Template),
    /// A list or table as JSON.
    Json(Template),
    #[cfg(feature = "cql")]
    Generated(squall_cql::GeneratedValue),
}

/// The expectations on the rows of a statement.
#[derive(Debug, Default)]
pub(crate) struct RowChecks {
    pub(crate) min_rows: Option<u64>,
    pub(crate) max_rows: Option<u64>,
    /// Columns of the first row, and the texts that they must have.
    pub(crate) columns: Vec<(String, Template)>,
    pub(crate) max_service_time: Option<Duration>,
}

/// Sets a variable to a column of the first row.
#[derive(Debug)]
pub(crate) struct ColumnExtractor {
    pub(crate) variable: usize,
    pub(crate) name: String,
    pub(crate) column: String,
    /// The value if there is no row, or null. Without a default that is a failure.
    pub(crate) default: Option<String>,
}

impl CompiledStatement {
    fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        for argument in &self.arguments {
            match argument {
                StatementArgument::Text(template) | StatementArgument::Json(template) => template.columns_used(used),
                #[cfg(feature = "cql")]
                StatementArgument::Generated(_) => {}
            }
        }
        self.checks.columns.iter().for_each(|(_, template)| template.columns_used(used));
    }
}

impl CompiledFlow {
    pub(crate) fn metric(&self, step: FlowStep) -> &MetricKey {
        match step {
            FlowStep::Request(at) => &self.steps[at].metric,
            FlowStep::Statement(at) => &self.statements[at].metric,
        }
    }

    /// The wait after a step, and whether a failure of it ends the task.
    pub(crate) fn after_step(&self, step: FlowStep) -> (Option<Pause>, bool) {
        match step {
            FlowStep::Request(at) => (self.steps[at].think, self.steps[at].continue_on_failure),
            FlowStep::Statement(at) => (self.statements[at].think, self.statements[at].continue_on_failure),
        }
    }

    /// The most requests of one iteration, without redirects.
    pub(crate) fn request_count(&self) -> usize {
        self.order.len() + self.browser_steps.len()
    }

    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        self.steps.iter().for_each(|step| step.columns_used(used));
        self.statements.iter().for_each(|statement| statement.columns_used(used));
        self.browser_steps.iter().for_each(|step| step.columns_used(used));
    }
}

#[derive(Debug)]
pub(crate) struct CompiledRequest {
    /// The whole request if it is constant, else its constant parts.
    pub(crate) constant: squall_http::HttpRequest,
    pub(crate) template: Option<RequestTemplate>,
    /// Method and path as written, for `--check`.
    pub(crate) display_text: String,
}

/// The parts of a request that are rendered for every sending.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    pub(crate) path: Template,
    /// Scheme and authority. Removed from a rendered path that begins with it.
    pub(crate) origin: String,
    pub(crate) headers: Vec<HeaderTemplate>,
    /// `None` sends the constant body.
    pub(crate) body: Option<Template>,
}

#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    pub(crate) name: String,
    pub(crate) value: Template,
    pub(crate) encoding: HeaderEncoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderEncoding {
    Plain,
    /// `user:password` becomes `Basic …`.
    Basic,
}

impl CompiledStep {
    pub(crate) fn needs_body(&self) -> bool {
        self.checks.needs_body() || self.extracts.iter().any(ValueExtractor::needs_body)
    }

    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        if let Some(dynamic) = &self.request.template {
            dynamic.path.columns_used(used);
            dynamic.headers.iter().for_each(|header| header.value.columns_used(used));
            dynamic.body.iter().for_each(|body| body.columns_used(used));
        }
        self.checks.columns_used(used);
    }
}
