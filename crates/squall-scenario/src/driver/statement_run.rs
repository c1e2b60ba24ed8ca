//! Runs one CQL statement of a task for one user: renders and binds its values, judges the rows of the
//! answer and sets the variables that the step extracts. The [`StatementRunner`] sends and records. Called
//! by [`FlowRun`].

use squall_cql::{BoundValues, KeptRows, RowValue, ScalarKind, StatementRows, StatementValue};
use squall_engine::FENCED;
use squall_metrics::{Outcome, OutcomeCategory};
use std::{
    pin::pin,
    time::{Duration, Instant},
};

use super::{
    RequestStart, ScenarioThreadState, StatementEnd, StatementRunner,
    flow_run::{FlowRun, StepTimes, UserState, describe_render_error},
    step_request::{CutShort, StepResult, TASK_TIMEOUT, record_unsent_timeout, run_until},
    thread_database::PreparedStatement,
};
use crate::{
    compiled_scenario::{ColumnExtractor, CompiledStatement, RowChecks, StatementArgument},
    template::{RenderTemplateError, TemplateValue},
};

impl FlowRun<'_> {
    pub(super) async fn run_statement(
        &mut self,
        step: &CompiledStatement,
        prepared: &PreparedStatement,
        times: &StepTimes,
    ) -> StepResult {
        let values = match self.bind(step, prepared) {
            Ok(values) => values,
            Err((code, note)) => {
                let note = format!("{note} ({})", step.location);
                return self.record_unrendered(prepared.metric, times, (code, note)).await;
            }
        };
        let (shared, user) = (self.shared, &mut self.user);
        let recorder = &shared.recorder;
        let start = RequestStart { metric: prepared.metric, intended: times.intended, started: times.started };
        let runner = StatementRunner::new(recorder, shared.database.session());
        let check = |rows: &StatementRows, service| judge(step, rows, service, shared, user);
        let statement = (prepared.get(), &values);
        let sending = pin!(Some(runner.run(start, statement, KeptRows::First, Some(&step.location), check)));
        match run_until(times.deadline, sending, recorder).await {
            Err(CutShort { requests: 0 }) => record_unsent_timeout(recorder, start),
            Err(CutShort { .. }) => StepResult::failed(Instant::now(), TASK_TIMEOUT),
            Ok(StatementEnd::Fenced) => StepResult::failed(Instant::now(), FENCED),
            Ok(StatementEnd::Failed { ended, failure }) => StepResult::failed(ended, failure.outcome),
            Ok(StatementEnd::Answered { ended, rows, failure }) => {
                if rows.returns_rows() {
                    prepared.record_rows(&step.metric, times.intended, rows.count(), recorder);
                }
                StepResult { ended, failure }
            }
        }
    }

    /// The values of one sending. Fails with an outcome's code and a message.
    fn bind(
        &mut self,
        step: &CompiledStatement,
        prepared: &PreparedStatement,
    ) -> Result<BoundValues, (&'static str, String)> {
        if let Some(lost) = self.lost_resource_error() {
            return Err(lost);
        }
        let shared = self.shared;
        let mut values = Vec::with_capacity(step.arguments.len());
        for argument in &step.arguments {
            let mut text = String::new();
            let mut context = self.user.context(shared);
            values.push(match argument {
                StatementArgument::Generated(_) => StatementValue::Generated { seed: context.rng.u64(..) },
                StatementArgument::Text(template) => {
                    template.render(&mut context, &mut text).map_err(|error| describe_render_error(shared, error))?;
                    StatementValue::Text(text)
                }
                StatementArgument::Json(template) => {
                    template.render(&mut context, &mut text).map_err(|error| describe_render_error(shared, error))?;
                    json_value(&text).map_err(|error| ("BAD_VALUE", error.to_string()))?
                }
            });
        }
        prepared.get().bind(&values).map_err(|error| ("BAD_VALUE", error.to_string()))
    }
}

/// JSON text as a value of a statement.
pub(super) fn json_value(text: &str) -> Result<StatementValue, serde_json::Error> {
    Ok(convert(serde_json::from_str(text)?))
}

fn convert(json: serde_json::Value) -> StatementValue {
    match json {
        serde_json::Value::Null => StatementValue::Null,
        serde_json::Value::Bool(value) => StatementValue::Boolean(value),
        serde_json::Value::Number(number) => StatementValue::Number(number.to_string()),
        serde_json::Value::String(text) => StatementValue::Text(text),
        serde_json::Value::Array(items) => StatementValue::List(items.into_iter().map(convert).collect()),
        serde_json::Value::Object(entries) => {
            let entry = |(key, value)| (StatementValue::Text(key), convert(value));
            StatementValue::Map(entries.into_iter().map(entry).collect())
        }
    }
}

/// The outcome and the message of an answer that is not as expected. Sets the variables of one that is.
fn judge(
    step: &CompiledStatement,
    rows: &StatementRows,
    service: Duration,
    shared: &ScenarioThreadState,
    user: &mut UserState<'_>,
) -> Option<(Outcome, String)> {
    let failed = |code: &'static str, note| Some((Outcome::new(OutcomeCategory::CheckFailed, code), note));
    if let Some(note) = wrong_count(&step.checks, rows.count()) {
        return failed("ROWS", note);
    }
    let mut first = None;
    if !(step.checks.columns.is_empty() && step.extracts.is_empty()) {
        match rows.first() {
            Ok(row) => first = row,
            Err(failure) => return Some((failure.outcome, failure.message)),
        }
    }
    for (column, expected) in &step.checks.columns {
        let mut text = String::new();
        if let Err(error) = expected.render(&mut user.context(shared), &mut text) {
            return Some(render_failure(shared, error));
        }
        if let Some(note) = wrong_column(column, &text, rows, first.as_deref()) {
            return failed("COLUMN", note);
        }
    }
    if step.checks.max_service_time.is_some_and(|max| service > max) {
        let max = step.checks.max_service_time.unwrap_or_default();
        return failed("MAX_MS", format!("expected at most {} ms, took longer", max.as_secs_f64() * 1000.0));
    }
    for extract in &step.extracts {
        match extracted(extract, rows, first.as_deref()) {
            Ok(value) => user.variables[extract.variable] = Some(value),
            Err(note) => return failed("EXTRACT", note),
        }
    }
    None
}

fn render_failure(shared: &ScenarioThreadState, error: RenderTemplateError) -> (Outcome, String) {
    let (code, note) = describe_render_error(shared, error);
    (Outcome::new(OutcomeCategory::Exception, code), note)
}

fn wrong_count(checks: &RowChecks, count: u64) -> Option<String> {
    let (least, most) = (checks.min_rows.unwrap_or(0), checks.max_rows.unwrap_or(u64::MAX));
    if (least..=most).contains(&count) {
        return None;
    }
    let number = |rows: u64| format!("{rows} row{}", if rows == 1 { "" } else { "s" });
    let expected = match (checks.min_rows, checks.max_rows) {
        (Some(least), Some(most)) if least == most => number(least),
        _ if count < least => format!("at least {}", number(least)),
        _ => format!("at most {}", number(most)),
    };
    Some(format!("expected {expected}, got {count}"))
}

/// The value of a column of the first row.
fn column_value<'r>(column: &str, rows: &StatementRows, first: Option<&'r [RowValue]>) -> Result<&'r RowValue, String> {
    let Some(first) = first else { return Err("there is no row".to_owned()) };
    let Some(position) = rows.column(column) else {
        return Err(format!("the answer has no such column, but {}", rows.columns().join(", ")));
    };
    Ok(&first[position])
}

fn wrong_column(column: &str, expected: &str, rows: &StatementRows, first: Option<&[RowValue]>) -> Option<String> {
    let found = match column_value(column, rows, first) {
        Ok(value) => value,
        Err(reason) => return Some(format!("expected {column} to be {expected:?}, {reason}")),
    };
    let text = found.text();
    let number = |text: &str| text.parse::<f64>().ok();
    let is_number =
        matches!(found, RowValue::Integer(_) | RowValue::Real(_) | RowValue::Scalar(ScalarKind::Decimal, _));
    let same = match &text {
        None => false,
        Some(text) if text == expected => true,
        // `5`, `5.0` and `5.00` are the same number; whole numbers differ in their last digit.
        Some(text) => is_number && text.contains('.') != expected.contains('.') && number(text) == number(expected),
    };
    let text = text.map_or("null".to_owned(), |text| format!("{:?}", text.chars().take(80).collect::<String>()));
    (!same).then(|| format!("expected {column} to be {expected:?}, got {text}"))
}

fn extracted(
    extract: &ColumnExtractor,
    rows: &StatementRows,
    first: Option<&[RowValue]>,
) -> Result<TemplateValue, String> {
    let value = column_value(&extract.column, rows, first);
    let value = value.and_then(|value| {
        let text = value.text().ok_or_else(|| "it is null".to_owned())?;
        Ok(TemplateValue { text, literal: value.is_literal() })
    });
    value.or_else(|reason| match &extract.default {
        Some(default) => Ok(TemplateValue::text(default)),
        None => Err(format!("cannot extract `{}` from column {}: {reason}", extract.name, extract.column)),
    })
}
