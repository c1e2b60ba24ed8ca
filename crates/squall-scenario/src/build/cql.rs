//! Builds CQL statements and the settings of their database. Connects to nothing: the types of values are
//! known when the database has prepared the statement.

#[cfg(feature = "cql")]
use super::value::positive_duration;
use super::{ScenarioBuilder, tasks::InheritedSettings};
#[cfg(feature = "cql")]
use crate::{
    RawCql, Sourced,
    compiled_scenario::{ColumnExtractor, CompiledFlow, RowChecks, StatementArgument},
    read::{RawColumnExtract, RawCqlArgument, RawJson, ScenarioLanguage},
    template::{Template, VariableBinding},
};
use crate::{
    compiled_scenario::{CompiledStatement, CompiledStep},
    error::SourceLocation,
    read::{RawCqlStep, RawScenario, RawTask},
};
#[cfg(feature = "cql")]
use squall_cql::{Consistency, GeneratedValue, Login, StatementConnection, StatementOptions, TlsSettings};
#[cfg(feature = "cql")]
use squall_metrics::{MetricKey, MetricKind};
#[cfg(feature = "cql")]
use std::{num::NonZeroUsize, time::Duration};

/// What is counted of a statement's answer: its metric, `:` and this name.
pub(crate) const ROW_COUNT: &str = "rows";

/// A step of a task that is not a browser task.
pub(super) enum BuiltStep {
    Request(Box<CompiledStep>),
    #[cfg_attr(not(feature = "cql"), expect(dead_code, reason = "no statement is built without the feature"))]
    Statement(Box<CompiledStatement>),
}

impl ScenarioBuilder<'_, '_> {
    /// Reports the first statement if this program has no CQL client.
    pub(super) fn reject_cql_without_feature(&mut self, raw: &RawScenario) {
        let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
        let inline = raw.tasks.iter().filter_map(|task| task.cql.as_ref());
        let statements = inline.chain(steps.filter_map(|step| step.cql.as_ref()));
        let first = statements.map(|step| &step.statement.location).chain(&raw.cql.location).next();
        if let (Some(first), false) = (first, cfg!(feature = "cql")) {
            let message = "this squall was built without CQL";
            self.problems.add_with_hint(first, message, crate::WHOLE_PROGRAM_HINT);
        }
    }

    /// The statement in a task's own table.
    pub(super) fn inline_statement(
        &mut self,
        name: &str,
        raw: &RawTask,
        inherited: &InheritedSettings<'_>,
    ) -> Option<BuiltStep> {
        let Some(statement) = &raw.cql else {
            let hint = "add statement = \"SELECT … WHERE id = ?\" and values = [\"…\"], or a [[task.step]] for each";
            self.problems.add_with_hint(&raw.location, format!("the CQL task `{name}` has no statement"), hint);
            return None;
        };
        self.statement(name, statement, &raw.location, inherited, None)
    }

    #[cfg(not(feature = "cql"))]
    pub(super) fn statement(
        &mut self,
        _metric: &str,
        _raw: &RawCqlStep,
        _location: &SourceLocation,
        _inherited: &InheritedSettings<'_>,
        _group: Option<String>,
    ) -> Option<BuiltStep> {
        None
    }
}

#[cfg(feature = "cql")]
impl ScenarioBuilder<'_, '_> {
    pub(super) fn statement(
        &mut self,
        metric: &str,
        raw: &RawCqlStep,
        location: &SourceLocation,
        inherited: &InheritedSettings<'_>,
        group: Option<String>,
    ) -> Option<BuiltStep> {
        let cql = self.constant_text(&raw.statement, "a statement");
        let page_size = raw.page_size.as_ref().and_then(|given| {
            let rows = u16::try_from(given.value).ok().filter(|rows| *rows > 0);
            if rows.is_none() {
                self.problems.add(&given.location, "a page has 1 to 65535 rows");
            }
            rows
        });
        let options = StatementOptions {
            consistency: raw.consistency.as_ref().and_then(|given| self.consistency(given)),
            page_size,
            timeout: raw.timeout.as_ref().and_then(|given| positive_duration(given, self.problems)),
        };
        let arguments: Vec<_> = raw.values.iter().filter_map(|value| self.argument(value)).collect();
        self.check_marker_count(&cql, raw);
        let statement = CompiledStatement {
            metric: MetricKey {
                name: metric.to_owned(),
                kind: MetricKind::Request,
                group: inherited.group.map(str::to_owned),
                tags: inherited.tags.clone(),
            },
            group,
            think: inherited.think.filter(|think| !think.is_none()),
            continue_on_failure: inherited.continue_on_failure,
            cql,
            arguments,
            options,
            checks: self.row_checks(raw),
            extracts: self.column_extracts(raw),
            location: self.problems.file_and_line(location),
        };
        Some(BuiltStep::Statement(Box::new(statement)))
    }

    /// Reports a number of values that differs from the number of markers, if all markers are `?`.
    fn check_marker_count(&mut self, cql: &str, raw: &RawCqlStep) {
        let (mut quote, mut markers) = (None, 0);
        for character in cql.chars() {
            match (quote, character) {
                (None, '\'' | '"') => quote = Some(character),
                (Some(open), _) if open == character => quote = None,
                (None, '?') => markers += 1,
                // A named marker, a comment, or text between dollar signs: the database counts these.
                (None, ':' | '$' | '/') => return,
                _ => {}
            }
        }
        let given = raw.values.len();
        if given != markers {
            let message = format!("the statement has {markers} ?, and there are {given} values");
            self.problems.add_with_hint(&raw.statement.location, message, "give one value for each ?");
        }
    }

    fn argument(&mut self, raw: &RawCqlArgument) -> Option<StatementArgument> {
        Some(match raw {
            RawCqlArgument::Given(RawJson::Text(text)) => StatementArgument::Text(self.template(text).fold_constants()),
            RawCqlArgument::Given(RawJson::Literal(text)) => StatementArgument::Text(Template::text(&text.value)),
            RawCqlArgument::Given(value) => StatementArgument::Json(self.json_template(value)),
            RawCqlArgument::Generated { population, size } => {
                let generated = GeneratedValue::parse(&population.value, size.as_ref().map(|size| size.value.as_str()));
                match generated {
                    Ok(generated) => StatementArgument::Generated(generated),
                    Err(error) => {
                        self.problems.add(&population.location, error.to_string());
                        return None;
                    }
                }
            }
        })
    }

    fn row_checks(&mut self, raw: &RawCqlStep) -> RowChecks {
        let expect = &raw.expect;
        if let (Some(rows), true) = (&expect.rows, expect.min_rows.is_some() || expect.max_rows.is_some()) {
            self.problems.add(&rows.location, "`rows` is the exact number: leave out `min_rows` and `max_rows`");
        }
        let number = |given: &Option<Sourced<u64>>| given.as_ref().or(expect.rows.as_ref()).map(|given| given.value);
        let column = |(name, text): &(Sourced<String>, Sourced<String>)| {
            (name.value.clone(), self.template(text).fold_constants())
        };
        let columns = expect.columns.iter().map(column).collect();
        let max_service_time = expect.max_ms.as_ref().and_then(|given| {
            let max = Duration::try_from_secs_f64(given.value / 1000.0).ok().filter(|max| !max.is_zero());
            if max.is_none() {
                self.problems.add(&given.location, "max_ms must be a number of milliseconds above 0");
            }
            max
        });
        let (min_rows, max_rows) = (number(&expect.min_rows), number(&expect.max_rows));
        RowChecks { min_rows, max_rows, columns, max_service_time }
    }

    fn column_extracts(&mut self, raw: &RawCqlStep) -> Vec<ColumnExtractor> {
        let one = |raw: &RawColumnExtract| {
            let Some(VariableBinding::Variable(variable)) = self.scope.variables.get(&raw.variable.value) else {
                unreachable!("every extracted name is a variable")
            };
            ColumnExtractor {
                variable: *variable,
                name: raw.variable.value.clone(),
                column: raw.column.value.clone(),
                default: raw.default.as_ref().map(|default| default.value.clone()),
            }
        };
        raw.extract.iter().map(one).collect()
    }

    /// The settings of `[cql]`, if a flow has a statement.
    pub(super) fn cql_connection<'f>(
        &mut self,
        raw: &RawScenario,
        mut flows: impl Iterator<Item = &'f CompiledFlow>,
    ) -> Option<StatementConnection> {
        let has_statement = flows.any(|flow| !flow.statements.is_empty());
        if !has_statement && raw.cql.location.is_none() {
            return None;
        }
        let (default, cql) = (StatementConnection::default(), &raw.cql);
        let nodes = cql.nodes.iter().filter_map(|node| self.node(node)).collect::<Vec<_>>();
        let text = |given: &Option<Sourced<String>>| given.as_ref().map(|given| given.value.clone());
        let connection = StatementConnection {
            nodes: if nodes.is_empty() { default.nodes } else { nodes },
            port: self.port(cql.port.as_ref()).unwrap_or(default.port),
            login: self.login(raw),
            tls: self.cql_tls(&raw.cql),
            keyspace: cql.keyspace.as_ref().map(|given| self.constant_text(given, "the keyspace")),
            consistency: cql
                .consistency
                .as_ref()
                .and_then(|given| self.consistency(given))
                .unwrap_or(default.consistency),
            datacenter: text(&cql.datacenter),
            connections: self.connections(cql.connections.as_ref()).unwrap_or(default.connections),
            request_timeout: {
                let given = cql.timeout.as_ref();
                given.and_then(|given| positive_duration(given, self.problems)).unwrap_or(default.request_timeout)
            },
            compression: {
                let given = cql.compression.as_ref();
                given.and_then(|given| self.frame_compression(given)).unwrap_or(default.compression)
            },
        };
        // The statements of code are not known.
        (has_statement || raw.language == ScenarioLanguage::Python).then_some(connection)
    }

    fn node(&mut self, given: &Sourced<String>) -> Option<String> {
        let node = self.constant_text(given, "a node");
        if let Err(message) = StatementConnection::check_node(&node) {
            self.problems.add(&given.location, message);
            return None;
        }
        Some(node)
    }

    fn port(&mut self, given: Option<&Sourced<u64>>) -> Option<u16> {
        let given = given?;
        let port = u16::try_from(given.value).ok().filter(|port| *port > 0);
        if port.is_none() {
            self.problems.add(&given.location, format!("{} is not a port: give 1 to 65535", given.value));
        }
        port
    }

    fn connections(&mut self, given: Option<&Sourced<u64>>) -> Option<NonZeroUsize> {
        let given = given?;
        if !(1..=1024).contains(&given.value) {
            self.problems.add(&given.location, "give 1 to 1024 connections of each thread to each node");
            return None;
        }
        NonZeroUsize::new(given.value as usize)
    }

    fn frame_compression(&mut self, given: &Sourced<String>) -> Option<squall_cql::FrameCompression> {
        let known = StatementConnection::parse_compression(&given.value);
        if known.is_none() {
            let message = format!("unknown compression `{}`", given.value);
            self.problems.add_with_hint(&given.location, message, "there are none, lz4 and snappy");
        }
        known
    }

    fn consistency(&mut self, given: &Sourced<String>) -> Option<Consistency> {
        let parsed = StatementConnection::parse_consistency(&given.value);
        parsed.map_err(|message| self.problems.add(&given.location, message)).ok()
    }

    /// A trust store switches TLS on.
    fn cql_tls(&mut self, raw: &RawCql) -> Option<TlsSettings> {
        let Some(truststore) = &raw.truststore else {
            let others = [&raw.truststore_password, &raw.keystore, &raw.keystore_password];
            let others = others.into_iter().flatten().map(|given| &given.location);
            if let Some(location) = others.chain(raw.hostname_verification.iter().map(|given| &given.location)).next() {
                let hint = "add truststore = \"ca.pem\"";
                self.problems.add_with_hint(location, "only `truststore` switches TLS on", hint);
            }
            return None;
        };
        if let (Some(password), None) = (&raw.keystore_password, &raw.keystore) {
            self.problems.add_with_hint(&password.location, "there is no keystore", "add keystore = \"client.p12\"");
        }
        let password = |given: &Option<Sourced<String>>, builder: &mut Self| {
            given.as_ref().and_then(|given| builder.secret(given, "the password"))
        };
        let settings = TlsSettings {
            truststore_password: password(&raw.truststore_password, self),
            keystore: match &raw.keystore {
                Some(given) => Some(self.require_readable(given)?),
                None => None,
            },
            keystore_password: password(&raw.keystore_password, self),
            verify_hostname: raw.hostname_verification.as_ref().is_some_and(|given| given.value),
            ..TlsSettings::new(self.require_readable(truststore)?)
        };
        if let Err(error) = settings.check_files() {
            let given = raw.keystore.as_ref().filter(|_| error.is_keystore()).unwrap_or(truststore);
            self.problems.add(&given.location, error.reason());
        }
        Some(settings)
    }

    fn login(&mut self, raw: &RawScenario) -> Option<Login> {
        match (&raw.cql.user, &raw.cql.password) {
            (None, None) => None,
            (Some(user), Some(password)) => {
                let user = self.constant_text(user, "the user");
                Some(Login { user, password: self.secret(password, "the password")? })
            }
            (Some(given), None) => {
                let hint = "write password = \"@FILE\" or password = \"$NAME\"";
                self.problems.add_with_hint(&given.location, "a user needs a password", hint);
                None
            }
            (None, Some(given)) => {
                self.problems.add_with_hint(&given.location, "a password needs a user", "add user = \"name\"");
                None
            }
        }
    }
}
