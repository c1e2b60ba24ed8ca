//! Sends requests for the code of a Python scenario: one, a batch, or those of a constant task. The
//! [`RequestRunner`] sends and records; this file turns the result into a Python response or
//! exception. Called by [`FunctionCall`](super::function_call::FunctionCall) and the user.

use pyo3::prelude::*;
use squall_http::{BodyMode, Exchange, HttpResponse, Session};
use squall_metrics::MetricId;
use squall_scenario::{EndedRequest, RequestFailure, RequestHandler, RequestRunner, RequestStart};
use std::{
    borrow::Cow,
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use super::PythonThreadContext;
use crate::{exceptions, response::PyResponse, routes::PreparedCall, watchdog};

/// A response is recorded as delayed if other code blocked the thread for longer than this and for
/// more than half of the exchange. Its time then says more about the generator than about the
/// target.
const MIN_BLOCKED_TIME: Duration = Duration::from_millis(10);

/// The result of one request for the scenario's code.
pub(super) struct PythonRequestResult<'p> {
    /// `None` if the body was discarded.
    pub(super) result: PyResult<Option<PyResponse>>,
    /// `None` if the request is already recorded.
    pub(super) ended_request: Option<EndedRequest<'p>>,
}

/// Sends one request and follows its redirects. The request is due now, or was due `start_delay`
/// ago.
pub(super) async fn send_request<'p>(
    thread: &'p PythonThreadContext,
    session: &mut Session,
    call: &PreparedCall,
    start_delay: Duration,
    body_mode: BodyMode,
) -> PythonRequestResult<'p> {
    let metric = thread.metric(call);
    let mut handler = PythonRequestHandler {
        thread,
        name: Cow::Borrowed(&call.name),
        redirect_metric: None,
        body_mode,
        blocked_before: Duration::ZERO,
    };
    let started = Instant::now();
    let start = RequestStart { metric, intended: started - start_delay, started };
    RequestRunner::new(&thread.recorder).run(session, call.request(), start, &mut handler).await
}

/// Sends `calls` at once, each on a session of its own. Results are in the order of `calls`.
pub(super) async fn send_all<'p, 's>(
    thread: &'p PythonThreadContext,
    sessions: impl Iterator<Item = &'s mut Session>,
    calls: &[PreparedCall],
    start_delay: Duration,
) -> Vec<PythonRequestResult<'p>> {
    let send = |(call, session)| send_request(thread, session, call, start_delay, BodyMode::Keep);
    join_all(calls.iter().zip(sessions).map(send).collect()).await
}

/// Sends the requests of a constant task, one after the other. The first failure ends the task.
pub(super) async fn send_constant(
    thread: &PythonThreadContext,
    session: &mut Session,
    calls: &[PreparedCall],
    mut start_delay: Duration,
) -> PyResult<()> {
    for call in calls {
        let start_delay = std::mem::take(&mut start_delay);
        let sent = send_request(thread, session, call, start_delay, BodyMode::Discard).await;
        record(sent.ended_request);
        sent.result?;
    }
    Ok(())
}

/// Records a finished request with its present outcome.
pub(super) fn record(ended_request: Option<EndedRequest<'_>>) {
    if let Some(request) = ended_request {
        request.record();
    }
}

/// Makes the results for the scenario's code. A response is not recorded yet, because code and checks
/// may still reject it.
struct PythonRequestHandler<'p, 'c> {
    thread: &'p PythonThreadContext,
    /// The request's name in the report, also after redirects.
    name: Cow<'c, str>,
    redirect_metric: Option<MetricId>,
    body_mode: BodyMode,
    /// [`watchdog::long_step_time`] when the request was sent.
    blocked_before: Duration,
}

impl<'p> RequestHandler<'p> for PythonRequestHandler<'p, '_> {
    type Output = PythonRequestResult<'p>;

    fn body_mode(&self) -> BodyMode {
        self.body_mode
    }

    fn redirect_metric(&mut self) -> MetricId {
        let (thread, name) = (self.thread, &mut self.name);
        *self.redirect_metric.get_or_insert_with(|| {
            name.to_mut().push_str(" (redirect)");
            thread.request_metric(name)
        })
    }

    fn before_send(&mut self) {
        self.blocked_before = watchdog::long_step_time();
    }

    fn after_exchange(&mut self, exchange: &Exchange<'_>) {
        let blocked = watchdog::long_step_time() - self.blocked_before;
        if blocked > MIN_BLOCKED_TIME && blocked * 2 > exchange.ended - exchange.started {
            self.thread.record_delayed_response(blocked, exchange.ended);
        }
    }

    fn on_response(
        &mut self,
        request: EndedRequest<'p>,
        response: HttpResponse<'_>,
        exchange: &Exchange<'_>,
    ) -> PythonRequestResult<'p> {
        let elapsed = exchange.ended - exchange.started;
        let response = (self.body_mode == BodyMode::Keep).then(|| PyResponse::new(&response, elapsed));
        PythonRequestResult { result: Ok(response), ended_request: Some(request) }
    }

    fn on_failure(&mut self, failure: RequestFailure<'p, '_>) -> PythonRequestResult<'p> {
        let name = &*self.name;
        let (error, ended_request) = Python::attach(|py| match failure {
            RequestFailure::Fenced => (exceptions::worker_fenced(py, name), None),
            RequestFailure::Unsent { error, .. } => (exceptions::request_failed(py, error, name), None),
            RequestFailure::NoResponse { request, error } => {
                (exceptions::request_failed(py, error, name), Some(request))
            }
            RequestFailure::BadRedirect { request, error } => {
                let error = exceptions::protocol_error(py, error.redirect_code(), &error.to_string(), name);
                (error, Some(request))
            }
        });
        PythonRequestResult { result: Err(error), ended_request }
    }
}

/// Polls all futures until all are done. Batches are short, so a scan per wake-up costs less than a
/// queue, and one allocation for all futures costs less than a box for each.
async fn join_all<F: Future>(futures: Box<[F]>) -> Vec<F::Output> {
    let mut futures: Pin<Box<[F]>> = Box::into_pin(futures);
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut pending = outputs.len();
    poll_fn(|cx| {
        for (index, output) in outputs.iter_mut().enumerate().filter(|(_, output)| output.is_none()) {
            // SAFETY: the slice is pinned as a whole and never moved before it is dropped, so each
            // of its elements is pinned.
            let future = unsafe { futures.as_mut().map_unchecked_mut(|all| &mut all[index]) };
            if let Poll::Ready(value) = future.poll(cx) {
                *output = Some(value);
                pending -= 1;
            }
        }
        if pending > 0 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
