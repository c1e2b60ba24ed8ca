//! Turns raw settings into a validated scenario: resolves names, compiles templates, rejects conflicts.
//! It reports every problem with its location and continues with a placeholder, so that one `--check`
//! finds them all. Called by [`Scenario`](crate::Scenario).

mod browser;
mod check;
mod cql;
mod fitted_load;
mod headers;
mod http;
mod load;
mod metric_names;
mod request;
mod resources;
mod secret;
mod tasks;
mod template_scope;
mod thresholds;
mod value;

pub(crate) use browser::PAGE_FIGURES;
#[cfg(feature = "cql")]
pub(crate) use cql::ROW_COUNT;
pub(crate) use thresholds::list_metrics;
use thresholds::{KnownMetrics, fraction_notes};
pub(crate) use value::MAX_DURATION;

pub(crate) use headers::encode_header;
pub(crate) use request::without_credentials;
use squall_http::{Connector, HttpConfig};
use squall_model::{Load, LoadModel, Pause, Plan, Profile};
use std::{sync::Arc, time::Duration};

use crate::{
    RawHttp, ScenarioFiles, ScenarioOverrides, Sourced,
    compiled_scenario::{CompiledFlow, CompiledScenario},
    data::DataTable,
    error::{ProblemList, SourceLocation},
    read::{RawJson, RawScenario},
    template::{Escape, MAX_RENDERED_BYTES, ParsedPart, Template, TemplatePart, TemplateScope, parse},
};

/// What every part of building uses.
pub(crate) struct ScenarioBuilder<'b, 't> {
    pub(crate) problems: &'b mut ProblemList<'t>,
    pub(crate) files: &'b mut dyn ScenarioFiles,
    pub(crate) text: &'t str,
    scope: TemplateScope,
    /// The bytes of all templates and requests so far.
    template_bytes: usize,
}

/// The most bytes that all templates and requests of a scenario may have together, with their constant
/// variables filled in. Each text is bounded by [`MAX_RENDERED_BYTES`], but a small file can have thousands.
const MAX_TEMPLATE_BYTES: usize = 8 * MAX_RENDERED_BYTES;

const SHORTER_TEXT_HINT: &str =
    "shorten the variables in it, or use them less often; a large body can be sent with body_file";

/// The result of building.
pub(crate) struct BuiltScenario {
    pub(crate) plan: Plan,
    pub(crate) compiled: Arc<CompiledScenario>,
}

/// Replaces values of the file's variables.
fn set_variables(raw: &mut RawScenario, values: Vec<(String, Sourced<String>)>, problems: &mut ProblemList<'_>) {
    for (name, value) in values {
        let Some((_, known)) = raw.variables.iter_mut().find(|(known, _)| known.value == name) else {
            let hint = match raw.variables.is_empty() {
                true => "the scenario has no [variables]".to_owned(),
                false => {
                    let names: Vec<&str> = raw.variables.iter().map(|(known, _)| known.value.as_str()).collect();
                    format!("there are {}", names.join(", "))
                }
            };
            problems.add_with_hint(&value.location, format!("there is no variable `{name}`"), &hint);
            continue;
        };
        let scalar = serde_json::from_str(&value.value)
            .is_ok_and(|json: serde_json::Value| json.is_number() || json.is_boolean());
        *known = if scalar { RawJson::Literal(value) } else { RawJson::Text(value) };
    }
}

/// A variable's value as JSON. Templates stay text.
fn variable_as_json(value: &RawJson) -> serde_json::Value {
    match value {
        RawJson::Text(text) => text.value.as_str().into(),
        RawJson::Literal(literal) => serde_json::from_str(&literal.value).unwrap_or_default(),
        // Variables of these types have been reported.
        RawJson::Array(_) | RawJson::Object(_) => serde_json::Value::Null,
    }
}

pub(crate) fn build_scenario(
    mut raw: RawScenario,
    mut overrides: ScenarioOverrides,
    default_name: &str,
    builder: &mut ScenarioBuilder<'_, '_>,
) -> Option<BuiltScenario> {
    for wrong in &overrides.flag_errors {
        builder.problems.add(&wrong.location, wrong.value.as_str());
    }
    let mut notes = fitted_load::fit_to_duration(&mut overrides.load, &mut raw.load);
    load::reject_shape_without_level(&overrides.load, &raw.load, builder.problems);
    raw.load = overrides.load.with_fallback(raw.load);
    raw.http = overrides.http.with_fallback(raw.http);
    set_variables(&mut raw, overrides.variables, builder.problems);
    let declared_variables =
        raw.variables.iter().map(|(name, value)| (name.value.clone(), variable_as_json(value))).collect();
    let load = load::build_load(&raw.load, raw.language, builder.problems).unwrap_or_else(placeholder_load);
    builder.scope.seeded = overrides.seed.is_some() || raw.seed.is_some();
    let (mut data, variables) = builder.build_scope(&raw);
    let open = matches!(load.model, LoadModel::Open { .. });
    if !open {
        data.iter_mut().for_each(DataTable::assign_rows_by_user);
    }
    let http = builder.http(&raw.http);
    let connector = builder.connector(&http, &raw.http);
    let target = overrides.target.or(raw.target.take());
    let target = target.or_else(|| overrides.placeholder_target.map(|url| Sourced::from_flag("--target", url)));
    let target = target.map(|target| builder.target(&target));
    let requests = request::RequestDefaults::new(builder, &raw.http, target.clone(), connector.clone());
    let tasks = builder.tasks(&raw, &requests);
    let browser = builder.browser_settings(&raw);
    let on_start = builder.on_start(&raw, &requests);
    #[cfg(feature = "cql")]
    let cql = builder.cql_connection(&raw, tasks.iter().map(|(_, flow)| flow).chain([&on_start]));
    builder.reject_cql_without_feature(&raw);
    mark_used_columns(&mut data, tasks.iter().map(|(_, flow)| flow).chain([&on_start]));
    if requests.target_missing.get() {
        builder.problems.add_with_hint(
            &SourceLocation::Unknown,
            "there is no target for paths like \"/\" to start from",
            raw.language.target_hint(),
        );
    }
    let (specs, flows): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
    builder.reject_server_name_without_tls(&raw.http, flows.iter().chain([&on_start]));
    let metrics = metric_names::metric_names(&raw, builder.problems);
    let known = KnownMetrics { names: &metrics, allow_unknown: raw.language.allows_unknown_metrics() };
    let thresholds = builder.thresholds(&raw, &overrides.thresholds, known);
    notes.extend(fraction_notes(raw.thresholds.iter().chain(&overrides.thresholds)));
    let shown = target.map(|target| without_credentials(&target.url)).or_else(|| first_origin(&flows));
    #[cfg(feature = "cql")]
    let shown = shown.or_else(|| cql.as_ref().map(squall_cql::StatementConnection::addresses));
    let shown = shown.unwrap_or_default();
    let name = overrides.name.or(raw.name).map_or(default_name.to_owned(), |name| name.value);
    let seed = overrides.seed.or(raw.seed).map_or(0, |seed| seed.value);
    let seed_of_starts = open.then_some(seed);
    let plan = Plan { name, target: shown, load, tasks: specs, thresholds, seed };
    let compiled = CompiledScenario {
        connector,
        browser,
        #[cfg(feature = "cql")]
        cql,
        data,
        variables,
        on_start,
        tasks: flows,
        open_model_seed: seed_of_starts,
        metric_names: metrics,
        declared_variables,
        notes,
    };
    builder.problems.is_empty().then(|| BuiltScenario { plan, compiled: Arc::new(compiled) })
}

/// Marks the columns that the scenario uses in each data source.
fn mark_used_columns<'f>(data: &mut [DataTable], flows: impl Iterator<Item = &'f CompiledFlow>) {
    let mut used = Vec::new();
    flows.for_each(|flow| flow.columns_used(&mut used));
    for at in used {
        // A source that could not be read is missing here; it has been reported.
        if let Some(table) = data.get_mut(at.data) {
            table.used_columns.push(at.column);
        }
    }
}

impl<'b, 't> ScenarioBuilder<'b, 't> {
    pub(crate) fn new(
        problems: &'b mut ProblemList<'t>,
        files: &'b mut dyn ScenarioFiles,
        text: &'t str,
    ) -> ScenarioBuilder<'b, 't> {
        ScenarioBuilder { problems, files, text, scope: TemplateScope::default(), template_bytes: 0 }
    }

    /// Compiles a template. Its values are not escaped; callers choose the escaping.
    fn template(&mut self, given: &Sourced<String>) -> Template {
        let template = self.unbounded_template(given);
        let longest = template.longest_text(&self.scope.variable_lengths);
        if longest > MAX_RENDERED_BYTES {
            let message = format!("this text can become longer than {} MiB", MAX_RENDERED_BYTES >> 20);
            self.problems.add_with_hint(&given.location, message, SHORTER_TEXT_HINT);
            return Template::default();
        }
        match self.add_template_bytes(longest, &given.location) {
            true => template,
            false => Template::default(),
        }
    }

    /// Counts the bytes of a text. Returns whether the scenario's texts are still within their limit.
    fn add_template_bytes(&mut self, bytes: usize, location: &SourceLocation) -> bool {
        let total = self.template_bytes.saturating_add(bytes);
        if total > MAX_TEMPLATE_BYTES {
            let message =
                format!("up to here the texts of the scenario have more than {} MiB", MAX_TEMPLATE_BYTES >> 20);
            self.problems.add_with_hint(location, message, SHORTER_TEXT_HINT);
            return false;
        }
        self.template_bytes = total;
        true
    }

    /// Compiles a template of any length. Constant variables are shared, so it is small.
    fn unbounded_template(&mut self, given: &Sourced<String>) -> Template {
        let mut template = Template::default();
        for piece in parse(&given.value) {
            match piece {
                Err(error) => {
                    let location = self.locate_within(given, &error.span);
                    let hint = "write {{ name }} or {{ function() }}";
                    self.problems.add_with_hint(&location, format!("bad template: {error}"), hint);
                }
                Ok(ParsedPart::Text(text)) => template.push_text(&text),
                Ok(ParsedPart::Expr(parsed)) => match self.scope.resolve(&parsed, self.files) {
                    Ok(expr) => template.parts.push(TemplatePart::Value(expr, Escape::None)),
                    Err(errors) => errors.into_iter().for_each(|error| {
                        let location = self.locate_within(given, &error.span);
                        match error.hint {
                            Some(hint) => self.problems.add_with_hint(&location, error.message, hint),
                            None => self.problems.add(&location, error.message),
                        }
                    }),
                },
            }
        }
        template
    }

    /// A text that must be constant during the run, such as a host.
    fn constant_text(&mut self, given: &Sourced<String>, what: &str) -> String {
        let template = self.template(given).fold_constants();
        if template.constant().is_none() {
            let hint = "only constant variables and env() can be used here";
            self.problems.add_with_hint(&given.location, format!("{what} cannot change during the run"), hint);
        }
        template.constant().unwrap_or_default().to_owned()
    }

    /// The location of some bytes of a value. The whole value's location if the file writes it with
    /// escapes.
    fn locate_within(&self, given: &Sourced<String>, at: &std::ops::Range<usize>) -> SourceLocation {
        let SourceLocation::File(span) = &given.location else { return given.location.clone() };
        let begin = self.text.get(span.clone()).and_then(|raw| raw.find(&given.value));
        match begin {
            Some(begin) if !given.value.is_empty() => {
                SourceLocation::File(span.start + begin + at.start..span.start + begin + at.end)
            }
            _ => given.location.clone(),
        }
    }

    /// Makes the client. An error is reported at the setting that most likely caused it, usually a file.
    fn connector(&mut self, http: &HttpConfig, raw: &RawHttp) -> Connector {
        Connector::new(http.clone()).unwrap_or_else(|error| {
            use squall_http::ConnectorError::{BadPem, EmptyPem, ReadFile};
            let named = match &error {
                ReadFile { what, .. } | EmptyPem { what, .. } | BadPem { what, .. } => match *what {
                    "private key" => raw.key.as_ref(),
                    "CA certificate" => raw.ca.as_ref(),
                    _ => raw.cert.as_ref(),
                },
                _ => None,
            };
            let likely = [&raw.server_name, &raw.cert, &raw.ca, &raw.proxy];
            let given = named.or_else(|| likely.into_iter().flatten().next());
            let location = given.map_or(SourceLocation::Unknown, |given| given.location.clone());
            let whose = if location == SourceLocation::Unknown { "[http] cannot be used: " } else { "" };
            self.problems.add(&location, format!("{whose}{error}"));
            Connector::new(HttpConfig::default()).expect("the default settings are sound")
        })
    }
}

/// Lets building continue after the load was rejected.
fn placeholder_load() -> Load {
    let users = Profile::constant(1.0, Duration::from_secs(1)).expect("one user for one second is a profile");
    Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO }
}

fn first_origin(flows: &[CompiledFlow]) -> Option<String> {
    let step = flows.iter().flat_map(|flow| &flow.steps).next()?;
    Some(step.request.constant.url.origin().ascii_serialization())
}
