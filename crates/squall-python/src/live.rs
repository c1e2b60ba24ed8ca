//! What is opened like a request and lasts longer: the base of streamed answers and WebSockets. Opens them, measured like any request, with
//! the user's cookies; what is said afterwards is theirs.

use pyo3::{exceptions::PyStopAsyncIteration, prelude::*};
use squall_http::{Connector, LiveAnswer, Prepared};
use squall_metrics::Outcome;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    driver::failure,
    job::{Job, Means, Running},
    operation::{Operation, Work},
    port::Port,
    raise,
};

/// A connection of one user, not reused; `S` is what is known of it.
pub(crate) struct Live<S> {
    link: Arc<Link<S>>,
    port: Option<Py<Port>>,
}

/// The part that outlives a call.
pub(crate) struct Link<S> {
    connector: Connector,
    request: Prepared,
    pub(crate) name: String,
    /// Locked only for a moment, so that one may send while one waits for a message.
    state: Mutex<S>,
}

/// Why an answer is not the one that was asked for.
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
}

impl<S: Send + 'static> Live<S> {
    pub(crate) fn new(
        connector: Connector,
        request: Prepared,
        name: String,
        state: S,
        port: Option<Py<Port>>,
    ) -> Live<S> {
        Live { link: Arc::new(Link { connector, request, name, state: Mutex::new(state) }), port }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.link.state()
    }

    /// Something to be awaited that is done with the connection.
    pub(crate) fn job<F>(&self, py: Python<'_>, begin: F) -> Operation
    where
        F: for<'p> FnOnce(Arc<Link<S>>, Means<'p>) -> Running<'p> + Send + Sync + 'static,
    {
        let link = self.link.clone();
        let job = Job::new(move |means| begin(link, means));
        Operation::new(Work::Job(job), self.port.as_ref().map(|port| port.clone_ref(py)))
    }
}

impl<S> Link<S> {
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request and waits for the head of an answer that `judge` accepts. Also says when that began.
    pub(crate) async fn open(
        &self,
        means: &Means<'_>,
        judge: impl FnOnce(&LiveAnswer) -> Result<(), Refused>,
    ) -> PyResult<(LiveAnswer, Instant)> {
        let metric = means.request(&self.name);
        let due = Instant::now();
        let started = means.probe.clear(due).await;
        let Some(flight) = means.probe.begin(metric, due, started) else {
            return Err(Python::attach(|py| raise::fenced(py, &self.name)));
        };
        let answer = match LiveAnswer::open(&self.connector, &self.request, &means.cookies).await {
            Ok(answer) => answer,
            Err(error) => {
                let outcome = failure(&error);
                means.probe.note(metric, outcome, &error.to_string());
                match error.never_left() {
                    true => flight.never_left(Instant::now(), outcome),
                    false => flight.end(Instant::now(), outcome, 0, 0),
                }
                return Err(Python::attach(|py| raise::request_failed(py, &error, &self.name)));
            }
        };
        let judged = judge(&answer);
        let outcome = judged.as_ref().err().map_or(Outcome::of_status(answer.status()), |refused| refused.outcome);
        flight.end(Instant::now(), outcome, answer.received(), answer.sent());
        match judged {
            Ok(()) => Ok((answer, started)),
            Err(Refused { code, reason, .. }) => {
                means.probe.note(metric, outcome, &reason);
                Err(Python::attach(|py| raise::broken(py, code, &reason, &self.name)))
            }
        }
    }
}

/// What an iteration ends with, or a plain call: None.
pub(crate) fn nothing_more(py: Python<'_>, iterating: bool) -> PyResult<Py<PyAny>> {
    match iterating {
        true => Err(PyStopAsyncIteration::new_err(())),
        false => Ok(py.None()),
    }
}
