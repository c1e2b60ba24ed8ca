//! CQL statements of Python code: `client.cql` and `client.cql_prepared`, and the session of one engine
//! thread with the statements that it has prepared. Sending and recording is the job of
//! [`StatementRunner`](squall_scenario::StatementRunner). Without the feature `cql` the calls raise.

#[cfg(feature = "cql")]
mod send;
#[cfg(feature = "cql")]
mod values;

#[cfg(feature = "cql")]
pub(crate) use send::ThreadDatabase;

use pyo3::prelude::*;
use std::sync::Arc;

use crate::{operation::Operation, operation_queue::OperationQueue, running_code};

/// The keywords of `client.cql`.
#[cfg_attr(not(feature = "cql"), expect(dead_code, reason = "the calls raise"))]
pub(crate) struct CallOptions<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) consistency: Option<&'a str>,
    pub(crate) page_size: Option<u16>,
    pub(crate) timeout: Option<f64>,
}

/// A statement and how it is sent.
#[derive(Clone)]
pub(crate) struct StatementCall {
    #[cfg(feature = "cql")]
    call: Arc<send::CallSettings>,
    #[cfg(not(feature = "cql"))]
    call: Arc<()>,
}

#[cfg(not(feature = "cql"))]
impl StatementCall {
    pub(crate) fn new(_statement: &str, _options: &CallOptions<'_>) -> PyResult<StatementCall> {
        let message = format!("this squall was built without CQL; {}", squall_scenario::WHOLE_PROGRAM_HINT);
        Err(pyo3::exceptions::PyRuntimeError::new_err(message))
    }

    pub(crate) fn work(&self, _values: Option<&Bound<'_, PyAny>>) -> PyResult<crate::operation::OperationWork> {
        unreachable!("no call is made without the feature: {:?}", self.call)
    }
}

/// A CQL statement to be sent many times. The database prepares it once for each engine thread.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct CqlStatement {
    call: StatementCall,
    queue: Option<Py<OperationQueue>>,
}

impl CqlStatement {
    pub(crate) fn new(call: StatementCall, queue: Option<Py<OperationQueue>>) -> CqlStatement {
        CqlStatement { call, queue }
    }
}

#[pymethods]
impl CqlStatement {
    /// Sends the statement and returns its rows; in `async def`, await it.
    #[pyo3(signature = (values=None, /))]
    fn __call__(&self, py: Python<'_>, values: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        self.execute(py, values)
    }

    /// Sends the statement and returns its rows; in `async def`, await it.
    #[pyo3(signature = (values=None, /))]
    fn execute(&self, py: Python<'_>, values: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        running_code::refuse_in_forked_child()?;
        let queue = self.queue.as_ref().map(|queue| queue.clone_ref(py));
        Ok(Operation::new(self.call.work(values)?, queue))
    }
}
