//! One virtual user: an object of the scenario's class and a session. Its code may raise; that fails the iteration, never the run.

use pyo3::{exceptions::PyAssertionError, prelude::*, types::PyTuple};
use squall_engine::{Iteration, UserIdentity, UserStartError, VirtualUser};
use squall_http::Session;
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
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
};
use crate::{
    context_variables::ContextVariables,
    exceptions,
    function_stepper::FunctionStepper,
    python_scenario::{FunctionKind, ScenarioFunction, call_arguments},
};

/// One virtual user of a Python scenario.
pub(crate) struct PythonUser {
    thread: Rc<PythonThreadContext>,
    identity: UserIdentity,
    sessions: UserSessions,
    /// Made at the start, so that a scenario whose constructor fails is retried like one whose on_start does.
    instance: Option<PythonUserObject>,
}

/// The scenario's object with the arguments of its every call.
struct PythonUserObject {
    user: Py<PyAny>,
    async_arguments: Py<PyTuple>,
    plain_arguments: Py<PyTuple>,
    context: ContextVariables,
    /// Its task, where coroutines run on asyncio.
    asyncio_task: Option<AsyncioUserTask>,
}

impl PythonUserObject {
    fn new(py: Python<'_>, shared: &PythonThreadContext, seat: UserIdentity) -> PyResult<PythonUserObject> {
        let context = ContextVariables::new(py)?;
        let user = context.run(py, || shared.script.make_user.bind(py).call1((seat.number, seat.seed)))?;
        let made = |kind| call_arguments(&user, shared.clients.for_kind(kind).bind(py));
        let (mut awaiting, blocking) = (made(FunctionKind::Coroutine)?.unbind(), made(FunctionKind::Plain)?.unbind());
        let mut lodger = None;
        if let Some(guest) = &shared.asyncio_loop {
            let (port, client) = queue_and_client(&user, shared)?;
            awaiting = call_arguments(&user, client.bind(py))?.unbind();
            lodger = Some(AsyncioUserTask::new(py, guest, port, &context)?);
        }
        Ok(PythonUserObject {
            user: user.unbind(),
            async_arguments: awaiting,
            plain_arguments: blocking,
            context,
            asyncio_task: lodger,
        })
    }

    /// Runs one of the scenario's functions to its end.
    async fn run(&mut self, visit: &mut FunctionCall<'_>, hook: &ScenarioFunction) -> PyResult<()> {
        let shared = visit.thread;
        if let (FunctionKind::Coroutine, Some(lodger)) = (hook.kind, &self.asyncio_task) {
            // Boxed, so that users without asyncio are not larger for it.
            return match Box::pin(visit.run_on_asyncio(lodger, hook, &self.async_arguments)).await {
                AsyncioCallEnd::TaskIdle(ended) => ended,
                AsyncioCallEnd::TaskStuck(ended) => {
                    Python::attach(|py| lodger.end(py));
                    Python::attach(|py| self.replace_asyncio_task(py, shared))?;
                    ended
                }
            };
        }
        let arguments = self.arguments(hook.kind);
        let stepper = Python::attach(|py| {
            FunctionStepper::start(py, &shared.script, &shared.idle_fibers, hook, arguments, &self.context)
        })?;
        visit.drive(stepper).await
    }

    fn replace_asyncio_task(&mut self, py: Python<'_>, shared: &PythonThreadContext) -> PyResult<()> {
        let Some(guest) = &shared.asyncio_loop else { return Ok(()) };
        let (port, client) = queue_and_client(self.user.bind(py), shared)?;
        self.async_arguments = call_arguments(self.user.bind(py), client.bind(py))?.unbind();
        self.context = self.context.copy(py)?;
        self.asyncio_task = Some(AsyncioUserTask::new(py, guest, port, &self.context)?);
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
            if let Some(lodger) = &self.asyncio_task {
                lodger.end(py);
            }
            // However its life ended: others may be waiting for what it holds.
            let given_back = self.user.getattr(py, "resources").and_then(|hand| hand.call_method0(py, "release_all"));
            if let Err(error) = given_back {
                error.write_unraisable(py, Some(self.user.bind(py)));
            }
        });
    }
}

impl PythonUser {
    pub(super) fn new(shared: Rc<PythonThreadContext>, seat: UserIdentity) -> PythonUser {
        let first = Session::new(&shared.script.connector);
        PythonUser {
            thread: shared,
            identity: seat,
            sessions: UserSessions { first, extra: Vec::new() },
            instance: None,
        }
    }

    /// Runs on_start or on_stop.
    async fn run_lifecycle_hooks(
        &mut self,
        hooks: fn(&PythonThreadContext) -> &[ScenarioFunction],
        name: &'static str,
    ) -> Result<(), UserStartError> {
        let shared = self.thread.clone();
        for hook in hooks(&shared) {
            let Some(object) = &mut self.instance else { return Ok(()) };
            let begun = Instant::now();
            let mut unended = LifecycleGuard { thread: &shared, name, begun, ended: false };
            let mut visit = FunctionCall {
                thread: &shared,
                sessions: &mut self.sessions,
                start_delay: Duration::ZERO,
                time_limit: None,
                name,
                last_request: None,
                timed_out_request: false,
                timed_out: false,
                request_before_timeout: None,
                last_response: None,
            };
            let ended = object.run(&mut visit, hook).await;
            unended.ended = true;
            let Err(error) = ended else {
                visit.record_last_request();
                continue;
            };
            let metric = shared.lifecycle_metric(name);
            let outcome = Python::attach(|py| exception_outcome(py, &shared, metric, &error));
            record_code_failure(&mut visit, &error, outcome, (begun, begun));
            visit.record_last_request();
            shared.recorder.record_span(metric, begun, Instant::now(), outcome);
            return Err(UserStartError(error.to_string()));
        }
        Ok(())
    }
}

/// Tells of an on_start or on_stop that is given up before it has ended: no request of it may ever have been heard of.
struct LifecycleGuard<'s> {
    thread: &'s PythonThreadContext,
    name: &'static str,
    begun: Instant,
    ended: bool,
}

impl Drop for LifecycleGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (probe, metric) = (&self.thread.recorder, self.thread.lifecycle_metric(self.name));
            probe.note_error(metric, Outcome::ABORTED, &format!("{} had not ended when the run did", self.name));
            probe.record_span(metric, self.begun, Instant::now(), Outcome::ABORTED);
        }
    }
}

impl VirtualUser for PythonUser {
    async fn start(&mut self) -> Result<(), UserStartError> {
        let begun = Instant::now();
        let shared = self.thread.clone();
        if !shared.script.needs_python {
            return Ok(());
        }
        match Python::attach(|py| PythonUserObject::new(py, &shared, self.identity)) {
            Ok(object) => self.instance = Some(object),
            Err(error) => {
                let metric = shared.lifecycle_metric("on_start");
                let outcome = Python::attach(|py| exception_outcome(py, &shared, metric, &error));
                shared.recorder.record_span(metric, begun, Instant::now(), outcome);
                return Err(UserStartError(error.to_string()));
            }
        }
        if shared.script.on_start.is_empty() {
            return Ok(());
        }
        Box::pin(self.run_lifecycle_hooks(|shared| &shared.script.on_start, "on_start")).await
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let shared = &*self.thread;
        let index = iteration.task.0;
        let (task, metric) = (&shared.script.tasks[index], &shared.task_metrics[index]);
        let late = iteration.started.saturating_duration_since(iteration.intended);
        let span = shared.recorder.open_span(std::slice::from_ref(metric), iteration.intended, iteration.started);
        if let Some(calls) = &shared.constant_calls[index] {
            let ended = send_constant(shared, &mut self.sessions.first, calls, late).await;
            let outcome = match &ended {
                Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
                Err(error) => Python::attach(|py| exception_outcome(py, shared, *metric, error)),
            };
            span.end(Instant::now(), outcome);
            return ended.is_ok();
        }
        let Some(object) = &mut self.instance else { return false };
        let mut visit = FunctionCall {
            thread: shared,
            sessions: &mut self.sessions,
            start_delay: late,
            time_limit: task.timeout.map(|limit| (iteration.started + limit, limit)),
            name: &task.name,
            last_request: None,
            timed_out_request: false,
            timed_out: false,
            request_before_timeout: None,
            last_response: None,
        };
        let mut ended = object.run(&mut visit, &task.function).await;
        if let (Ok(()), Some(check), Some(answer)) = (&ended, &task.check, &visit.last_response) {
            ended = Python::attach(|py| object.context.run(py, || check.run(py, &object.user, answer)));
            if ended.is_err() && visit.last_request.as_ref().is_some_and(|last| !last.has_response()) {
                // That request has failed already. The check rejects the response before it.
                visit.record_last_request();
            }
        }
        let outcome = match &ended {
            Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
            Err(error) => Python::attach(|py| exception_outcome(py, shared, *metric, error)),
        };
        if let Err(error) = &ended {
            record_code_failure(&mut visit, error, outcome, (iteration.intended, iteration.started));
        }
        visit.record_last_request();
        span.end(Instant::now(), outcome);
        if ended.is_err() {
            // Code that was interrupted before it waited for anything must not be begun again before the thread has heard of the abort.
            tokio::task::yield_now().await;
        }
        ended.is_ok()
    }

    async fn stop(&mut self) {
        let shared = self.thread.clone();
        if self.instance.is_some() && !shared.script.on_stop.is_empty() {
            // Recorded; nobody is left to retry it.
            let _ = Box::pin(self.run_lifecycle_hooks(|shared| &shared.script.on_stop, "on_stop")).await;
        }
        self.instance = None;
    }
}

/// Makes a failure of the code an error of the run, once: of its last request, or by itself where there is none to bear it.
#[cold]
fn record_code_failure(
    visit: &mut FunctionCall<'_>,
    error: &PyErr,
    outcome: Outcome,
    (intended, started): (Instant, Instant),
) {
    match &mut visit.last_request {
        Some(last) => last.mark_failed(outcome),
        None if visit.timed_out_request || Python::attach(|py| exceptions::is_request_failure(py, error)) => {}
        None => {
            let metric = visit.thread.request_metric(&format!("{} (failed)", visit.name));
            visit.thread.recorder.record_unsent(metric, intended, started, outcome);
        }
    }
}

/// The outcome of an exception, and its words for the report.
#[cold]
fn exception_outcome(py: Python<'_>, shared: &PythonThreadContext, metric: MetricId, error: &PyErr) -> Outcome {
    let name = error.get_type(py).name().map_or_else(|_| "EXCEPTION".to_owned(), |name| name.to_string());
    let outcome = match () {
        () if exceptions::is_task_timeout(py, error) => TASK_TIMEOUT,
        () if error.is_instance_of::<PyAssertionError>(py) => {
            Outcome::new(OutcomeCategory::CheckFailed, exception_code(&name))
        }
        () => Outcome::new(OutcomeCategory::Exception, exception_code(&name)),
    };
    // A failed request has said what happened to it; here is in which line of which task.
    // `into_value` and not `value`: before Python 3.12 only the former carries the traceback.
    let described = shared.script.describe.bind(py).call1((error.clone_ref(py).into_value(py),));
    let words = described.and_then(|words| words.extract::<String>()).unwrap_or_else(|_| error.to_string());
    shared.recorder.note_error(metric, outcome, &words);
    outcome
}
