//! From raw settings to a validated scenario: resolves names, compiles texts, checks what goes together. Every problem is reported
//! where it was written and building goes on with a stand-in, so that one run of `--check` finds them all.

mod check;
mod http;
mod load;
mod metrics;
mod names;
mod request;
mod resources;
mod tasks;
mod thresholds;
mod value;

use thresholds::Known;
pub(crate) use thresholds::listed;
pub(crate) use value::LONGEST;

pub(crate) use request::{encode_header, without_login};
use squall_http::{Connector, HttpConfig};
use squall_model::{Load, LoadModel, Pause, Plan, Profile};
use std::{sync::Arc, time::Duration};

use crate::{
    Files, Given, Overrides, RawHttp,
    data::DataTable,
    error::{Place, Problems},
    program::{Flow, Program},
    read::{RawJson, RawScenario},
    template::{Escape, Part, Piece, Scope, Template, parse},
};

/// What building needs at hand everywhere.
pub(crate) struct Builder<'b, 't> {
    pub(crate) problems: &'b mut Problems<'t>,
    pub(crate) files: &'b mut dyn Files,
    pub(crate) text: &'t str,
    scope: Scope,
}

/// Everything that a scenario consists of.
pub(crate) struct Built {
    pub(crate) plan: Plan,
    pub(crate) program: Arc<Program>,
}

/// Replaces what the file says of its variables.
fn set_variables(raw: &mut RawScenario, values: Vec<(String, Given<String>)>, problems: &mut Problems<'_>) {
    for (name, value) in values {
        let Some((_, known)) = raw.variables.iter_mut().find(|(known, _)| known.value == name) else {
            let hint = match raw.variables.is_empty() {
                true => "the scenario has no [variables]".to_owned(),
                false => {
                    let names: Vec<&str> = raw.variables.iter().map(|(known, _)| known.value.as_str()).collect();
                    format!("there are {}", names.join(", "))
                }
            };
            problems.hint(&value.place, format!("there is no variable `{name}`"), &hint);
            continue;
        };
        let scalar = serde_json::from_str(&value.value)
            .is_ok_and(|json: serde_json::Value| json.is_number() || json.is_boolean());
        *known = if scalar { RawJson::Literal(value) } else { RawJson::Text(value) };
    }
}

/// A variable's value as JSON; templates stay as they are.
fn as_written(value: &RawJson) -> serde_json::Value {
    match value {
        RawJson::Text(text) => text.value.as_str().into(),
        RawJson::Literal(literal) => serde_json::from_str(&literal.value).unwrap_or_default(),
        // Variables are refused these.
        RawJson::Array(_) | RawJson::Object(_) => serde_json::Value::Null,
    }
}

pub(crate) fn build(
    mut raw: RawScenario,
    overrides: Overrides,
    default_name: &str,
    builder: &mut Builder<'_, '_>,
) -> Option<Built> {
    for wrong in &overrides.wrong {
        builder.problems.add(&wrong.place, wrong.value.as_str());
    }
    raw.load = overrides.load.over(raw.load);
    raw.http = overrides.http.over(raw.http);
    set_variables(&mut raw, overrides.variables, builder.problems);
    let variables = raw.variables.iter().map(|(name, value)| (name.value.clone(), as_written(value))).collect();
    let load = load::build_load(&raw.load, builder.problems).unwrap_or_else(stand_in_load);
    builder.scope.seeded = overrides.seed.is_some() || raw.seed.is_some();
    let (mut data, slots) = builder.names(&raw);
    let open = matches!(load.model, LoadModel::Open { .. });
    if !open {
        data.iter_mut().for_each(DataTable::number_users);
    }
    let http = builder.http(&raw.http);
    let connector = builder.connector(&http, &raw.http);
    let target = overrides.target.or(raw.target.take());
    let target = target.or_else(|| overrides.stand_in.map(|url| Given::flag("--target", url)));
    let target = target.map(|target| builder.target(&target));
    let requests = request::Common::new(builder, &raw.http, target.clone(), connector.clone());
    let tasks = builder.tasks(&raw, &requests);
    let on_start = builder.on_start(&raw, &requests);
    note_columns(&mut data, tasks.iter().map(|(_, flow)| flow).chain([&on_start]));
    if requests.target_missed.get() {
        let hint = match overrides.unnamed_metrics {
            true => "add --target http://…, or @scenario(target=\"http://…\")",
            false => "add target = \"http://…\" at the top of the file, or --target",
        };
        builder.problems.hint(&Place::Nowhere, "there is no target for paths like \"/\" to start from", hint);
    }
    let (specs, flows): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
    builder.refuse_name_without_tls(&raw.http, flows.iter().chain([&on_start]));
    let metrics = metrics::metric_names(&raw, builder.problems);
    let known = Known { names: &metrics, more: overrides.unnamed_metrics };
    let thresholds = builder.thresholds(&raw, &overrides.thresholds, known);
    let shown = target.map(|target| without_login(&target.url)).or_else(|| first_origin(&flows)).unwrap_or_default();
    let name = overrides.name.or(raw.name).map_or(default_name.to_owned(), |name| name.value);
    let seed = overrides.seed.or(raw.seed).map_or(0, |seed| seed.value);
    let seed_of_starts = open.then_some(seed);
    let plan = Plan { name, target: shown, load, tasks: specs, thresholds, seed };
    let program = Program { connector, data, slots, on_start, tasks: flows, seed_of_starts, metrics, variables };
    builder.problems.is_empty().then(|| Built { plan, program: Arc::new(program) })
}

/// Tells each data source which of its columns the scenario uses.
fn note_columns<'f>(data: &mut [DataTable], flows: impl Iterator<Item = &'f Flow>) {
    let mut used = Vec::new();
    flows.flat_map(|flow| &flow.steps).for_each(|step| step.columns_used(&mut used));
    for at in used {
        // One that could not be read, which has been reported, is not there.
        if let Some(table) = data.get_mut(at.data) {
            table.used.push(at.column);
        }
    }
}

impl<'b, 't> Builder<'b, 't> {
    pub(crate) fn new(problems: &'b mut Problems<'t>, files: &'b mut dyn Files, text: &'t str) -> Builder<'b, 't> {
        Builder { problems, files, text, scope: Scope::default() }
    }

    /// Compiles a text; values stand in it as they are until told otherwise.
    fn template(&mut self, given: &Given<String>) -> Template {
        let mut template = Template::default();
        for piece in parse(&given.value) {
            match piece {
                Err(error) => {
                    let place = self.narrow(given, &error.at);
                    let hint = "write {{ name }} or {{ function() }}";
                    self.problems.hint(&place, format!("bad template: {error}"), hint);
                }
                Ok(Piece::Text(text)) => template.push_text(&text),
                Ok(Piece::Expr(ast)) => match self.scope.resolve(&ast, self.files) {
                    Ok(expr) => template.parts.push(Part::Value(expr, Escape::None)),
                    Err(errors) => errors.into_iter().for_each(|error| {
                        let place = self.narrow(given, &error.at);
                        match error.hint {
                            Some(hint) => self.problems.hint(&place, error.message, hint),
                            None => self.problems.add(&place, error.message),
                        }
                    }),
                },
            }
        }
        template
    }

    /// A text that must not change during the run, for example a host.
    fn constant(&mut self, given: &Given<String>, what: &str) -> String {
        let template = self.template(given).fold();
        if template.constant().is_none() {
            let hint = "only constant variables and env() can be used here";
            self.problems.hint(&given.place, format!("{what} cannot change during the run"), hint);
        }
        template.constant().unwrap_or_default().to_owned()
    }

    /// The place of some bytes of a value, if the file has them just as they are (without escapes).
    fn narrow(&self, given: &Given<String>, at: &std::ops::Range<usize>) -> Place {
        let Place::File(span) = &given.place else { return given.place.clone() };
        let begin = self.text.get(span.clone()).and_then(|raw| raw.find(&given.value));
        match begin {
            Some(begin) if !given.value.is_empty() => {
                Place::File(span.start + begin + at.start..span.start + begin + at.end)
            }
            _ => given.place.clone(),
        }
    }

    /// What is wrong with the client's settings is most likely wrong with a file that they name.
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
            let place = given.map_or(Place::Nowhere, |given| given.place.clone());
            let whose = if place == Place::Nowhere { "[http] cannot be used: " } else { "" };
            self.problems.add(&place, format!("{whose}{error}"));
            Connector::new(HttpConfig::default()).expect("the default settings are sound")
        })
    }
}

/// Lets building go on after the load was refused.
fn stand_in_load() -> Load {
    let users = Profile::constant(1.0, Duration::from_secs(1)).expect("one user for one second is a profile");
    Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO }
}

fn first_origin(flows: &[Flow]) -> Option<String> {
    let step = flows.iter().flat_map(|flow| &flow.steps).next()?;
    Some(step.request.constant.url.origin().ascii_serialization())
}
