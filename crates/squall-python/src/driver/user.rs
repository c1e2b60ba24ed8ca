//! One virtual user: an object of the scenario's class and the user's sessions. It runs the hooks
//! and tasks, and records their outcome. An exception of the scenario's code fails the iteration,
//! never the run. [`FunctionCall`] runs the functions and sends their requests. Called by the
//! engine.

use pyo3::{exceptions::PyAssertionError, prelude::*, types::PyTuple};
use squall_engine::{Iteration, OnStartError, UserIdentity, VirtualUser};
use squall_http::Session;
use squall_metrics::{CODE_FAILURE_SUFFIX, MetricId, Outcome, OutcomeCategory};
use squall_model::TaskIndex;
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    PythonThreadContext,
    asyncio_call::{AsyncioCallEnd, AsyncioUserTask, queue_and_client},
    exception_code,
    function_call::{FunctionCall, TASK_TIMEOUT, UserSessions},
    python_request::send_constant,
    thread_call::ThreadCallEnd,
};
use crate::{
    blocking_threads::ThreadPermit,
    context_variables::ContextVariables,
    exceptions,
    function_stepper::FunctionStepper,
    python_scenario::{FunctionKind, ScenarioFunction, call_arguments},
    watchdog,
};

/// One virtual user of a Python scenario.
pub(crate) struct PythonUser {
    thread: Rc<PythonThreadContext>,
    identity: UserIdentity,
    sessions: UserSessions,
    /// Created in `start`, so that the engine retries a failed constructor like a failed
    /// `on_start`.
    object: Option<PythonUserObject>,
    /// The thread of the next iteration, if its function runs on one.
    thread_permit: Option<ThreadPermit>,
}

/// The scenario's object, and the arguments that every call of its functions gets.
struct PythonUserObject {
    user: Py<PyAny>,
    async_arguments: Py<PyTuple>,
    plain_arguments: Py<PyTuple>,
    context: ContextVariables,
    /// `None` if coroutines do not run on asyncio.
    asyncio_task: Option<AsyncioUserTask>,
}

impl PythonUserObject {
    fn new(py: Python<'_>, thread: &PythonThreadContext, identity: UserIdentity) -> PyResult<PythonUserObject> {
        let context = ContextVariables::new(py)?;
        let user = context.run(py, || thread.scenario.make_user.bind(py).call1((identity.number, identity.seed)))?;
        let arguments_for = |kind| call_arguments(&user, thread.clients.for_kind(kind).bind(py));
        let mut async_arguments = arguments_for(FunctionKind::Coroutine)?.unbind();
        let plain_arguments = arguments_for(FunctionKind::Plain)?.unbind();
        let mut asyncio_task = None;
        if let Some(asyncio_loop) = &thread.asyncio_loop {
            let (queue, client) = queue_and_client(&user, thread)?;
            async_arguments = call_arguments(&user, client.bind(py))?.unbind();
            asyncio_task = Some(AsyncioUserTask::new(py, asyncio_loop, queue, &context)?);
        }
        Ok(PythonUserObject { user: user.unbind(), async_arguments, plain_arguments, context, asyncio_task })
    }

    /// Runs one of the scenario's functions to its end, on the thread of `permit` if there is one.
    async fn run(
        &mut self,
        call: &mut FunctionCall<'_>,
        function: &ScenarioFunction,
        permit: Option<ThreadPermit>,
    ) -> PyResult<()> {
        let thread = call.thread;
        if let (FunctionKind::Coroutine, Some(asyncio_task)) = (function.kind, &self.asyncio_task) {
            // Boxed, so that users without asyncio stay small.
            return match Box::pin(call.run_on_asyncio(asyncio_task, function, &self.async_arguments)).await {
                AsyncioCallEnd::TaskIdle(ended) => ended,
                AsyncioCallEnd::TaskStuck(ended) => {
                    Python::attach(|py| asyncio_task.end(py));
                    Python::attach(|py| self.replace_asyncio_task(py, thread))?;
                    ended
                }
            };
        }
        if let Some(permit) = permit {
            let threads = (&thread.blocking_threads, permit);
            // Boxed, so that users without threads stay small.
            let call = Box::pin(call.run_on_thread(threads, function, &self.plain_arguments, &self.context));
            return match call.await {
                ThreadCallEnd::Returned(ended) => ended,
                ThreadCallEnd::GivenUp(ended) => {
                    // The function keeps its context entered.
                    self.context = Python::attach(|py| self.context.copy(py))?;
                    ended
                }
            };
        }
        let arguments = self.arguments(function.kind);
        let stepper = Python::attach(|py| {
            FunctionStepper::start(py, &thread.scenario, &thread.idle_fibers, function, arguments, &self.context)
        })?;
        call.drive(stepper).await
    }

    fn replace_asyncio_task(&mut self, py: Python<'_>, thread: &PythonThreadContext) -> PyResult<()> {
        let Some(asyncio_loop) = &thread.asyncio_loop else { return Ok(()) };
        let (queue, client) = queue_and_client(self.user.bind(py), thread)?;
        self.async_arguments = call_arguments(self.user.bind(py), client.bind(py))?.unbind();
        self.context = self.context.copy(py)?;
        self.asyncio_task = Some(AsyncioUserTask::new(py, asyncio_loop, queue, &self.context)?);
        Ok(())
    }

    fn arguments(&self, kind: FunctionKind) -> &Py<PyTuple> {
        match kind {
            FunctionKind::Coroutine => &self.async_arguments,
            FunctionKind::Plain => &self.plain_arguments,
        }
    }
}

impl Drop for PythonUserObject {
    fn drop(&mut self) {
        Python::attach(|py| {
            if let Some(asyncio_task) = &self.asyncio_task {
                asyncio_task.end(py);
            }
            // Other users may wait for the resources that this user holds, however it ended.
            let resources = self.user.getattr(py, "resources");
            if let Err(error) = resources.and_then(|resources| resources.call_method0(py, "release_all")) {
                error.write_unraisable(py, Some(self.user.bind(py)));
            }
        });
    }
}

impl PythonUser {
    pub(super) fn new(thread: Rc<PythonThreadContext>, identity: UserIdentity) -> PythonUser {
        let first = Session::new(&thread.scenario.connector);
        PythonUser {
            thread,
            identity,
            sessions: UserSessions { first, extra: Vec::new() },
            object: None,
            thread_permit: None,
        }
    }

    /// Runs the hooks named `name`, `on_start` or `on_stop`. The first failure is recorded and ends
    /// them.
    async fn run_lifecycle_hooks(
        &mut self,
        hooks: fn(&PythonThreadContext) -> &[ScenarioFunction],
        name: &'static str,
    ) -> Result<(), OnStartError> {
        let thread = self.thread.clone();
        for hook in hooks(&thread) {
            let Some(object) = &mut self.object else { return Ok(()) };
            let permit = thread.acquire_thread(hook).await;
            if name == "on_start" && permit.is_some() && watchdog::load_is_over() {
                return Err(OnStartError("the load was over before a thread was free".to_owned()));
            }
            let started = Instant::now();
            let mut guard = LifecycleGuard { thread: &thread, name, started, ended: false };
            let mut call = FunctionCall {
                thread: &thread,
                sessions: &mut self.sessions,
                start_delay: Duration::ZERO,
                time_limit: None,
                name,
                last_request: None,
                request_cut_off: false,
                timed_out: false,
                request_before_timeout: None,
                last_response: None,
            };
            let ended = object.run(&mut call, hook, permit).await;
            guard.ended = true;
            let Err(error) = ended else {
                call.record_last_request();
                continue;
            };
            let metric = thread.lifecycle_metric(name);
            let outcome = Python::attach(|py| note_exception(py, &thread, metric, started, &error));
            record_code_failure(&mut call, &error, outcome, (started, started));
            call.record_last_request();
            thread.recorder.record_span(metric, started, Instant::now(), outcome);
            return Err(OnStartError(error.to_string()));
        }
        Ok(())
    }
}

/// Records an `on_start` or `on_stop` whose future is dropped before the hook ends. Without this
/// record, a hook that has recorded no request would be missing from the report.
struct LifecycleGuard<'s> {
    thread: &'s PythonThreadContext,
    name: &'static str,
    started: Instant,
    ended: bool,
}

impl Drop for LifecycleGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (recorder, metric) = (&self.thread.recorder, self.thread.lifecycle_metric(self.name));
            let message = format!("{} had not ended when the run did", self.name);
            recorder.note_error(metric, self.started, Outcome::ABORTED, &message);
            recorder.record_span(metric, self.started, Instant::now(), Outcome::ABORTED);
        }
    }
}

impl VirtualUser for PythonUser {
    async fn on_start(&mut self) -> Result<(), OnStartError> {
        let started = Instant::now();
        let thread = self.thread.clone();
        if !thread.scenario.needs_python {
            return Ok(());
        }
        match Python::attach(|py| PythonUserObject::new(py, &thread, self.identity)) {
            Ok(object) => self.object = Some(object),
            Err(error) => {
                let metric = thread.lifecycle_metric("on_start");
                let outcome = Python::attach(|py| note_exception(py, &thread, metric, started, &error));
                thread.recorder.record_span(metric, started, Instant::now(), outcome);
                return Err(OnStartError(error.to_string()));
            }
        }
        if thread.scenario.on_start.is_empty() {
            return Ok(());
        }
        let ended = Box::pin(self.run_lifecycle_hooks(|thread| &thread.scenario.on_start, "on_start")).await;
        if thread.scenario.begins_like_loadpilot { Ok(()) } else { ended }
    }

    async fn acquire_thread(&mut self, task: TaskIndex) {
        let thread = &self.thread;
        if thread.constant_requests[task.0].is_none() {
            self.thread_permit = thread.acquire_thread(&thread.scenario.tasks[task.0].function).await;
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let thread = &*self.thread;
        let index = iteration.task.0;
        let (task, metric) = (&thread.scenario.tasks[index], &thread.task_metrics[index]);
        let start_delay = iteration.started.saturating_duration_since(iteration.intended);
        let span = thread.recorder.open_span(std::slice::from_ref(metric), iteration.intended, iteration.started);
        if let Some(calls) = &thread.constant_requests[index] {
            let ended = send_constant(thread, &mut self.sessions.first, calls, start_delay).await;
            let outcome = match &ended {
                Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
                Err(error) => Python::attach(|py| note_exception(py, thread, *metric, iteration.intended, error)),
            };
            span.end(Instant::now(), outcome);
            return ended.is_ok();
        }
        let Some(object) = &mut self.object else { return false };
        let mut call = FunctionCall {
            thread,
            sessions: &mut self.sessions,
            start_delay,
            time_limit: task.timeout.map(|limit| (iteration.started + limit, limit)),
            name: &task.name,
            last_request: None,
            request_cut_off: false,
            timed_out: false,
            request_before_timeout: None,
            last_response: None,
        };
        let mut ended = object.run(&mut call, &task.function, self.thread_permit.take()).await;
        if let (Ok(()), Some(check), Some(response)) = (&ended, &task.check, &call.last_response) {
            ended = Python::attach(|py| object.context.run(py, || check.run(py, &object.user, response)));
            if ended.is_err() && call.last_request.as_ref().is_some_and(|last| !last.has_status_outcome()) {
                // The last request got no response and has failed already. The check rejects an
                // earlier response.
                call.record_last_request();
            }
        }
        let outcome = match &ended {
            Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
            Err(error) => Python::attach(|py| note_exception(py, thread, *metric, iteration.intended, error)),
        };
        if let Err(error) = &ended {
            record_code_failure(&mut call, error, outcome, (iteration.intended, iteration.started));
        }
        call.record_last_request();
        span.end(Instant::now(), outcome);
        if ended.is_err() {
            // Code may have been interrupted before its first await. Yield, so that the thread sees
            // the abort before the code starts again.
            tokio::task::yield_now().await;
        }
        ended.is_ok()
    }

    async fn on_stop(&mut self) {
        let thread = self.thread.clone();
        if self.object.is_some() && !thread.scenario.on_stop.is_empty() {
            // The failure is already recorded, and the engine does not retry `on_stop`.
            let _ = Box::pin(self.run_lifecycle_hooks(|thread| &thread.scenario.on_stop, "on_stop")).await;
        }
        self.object = None;
    }
}

/// Counts a failure of the code as exactly one error of the run. It fails the last request. If
/// there is none and no request has failed for it, it is recorded as a request that was not sent.
#[cold]
fn record_code_failure(
    call: &mut FunctionCall<'_>,
    error: &PyErr,
    outcome: Outcome,
    (intended, started): (Instant, Instant),
) {
    match &mut call.last_request {
        Some(last) => last.mark_failed(outcome),
        None if call.request_cut_off || Python::attach(|py| exceptions::is_request_failure(py, error)) => {}
        None => {
            let metric = call.thread.request_metric(&format!("{}{CODE_FAILURE_SUFFIX}", call.name));
            call.thread.recorder.record_unsent(metric, intended, started, outcome);
        }
    }
}

/// Keeps the message of an exception for the report. Returns the outcome that the exception stands for.
#[cold]
fn note_exception(
    py: Python<'_>,
    thread: &PythonThreadContext,
    metric: MetricId,
    intended: Instant,
    error: &PyErr,
) -> Outcome {
    let name = error.get_type(py).name().map_or_else(|_| "EXCEPTION".to_owned(), |name| name.to_string());
    let outcome = match () {
        () if exceptions::is_task_timeout(py, error) => TASK_TIMEOUT,
        () if error.is_instance_of::<PyAssertionError>(py) => {
            Outcome::new(OutcomeCategory::CheckFailed, exception_code(&name))
        }
        () => Outcome::new(OutcomeCategory::Exception, exception_code(&name)),
    };
    // A failed request has its own message; this one adds the line of the task. `into_value`, not
    // `value`: in Python older than 3.12 only `into_value` keeps the traceback.
    let described = thread.scenario.describe.bind(py).call1((error.clone_ref(py).into_value(py),));
    let message = described.and_then(|message| message.extract::<String>()).unwrap_or_else(|_| error.to_string());
    thread.recorder.note_error(metric, intended, outcome, &message);
    outcome
}
