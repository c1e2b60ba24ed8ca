//! One virtual user: an object of the scenario's class and a session. Its code may raise; that fails the iteration, never the run.

use pyo3::{exceptions::PyAssertionError, prelude::*, types::PyTuple};
use squall_engine::{Iteration, UserIdentity, UserStartError, VirtualUser};
use squall_http::Session;
use squall_metrics::{OutcomeCategory, MetricId, Outcome};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    Shared, code_of,
    hosted::{Lodger, port_and_client},
    visit::{Sessions, TASK_TIMEOUT, Visit, repeat},
};
use crate::{
    context::Variables,
    raise,
    script::{Hook, Kind, arguments},
    step::Stepper,
};

/// One virtual user of a Python scenario.
pub(crate) struct PythonUser {
    shared: Rc<Shared>,
    seat: UserIdentity,
    sessions: Sessions,
    /// Made at the start, so that a scenario whose constructor fails is retried like one whose on_start does.
    object: Option<Object>,
}

/// The scenario's object with the arguments of its every call.
struct Object {
    user: Py<PyAny>,
    awaiting: Py<PyTuple>,
    blocking: Py<PyTuple>,
    context: Variables,
    /// Its task, where coroutines run on asyncio.
    lodger: Option<Lodger>,
}

impl Object {
    fn new(py: Python<'_>, shared: &Shared, seat: UserIdentity) -> PyResult<Object> {
        let context = Variables::new(py)?;
        let user = context.run(py, || shared.script.make_user.bind(py).call1((seat.number, seat.seed)))?;
        let made = |kind| arguments(&user, shared.clients.of(kind).bind(py));
        let (mut awaiting, blocking) = (made(Kind::Coroutine)?.unbind(), made(Kind::Plain)?.unbind());
        let mut lodger = None;
        if let Some(guest) = &shared.guest {
            let (port, client) = port_and_client(&user, shared)?;
            awaiting = arguments(&user, client.bind(py))?.unbind();
            lodger = Some(Lodger::new(py, guest, port, &context)?);
        }
        Ok(Object { user: user.unbind(), awaiting, blocking, context, lodger })
    }

    /// Runs one of the scenario's functions to its end.
    async fn run(&mut self, visit: &mut Visit<'_>, hook: &Hook) -> PyResult<()> {
        let shared = visit.shared;
        if let (Kind::Coroutine, Some(lodger)) = (hook.kind, &self.lodger) {
            // Boxed, so that users who do without asyncio do not pay for its size.
            let (ended, abandoned) = Box::pin(visit.host(lodger, hook, &self.awaiting)).await;
            if abandoned {
                // Its task does not listen: the user goes on with another one.
                Python::attach(|py| lodger.dismiss(py));
                Python::attach(|py| self.move_out(py, shared))?;
            }
            return ended;
        }
        let arguments = self.arguments(hook.kind);
        let stepper =
            Python::attach(|py| Stepper::begin(py, &shared.script, &shared.fibers, hook, arguments, &self.context))?;
        visit.drive(stepper).await
    }

    fn move_out(&mut self, py: Python<'_>, shared: &Shared) -> PyResult<()> {
        let Some(guest) = &shared.guest else { return Ok(()) };
        let (port, client) = port_and_client(self.user.bind(py), shared)?;
        self.awaiting = arguments(self.user.bind(py), client.bind(py))?.unbind();
        self.context = self.context.copy(py)?;
        self.lodger = Some(Lodger::new(py, guest, port, &self.context)?);
        Ok(())
    }

    fn arguments(&self, kind: Kind) -> &Py<PyTuple> {
        match kind {
            Kind::Coroutine => &self.awaiting,
            Kind::Plain => &self.blocking,
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        Python::attach(|py| {
            if let Some(lodger) = &self.lodger {
                lodger.dismiss(py);
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
    pub(super) fn new(shared: Rc<Shared>, seat: UserIdentity) -> PythonUser {
        let first = Session::new(&shared.script.connector);
        PythonUser { shared, seat, sessions: Sessions { first, more: Vec::new() }, object: None }
    }

    /// Runs on_start or on_stop.
    async fn life(&mut self, hooks: fn(&Shared) -> &[Hook], name: &'static str) -> Result<(), UserStartError> {
        let shared = self.shared.clone();
        for hook in hooks(&shared) {
            let Some(object) = &mut self.object else { return Ok(()) };
            let begun = Instant::now();
            let mut unended = Unended { shared: &shared, name, begun, ended: false };
            let mut visit = Visit {
                shared: &shared,
                sessions: &mut self.sessions,
                late: Duration::ZERO,
                limit: None,
                name,
                last: None,
                cut_request: false,
                cut: false,
                borne: None,
                answer: None,
            };
            let ended = object.run(&mut visit, hook).await;
            unended.ended = true;
            if let Err(error) = ended {
                let metric = shared.lifecycle(name);
                let outcome = Python::attach(|py| failed(py, &shared, metric, &error));
                blame(&mut visit, &error, outcome, (begun, begun));
                shared.probe.record_span(metric, begun, Instant::now(), outcome);
                return Err(UserStartError(error.to_string()));
            }
        }
        Ok(())
    }
}

/// Tells of an on_start or on_stop that is given up before it has ended: no request of it may ever have been heard of.
struct Unended<'s> {
    shared: &'s Shared,
    name: &'static str,
    begun: Instant,
    ended: bool,
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (probe, metric) = (&self.shared.probe, self.shared.lifecycle(self.name));
            probe.note_error(metric, Outcome::ABORTED, &format!("{} had not ended when the run did", self.name));
            probe.record_span(metric, self.begun, Instant::now(), Outcome::ABORTED);
        }
    }
}

impl VirtualUser for PythonUser {
    async fn start(&mut self) -> Result<(), UserStartError> {
        let begun = Instant::now();
        let shared = self.shared.clone();
        if !shared.script.needs_python {
            return Ok(());
        }
        match Python::attach(|py| Object::new(py, &shared, self.seat)) {
            Ok(object) => self.object = Some(object),
            Err(error) => {
                let metric = shared.lifecycle("on_start");
                let outcome = Python::attach(|py| failed(py, &shared, metric, &error));
                shared.probe.record_span(metric, begun, Instant::now(), outcome);
                return Err(UserStartError(error.to_string()));
            }
        }
        if shared.script.on_start.is_empty() {
            return Ok(());
        }
        Box::pin(self.life(|shared| &shared.script.on_start, "on_start")).await
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let shared = &*self.shared;
        let index = iteration.task.0;
        let (task, metric) = (&shared.script.tasks[index], &shared.tasks[index]);
        let late = iteration.started.saturating_duration_since(iteration.intended);
        let span = shared.probe.open_span(std::slice::from_ref(metric), iteration.intended, iteration.started);
        if let Some(calls) = &shared.constant[index] {
            let ended = repeat(shared, &mut self.sessions.first, calls, late).await;
            let outcome = match &ended {
                Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
                Err(error) => Python::attach(|py| failed(py, shared, *metric, error)),
            };
            span.end(Instant::now(), outcome);
            return ended.is_ok();
        }
        let Some(object) = &mut self.object else { return false };
        let mut visit = Visit {
            shared,
            sessions: &mut self.sessions,
            late,
            limit: task.timeout.map(|limit| (iteration.started + limit, limit)),
            name: &task.name,
            last: None,
            cut_request: false,
            cut: false,
            borne: None,
            answer: None,
        };
        let mut ended = object.run(&mut visit, &task.hook).await;
        if let (Ok(()), Some(check), Some(answer)) = (&ended, &task.check, &visit.answer) {
            ended = Python::attach(|py| object.context.run(py, || check.run(py, &object.user, answer)));
            if ended.is_err() && visit.last.as_ref().is_some_and(|last| !last.was_answered()) {
                // It has failed already; what the check refuses is an answer before it.
                visit.last = None;
            }
        }
        let outcome = match &ended {
            Ok(()) => Outcome::new(OutcomeCategory::Ok, "OK"),
            Err(error) => Python::attach(|py| failed(py, shared, *metric, error)),
        };
        if let Err(error) = &ended {
            blame(&mut visit, error, outcome, (iteration.intended, iteration.started));
        }
        span.end(Instant::now(), outcome);
        if ended.is_err() {
            // Code that was interrupted before it waited for anything must not be begun again before the thread has heard of the abort.
            tokio::task::yield_now().await;
        }
        ended.is_ok()
    }

    async fn stop(&mut self) {
        let shared = self.shared.clone();
        if self.object.is_some() && !shared.script.on_stop.is_empty() {
            // Recorded; nobody is left to retry it.
            let _ = Box::pin(self.life(|shared| &shared.script.on_stop, "on_stop")).await;
        }
        self.object = None;
    }
}

/// Makes a failure of the code an error of the run, once: of its last request, or by itself where there is none to bear it.
#[cold]
fn blame(visit: &mut Visit<'_>, error: &PyErr, outcome: Outcome, (intended, started): (Instant, Instant)) {
    match &mut visit.last {
        Some(last) => last.object(outcome),
        None if visit.cut_request || Python::attach(|py| raise::is_request_failure(py, error)) => {}
        None => {
            let metric = visit.shared.request(&format!("{} (failed)", visit.name));
            visit.shared.probe.record_unsent(metric, intended, started, outcome);
        }
    }
}

/// The outcome of an exception, and its words for the report.
#[cold]
fn failed(py: Python<'_>, shared: &Shared, metric: MetricId, error: &PyErr) -> Outcome {
    let name = error.get_type(py).name().map_or_else(|_| "EXCEPTION".to_owned(), |name| name.to_string());
    let outcome = match () {
        () if raise::is_task_timeout(py, error) => TASK_TIMEOUT,
        () if error.is_instance_of::<PyAssertionError>(py) => Outcome::new(OutcomeCategory::CheckFailed, code_of(&name)),
        () => Outcome::new(OutcomeCategory::Exception, code_of(&name)),
    };
    // A failed request has said what happened to it; here is in which line of which task.
    // `into_value` and not `value`: before Python 3.12 only the former carries the traceback.
    let described = shared.script.describe.bind(py).call1((error.clone_ref(py).into_value(py),));
    let words = described.and_then(|words| words.extract::<String>()).unwrap_or_else(|_| error.to_string());
    shared.probe.note_error(metric, outcome, &words);
    outcome
}
