//! Sends a statement of Python code on the session of its engine thread, which prepares each statement
//! once.

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use squall_engine::DriverError;
use squall_metrics::Outcome;
use squall_scenario::{
    RequestStart, StatementEnd, StatementRunner,
    cql_client::{
        KeptRows, ScenarioStatement, StatementConnection, StatementFailure, StatementOptions, StatementSession,
        StatementValue,
    },
    record_row_count,
};
use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Instant};

use super::{CallOptions, StatementCall, values};
use crate::{
    client::seconds_of,
    exceptions,
    long_operation::{LongOperation, LongOperationKind, OperationContext},
    operation::OperationWork,
};

/// The longest name of a statement in reports, unless the code gives one.
const MAX_NAME: usize = 80;

/// The session of one engine thread.
pub(crate) struct ThreadDatabase {
    session: StatementSession,
    /// By text and options. Bounded by [`MAX_PREPARED`].
    prepared: RefCell<HashMap<(String, OptionsKey), Rc<ScenarioStatement>>>,
}

/// The options of a statement as a key.
type OptionsKey = (Option<String>, Option<u16>, Option<u128>);

/// A statement whose text contains values is another one each time. Beyond this number the prepared ones
/// are dropped and prepared again.
const MAX_PREPARED: usize = 1024;

/// A statement, its name in reports and its options.
pub(super) struct CallSettings {
    cql: String,
    name: String,
    options: StatementOptions,
    key: OptionsKey,
}

impl ThreadDatabase {
    pub(crate) async fn connect(connection: &StatementConnection) -> Result<ThreadDatabase, DriverError> {
        let session = StatementSession::connect(connection).await?;
        Ok(ThreadDatabase { session, prepared: RefCell::default() })
    }

    async fn prepare(&self, call: &CallSettings) -> Result<Rc<ScenarioStatement>, StatementFailure> {
        let key = (call.cql.clone(), call.key.clone());
        if let Some(known) = self.prepared.borrow().get(&key) {
            return Ok(known.clone());
        }
        let statement = Rc::new(self.session.prepare(&call.cql, call.options).await?);
        let mut prepared = self.prepared.borrow_mut();
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        prepared.insert(key, statement.clone());
        Ok(statement)
    }
}

impl StatementCall {
    pub(crate) fn new(statement: &str, options: &CallOptions<'_>) -> PyResult<StatementCall> {
        let consistency = options.consistency.map(StatementConnection::parse_consistency).transpose();
        let timeout = options.timeout.map(seconds_of).transpose()?;
        if options.page_size == Some(0) {
            return Err(PyValueError::new_err("page_size=0: a page has 1 to 65535 rows"));
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(PyValueError::new_err("timeout=0 leaves no time for anything: give seconds above 0"));
        }
        let call = CallSettings {
            cql: statement.to_owned(),
            name: options.name.filter(|name| !name.is_empty()).map_or_else(|| default_name(statement), str::to_owned),
            options: StatementOptions {
                consistency: consistency.map_err(PyValueError::new_err)?,
                page_size: options.page_size,
                timeout,
            },
            key: (options.consistency.map(str::to_owned), options.page_size, timeout.map(|time| time.as_nanos())),
        };
        Ok(StatementCall { call: Arc::new(call) })
    }

    /// What the driver has to do to send it with `values`.
    pub(crate) fn work(&self, values: Option<&Bound<'_, PyAny>>) -> PyResult<OperationWork> {
        let values = values.map_or(Ok(Vec::new()), values::arguments)?;
        let call = self.call.clone();
        let operation = LongOperation::new(LongOperationKind::Open, move |context| {
            Box::pin(async move { send(&call, values, context).await })
        });
        Ok(OperationWork::Long(operation))
    }
}

async fn send(call: &CallSettings, values: Vec<StatementValue>, context: OperationContext<'_>) -> PyResult<Py<PyAny>> {
    let Some(database) = context.thread.database() else {
        let message = "the scenario has no database: write @scenario(cql={\"nodes\": [\"127.0.0.1\"]})";
        return Err(PyRuntimeError::new_err(message));
    };
    let recorder = context.recorder();
    let metric = context.thread.request_metric(&call.name);
    let failed = |message: &str, outcome: Outcome| {
        Python::attach(|py| exceptions::statement_failed(py, &format!("{}: {message}", call.name), outcome))
    };
    let began = Instant::now();
    let runner = StatementRunner::new(recorder, &database.session);
    let statement = match database.prepare(call).await {
        Ok(statement) => statement,
        Err(failure) => {
            let start = RequestStart { metric, intended: began - context.start_delay, started: began };
            runner.record_unprepared(start, &failure).await;
            return Err(failed(&failure.message, failure.outcome));
        }
    };
    let bound = statement.bind(&values).map_err(|error| PyValueError::new_err(format!("{}: {error}", call.name)))?;
    // Preparing happens once, and is no part of the statement's time.
    let started = Instant::now();
    let start = RequestStart { metric, intended: started - context.start_delay, started };
    match runner.run(start, (&statement, &bound), KeptRows::All, None, |_, _| None).await {
        StatementEnd::Fenced => Err(Python::attach(|py| exceptions::worker_fenced(py, &call.name))),
        StatementEnd::Failed { failure, .. } => Err(failed(&failure.message, failure.outcome)),
        StatementEnd::Answered { rows, .. } => {
            if rows.returns_rows() {
                let metric = context.custom_metric(&format!("{}:rows", call.name));
                record_row_count(recorder, metric, start.intended, rows.count());
            }
            Python::attach(|py| values::rows(py, &rows))
        }
    }
}

/// The statement on one line, shortened.
fn default_name(statement: &str) -> String {
    let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
