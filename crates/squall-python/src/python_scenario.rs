//! A loaded scenario in the form that the driver needs: callables, limits, HTTP settings. It is
//! read once from the SDK's description, `squall._load.PythonScenario`. It checks nothing, because
//! the SDK and `squall-scenario` already have. The interpreter creates it and the driver uses it.

use pyo3::{
    exceptions::PyAssertionError,
    prelude::*,
    types::{PyBool, PyDict, PyTuple},
};
use squall_http::Connector;
use squall_scenario::BrowserSettings;
#[cfg(feature = "cql")]
use squall_scenario::cql_client::StatementConnection;
use std::time::Duration;

use crate::{response::PyResponse, routes::BaseUrl};

/// What the threads of a run share.
pub(crate) struct PythonScenario {
    /// `(user number, seed) -> object`.
    pub(crate) make_user: Py<PyAny>,
    /// Run in order before the first iteration.
    pub(crate) on_start: Vec<ScenarioFunction>,
    /// Whether users start at once, and run their tasks also after a failed `on_start`.
    pub(crate) begins_like_loadpilot: bool,
    /// Run after the last iteration.
    pub(crate) on_stop: Vec<ScenarioFunction>,
    pub(crate) tasks: Vec<ScenarioTask>,
    /// Describes an exception for the report: `describe(exception)`.
    pub(crate) describe: Py<PyAny>,
    /// Creates a fiber. `new_fiber().switch(function, user, client)` runs a plain function up to
    /// its next operation, and every further `switch()` up to the one after. When `switch` returns
    /// something other than an operation, the function has ended and the fiber can run another one.
    /// `None` if greenlet is not installed.
    pub(crate) new_fiber: Option<Py<PyAny>>,
    /// Wraps a client for plain functions.
    pub(crate) blocking_client: Py<PyAny>,
    pub(crate) connector: Connector,
    /// The database of `client.cql`.
    #[cfg(feature = "cql")]
    pub(crate) cql: Option<StatementConnection>,
    pub(crate) base: BaseUrl,
    pub(crate) headers: Vec<(String, String)>,
    /// The prefix of its metric names.
    pub(crate) prefix: String,
    /// Whether the run executes Python code: hooks, or tasks that are not constant.
    pub(crate) needs_python: bool,
    /// Whether coroutines run on an asyncio loop.
    pub(crate) on_asyncio: bool,
    /// Why coroutines run on asyncio, or why the engine resumes them itself.
    pub(crate) mode_reason: String,
    /// Whether a browser is started before the first user.
    pub(crate) uses_browser: bool,
    /// The browsers of users that open pages.
    pub(crate) browser: BrowserSettings,
    pub(crate) threads_for_blocking: ThreadsForBlocking,
    /// Why plain functions run on threads from the start; `None` if they do not.
    pub(crate) blocking_reason: Option<String>,
}

/// Whether plain functions run on threads of their own, and on how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadsForBlocking {
    /// Always fibers of the engine thread.
    Never,
    /// From the first call that blocks the engine thread.
    WhenBlocked(usize),
    Always(usize),
}

impl ThreadsForBlocking {
    /// The most threads.
    pub(crate) fn limit(self) -> usize {
        match self {
            ThreadsForBlocking::Never => 0,
            ThreadsForBlocking::WhenBlocked(limit) | ThreadsForBlocking::Always(limit) => limit,
        }
    }
}

/// A function of the scenario that takes the user and a client.
pub(crate) struct ScenarioFunction {
    pub(crate) call: Py<PyAny>,
    pub(crate) kind: FunctionKind,
}

/// How a function waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionKind {
    /// `async def`
    Coroutine,
    /// `def`
    Plain,
}

/// A constant request: method, URL, options, and where it is written.
pub(crate) type ConstantRequest = (String, String, Py<PyDict>, String);

/// A task of the scenario.
pub(crate) struct ScenarioTask {
    pub(crate) name: String,
    pub(crate) function: ScenarioFunction,
    pub(crate) check: Option<ScenarioTaskCheck>,
    pub(crate) timeout: Option<Duration>,
    /// The requests of a constant task, which always sends the same and needs no Python.
    pub(crate) requests: Option<Vec<ConstantRequest>>,
    /// Why the task runs in its mode.
    pub(crate) mode_reason: String,
}

/// Checks a task's last response.
pub(crate) struct ScenarioTaskCheck {
    call: Py<PyAny>,
    /// Whether it takes the response instead of its status and body.
    takes_response: bool,
}

impl ScenarioTaskCheck {
    pub(crate) fn run(&self, py: Python<'_>, user: &Py<PyAny>, response: &Py<PyResponse>) -> PyResult<()> {
        let check = self.call.bind(py);
        let returned = match self.takes_response {
            true => check.call1((user, response))?,
            false => check.call1((user, response.get().status(), response.get().for_check(py)?))?,
        };
        match returned.cast::<PyBool>() {
            Ok(passed) if !passed.is_true() => Err(PyAssertionError::new_err("the check returned False")),
            _ => Ok(()),
        }
    }
}

/// The HTTP settings of a run, and the database of its statements.
pub(crate) struct ScenarioHttpSettings {
    pub(crate) connector: Connector,
    #[cfg(feature = "cql")]
    pub(crate) cql: Option<StatementConnection>,
    pub(crate) base: BaseUrl,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) prefix: String,
    pub(crate) browser: BrowserSettings,
}

impl PythonScenario {
    pub(crate) fn read(loaded: &Bound<'_, PyAny>, http_settings: ScenarioHttpSettings) -> PyResult<PythonScenario> {
        let hooks = |name: &str| -> PyResult<Vec<ScenarioFunction>> {
            loaded.getattr(name)?.try_iter()?.map(|function| ScenarioFunction::read(&function?)).collect()
        };
        let tasks: Vec<ScenarioTask> =
            loaded.getattr("tasks")?.try_iter()?.map(|task| ScenarioTask::read(&task?)).collect::<PyResult<_>>()?;
        let new_fiber = loaded.getattr("new_fiber")?;
        let threads_for_blocking: usize = loaded.getattr("threads_for_blocking")?.extract()?;
        let blocking_reason: Option<String> = loaded.getattr("blocking_reason")?.extract()?;
        let has_lifecycle_hooks: bool = loaded.getattr("has_lifecycle_hooks")?.extract()?;
        Ok(PythonScenario {
            needs_python: has_lifecycle_hooks || tasks.iter().any(|task| task.requests.is_none()),
            on_asyncio: loaded.getattr("on_asyncio")?.extract()?,
            mode_reason: loaded.getattr("mode_reason")?.extract()?,
            uses_browser: loaded.getattr("uses_browser")?.extract()?,
            browser: http_settings.browser,
            threads_for_blocking: match (threads_for_blocking, blocking_reason.is_some()) {
                (0, _) => ThreadsForBlocking::Never,
                (limit, true) => ThreadsForBlocking::Always(limit),
                (limit, false) => ThreadsForBlocking::WhenBlocked(limit),
            },
            blocking_reason,
            make_user: loaded.getattr("make_user")?.unbind(),
            on_start: hooks("on_start")?,
            on_stop: hooks("on_stop")?,
            begins_like_loadpilot: loaded.getattr("begins_like_loadpilot")?.extract()?,
            tasks,
            describe: loaded.getattr("describe")?.unbind(),
            new_fiber: (!new_fiber.is_none()).then(|| new_fiber.unbind()),
            blocking_client: loaded.getattr("blocking_client")?.unbind(),
            connector: http_settings.connector,
            #[cfg(feature = "cql")]
            cql: http_settings.cql,
            base: http_settings.base,
            headers: http_settings.headers,
            prefix: http_settings.prefix,
        })
    }
}

impl PythonScenario {
    /// Says that plain functions run on threads from the start, and why; `None` if they do not.
    pub(crate) fn threads_notice(&self) -> Option<String> {
        let reason = self.blocking_reason.as_ref()?;
        let limit = self.threads_for_blocking.limit();
        Some(format!("plain functions run on up to {limit} threads, because {reason}"))
    }

    /// The name of a metric in the report.
    pub(crate) fn full_metric_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl ScenarioFunction {
    fn read(function: &Bound<'_, PyAny>) -> PyResult<ScenarioFunction> {
        let kind = if function.getattr("is_async")?.extract()? { FunctionKind::Coroutine } else { FunctionKind::Plain };
        Ok(ScenarioFunction { call: function.getattr("call")?.unbind(), kind })
    }
}

impl ScenarioTask {
    fn read(task: &Bound<'_, PyAny>) -> PyResult<ScenarioTask> {
        let check = task.getattr("check")?;
        let timeout: Option<f64> = task.getattr("timeout")?.extract()?;
        Ok(ScenarioTask {
            name: task.getattr("name")?.extract()?,
            function: ScenarioFunction::read(task)?,
            check: if check.is_none() {
                None
            } else {
                Some(ScenarioTaskCheck {
                    takes_response: task.getattr("check_takes_response")?.extract()?,
                    call: check.unbind(),
                })
            },
            timeout: timeout.map(Duration::from_secs_f64),
            requests: task.getattr("requests")?.extract()?,
            mode_reason: task.getattr("mode_reason")?.extract()?,
        })
    }
}

/// The arguments of every call for a user, created once.
pub(crate) fn call_arguments<'py>(
    user: &Bound<'py, PyAny>,
    client: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(user.py(), [user, client])
}
