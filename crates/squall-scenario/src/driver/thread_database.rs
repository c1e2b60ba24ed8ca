//! The database session of one engine thread, which its users share, and the statements that it has
//! prepared. The driver's thread connects it before the run; `statement_run` uses it.

use squall_cql::{GeneratedValue, ScenarioStatement, StatementSession, StatementValue};
use squall_engine::{DriverError, ThreadRecorder};
use squall_metrics::{MetricId, MetricKey, MetricKind};
use std::{
    cell::{Cell, OnceCell},
    time::Instant,
};

use super::{ScenarioThreadState, record_row_count, statement_run::json_value};
use crate::{
    build::ROW_COUNT,
    compiled_scenario::{CompiledStatement, StatementArgument},
};

/// Set by `connect_database`, before the first user exists.
#[derive(Default)]
pub(super) struct ThreadDatabase {
    session: OnceCell<StatementSession>,
}

/// A statement of a task, prepared for one thread.
pub(super) struct PreparedStatement {
    pub(super) metric: MetricId,
    pub(super) group: Option<MetricId>,
    /// Made for the first answer with rows, because most statements that write return none.
    row_count: Cell<Option<MetricId>>,
    /// Set by `connect_database`.
    prepared: OnceCell<ScenarioStatement>,
}

impl ThreadDatabase {
    pub(super) fn session(&self) -> &StatementSession {
        self.session.get().expect("the engine connects a thread before it makes users")
    }
}

impl ScenarioThreadState {
    /// Connects to every node and prepares the statements of all tasks, if there are any.
    pub(super) async fn connect_database(&self) -> Result<(), DriverError> {
        let Some(connection) = &self.compiled.cql else { return Ok(()) };
        let session = StatementSession::connect(connection).await?;
        let flows = self.compiled.tasks.iter().zip(&self.tasks).chain([(&self.compiled.on_start, &self.on_start)]);
        for (flow, prepared) in flows {
            for (statement, prepared) in flow.statements.iter().zip(&prepared.statements) {
                let ready = prepare(&session, statement).await?;
                prepared.prepared.set(ready).map_err(|_| connected_twice())?;
            }
        }
        self.database.session.set(session).map_err(|_| connected_twice())
    }
}

fn connected_twice() -> DriverError {
    DriverError::Connect { reason: "a thread connects once".to_owned() }
}

/// Prepares a statement and checks the values that never change.
async fn prepare(session: &StatementSession, statement: &CompiledStatement) -> Result<ScenarioStatement, DriverError> {
    let refused = |reason| DriverError::Connect { reason: format!("{}: {reason}", statement.location) };
    let prepared = session.prepare(&statement.cql, statement.options).await;
    let prepared = prepared.map_err(|error| match format!("cannot prepare `{}`: {error}", statement.cql) {
        reason if error.is_lost() => DriverError::Unreachable { reason: format!("{}: {reason}", statement.location) },
        reason => refused(reason),
    })?;
    let generated = |argument: &StatementArgument| -> Option<GeneratedValue> {
        match argument {
            StatementArgument::Generated(generated) => Some(generated.clone()),
            StatementArgument::Text(_) | StatementArgument::Json(_) => None,
        }
    };
    let generated: Vec<_> = statement.arguments.iter().map(generated).collect();
    let prepared = prepared.with_generators(&generated).map_err(|error| refused(error.to_string()))?;
    let constant = |argument: &StatementArgument| match argument {
        StatementArgument::Text(template) => template.constant().map(|text| StatementValue::Text(text.to_owned())),
        StatementArgument::Json(template) => template.constant().and_then(|text| json_value(text).ok()),
        StatementArgument::Generated(_) => Some(StatementValue::Generated { seed: 0 }),
    };
    let constants: Vec<_> = statement.arguments.iter().map(constant).collect();
    prepared.check(&constants).map_err(|error| refused(error.to_string()))?;
    Ok(prepared)
}

impl PreparedStatement {
    pub(super) fn new(statement: &CompiledStatement, recorder: &ThreadRecorder) -> PreparedStatement {
        PreparedStatement {
            metric: recorder.metric(statement.metric.clone()),
            group: statement.group.as_ref().map(|group| recorder.metric(MetricKey::group(group))),
            row_count: Cell::new(None),
            prepared: OnceCell::new(),
        }
    }

    pub(super) fn get(&self) -> &ScenarioStatement {
        self.prepared.get().expect("the engine connects a thread before it makes users")
    }

    /// Records how many rows an answer has.
    pub(super) fn record_rows(&self, key: &MetricKey, due: Instant, rows: u64, recorder: &ThreadRecorder) {
        let metric = self.row_count.get().unwrap_or_else(|| {
            let name = format!("{}:{ROW_COUNT}", key.name);
            let id = recorder.metric(MetricKey { name, kind: MetricKind::Custom, ..key.clone() });
            self.row_count.set(Some(id));
            id
        });
        record_row_count(recorder, metric, due, rows);
    }
}
