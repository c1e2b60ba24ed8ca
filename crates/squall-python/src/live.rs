//! What is opened like a request and lasts longer: the base of streamed answers and WebSockets. Opens them, measured like any request, with
//! the user's cookies, and counts what they move; what is said afterwards is theirs.

use pyo3::{exceptions::PyStopAsyncIteration, prelude::*};
use squall_engine::ThreadRecorder;
use squall_http::{Connector, StreamingResponse, PreparedRequest, RequestError};
use squall_metrics::{OutcomeCategory, MetricKey, Outcome};
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
    request: PreparedRequest,
    pub(crate) name: String,
    /// Locked only for a moment, so that one may send while one waits for a message.
    state: Mutex<S>,
    opened: Mutex<Option<Opened>>,
}

/// The request that opened a connection, and what of its bytes is recorded.
struct Opened {
    name: String,
    due: Instant,
    counted: (u64, u64),
}

/// A connection that knows how much it has moved.
pub(crate) trait Moves {
    /// Bytes read and written since it was opened, the request and the head of its answer included; also of one that is closed.
    fn moved(&self) -> (u64, u64);
}

/// Counts what one job moved, however it ends.
struct Tally<'p, S: Moves> {
    link: Arc<Link<S>>,
    probe: &'p ThreadRecorder,
    prefix: &'p str,
}

impl<S: Moves> Drop for Tally<'_, S> {
    fn drop(&mut self) {
        let moved = self.link.state().moved();
        let mut opened = self.link.opened();
        let Some(opened) = opened.as_mut() else { return };
        let before = std::mem::replace(&mut opened.counted, moved);
        let (read, written) = (moved.0.saturating_sub(before.0), moved.1.saturating_sub(before.1));
        if read + written > 0 {
            let metric = self.probe.metric(MetricKey::request(format!("{}{}", self.prefix, opened.name)));
            self.probe.add_bytes(metric, opened.due, read, written);
        }
    }
}

/// Why an answer is not the one that was asked for.
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
}

impl Refused {
    fn redirect(error: RequestError) -> Refused {
        let (code, reason) = (error.redirect_code(), error.to_string());
        Refused { code, outcome: Outcome::new(OutcomeCategory::ProtocolError, code), reason }
    }
}

impl<S: Moves + Send + 'static> Live<S> {
    pub(crate) fn new(
        connector: Connector,
        request: PreparedRequest,
        name: String,
        state: S,
        port: Option<Py<Port>>,
    ) -> Live<S> {
        let (state, opened) = (Mutex::new(state), Mutex::default());
        Live { link: Arc::new(Link { connector, request, name, state, opened }), port }
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
        let job = Job::new(move |means| {
            let tally = Tally { link: link.clone(), probe: means.probe, prefix: means.prefix };
            let running = begin(link, means);
            Box::pin(async move {
                let _tally = tally;
                running.await
            })
        });
        Operation::new(Work::Job(job), self.port.as_ref().map(|port| port.clone_ref(py)))
    }
}

impl<S> Link<S> {
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request and waits for the head of an answer that `judge` accepts.
    pub(crate) async fn open(
        &self,
        means: &Means<'_>,
        judge: impl FnOnce(&StreamingResponse) -> Result<(), Refused>,
    ) -> PyResult<StreamingResponse> {
        let (answer, _, ()) = self.ask(means, &self.request, &self.name, judge).await?;
        Ok(answer)
    }

    /// Sends the request, follows redirects as other requests do, and waits for the head of the last answer. Also says when that began.
    pub(crate) async fn open_at_last(&self, means: &Means<'_>) -> PyResult<(StreamingResponse, Instant)> {
        let judge =
            |request: &PreparedRequest, answer: &StreamingResponse| answer.redirect(request).transpose().map_err(Refused::redirect);
        let (mut answer, begun, mut next) =
            self.ask(means, &self.request, &self.name, |answer| judge(&self.request, answer)).await?;
        while let Some(request) = next {
            let name = format!("{} (redirect)", self.name);
            (answer, _, next) = self.ask(means, &request, &name, |answer| judge(&request, answer)).await?;
        }
        Ok((answer, begun))
    }

    async fn ask<T>(
        &self,
        means: &Means<'_>,
        request: &PreparedRequest,
        name: &str,
        judge: impl FnOnce(&StreamingResponse) -> Result<T, Refused>,
    ) -> PyResult<(StreamingResponse, Instant, T)> {
        let metric = means.request(name);
        let due = Instant::now();
        let started = means.probe.wait_for_budget(due).await;
        let Some(flight) = means.probe.begin(metric, due, started) else {
            return Err(Python::attach(|py| raise::fenced(py, name)));
        };
        let answer = match StreamingResponse::open(&self.connector, request, &means.cookies).await {
            Ok(answer) => answer,
            Err(error) => {
                let outcome = failure(&error);
                means.probe.note_error(metric, outcome, &error.to_string());
                match error.failed_before_sending() {
                    true => flight.end_unsent(Instant::now(), outcome),
                    false => flight.end(Instant::now(), outcome, 0, 0),
                }
                return Err(Python::attach(|py| raise::request_failed(py, &error, name)));
            }
        };
        let judged = judge(&answer);
        let outcome = judged.as_ref().err().map_or(Outcome::of_status(answer.status()), |refused| refused.outcome);
        let counted = (answer.received(), answer.sent());
        flight.end(Instant::now(), outcome, counted.0, counted.1);
        match judged {
            Ok(verdict) => {
                *self.opened() = Some(Opened { name: name.to_owned(), due, counted });
                Ok((answer, started, verdict))
            }
            Err(Refused { code, reason, .. }) => {
                means.probe.note_error(metric, outcome, &reason);
                Err(Python::attach(|py| raise::broken(py, code, &reason, name)))
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
