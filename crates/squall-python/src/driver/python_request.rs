//! Sends requests for the code of a Python scenario: one, a batch, those of a constant task, or the
//! request that opens a stream or a WebSocket. The [`RequestRunner`] sends and records; this file turns
//! the result into a Python response or exception. Called by
//! [`FunctionCall`](super::function_call::FunctionCall), the user and `long_connection`.

use pyo3::prelude::*;
use squall_http::{
    BodyMode, Connector, Exchange, HttpResponse, PreparedRequest, Session, StreamOpener, StreamingResponse,
};
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
use crate::{exceptions, long_operation::OperationContext, response::PyResponse, routes::RoutedRequest, watchdog};

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
    call: &RoutedRequest,
    start_delay: Duration,
    body_mode: BodyMode,
) -> PythonRequestResult<'p> {
    let metric = thread.metric(call);
    let mut handler = PythonRequestHandler::new(thread, &call.name, body_mode, RedirectMode::Follow);
    let start = request_start(metric, start_delay);
    RequestRunner::new(&thread.recorder).run(session, call.request(), start, &mut handler).await
}

/// The request that opens a stream or a WebSocket.
pub(crate) struct OpeningCall<'c> {
    pub(crate) request: &'c PreparedRequest,
    /// The name that the request is recorded under.
    pub(crate) name: &'c str,
    pub(crate) redirects: RedirectMode,
}

/// Whether redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectMode {
    Follow,
    /// A redirect is a response like any other.
    Return,
}

/// A response whose head has arrived.
pub(crate) struct OpenedResponse<'p> {
    pub(crate) response: StreamingResponse,
    /// The request that got the response.
    pub(crate) request: EndedRequest<'p>,
    /// The name that this request is recorded under.
    pub(crate) name: String,
    /// When the first request was sent, before all redirects.
    pub(crate) first_sent: Instant,
}

/// Sends the request and waits for the head of the response. A failed request is recorded.
pub(crate) async fn open_response<'p>(
    context: &OperationContext<'p>,
    connector: &Connector,
    call: OpeningCall<'_>,
) -> PyResult<OpenedResponse<'p>> {
    let thread = context.thread;
    let start = request_start(thread.request_metric(call.name), context.start_delay);
    let mut opener = StreamOpener::new(connector, context.cookies.clone());
    let mut handler = PythonRequestHandler::new(thread, call.name, BodyMode::Discard, call.redirects);
    let sent = RequestRunner::new(&thread.recorder).run(&mut opener, call.request, start, &mut handler).await;
    if let Err(error) = sent.result {
        record(sent.ended_request);
        return Err(error);
    }
    Ok(OpenedResponse {
        response: opener.into_response().expect("the opener keeps a response that did not fail"),
        request: sent.ended_request.expect("a request with a response has ended"),
        name: handler.name.into_owned(),
        first_sent: handler.first_sent.expect("the exchange has ended"),
    })
}

/// The start of a request that is due now, or was due `start_delay` ago.
fn request_start(metric: MetricId, start_delay: Duration) -> RequestStart {
    let started = Instant::now();
    RequestStart { metric, intended: started - start_delay, started }
}

/// Sends `calls` at once, each on a session of its own. Results are in the order of `calls`.
pub(super) async fn send_all<'p, 's>(
    thread: &'p PythonThreadContext,
    sessions: impl Iterator<Item = &'s mut Session>,
    calls: &[RoutedRequest],
    start_delay: Duration,
) -> Vec<PythonRequestResult<'p>> {
    let send = |(call, session)| send_request(thread, session, call, start_delay, BodyMode::Keep);
    join_all(calls.iter().zip(sessions).map(send).collect()).await
}

/// Sends the requests of a constant task, one after the other. The first failure ends the task.
pub(super) async fn send_constant(
    thread: &PythonThreadContext,
    session: &mut Session,
    calls: &[RoutedRequest],
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
    redirects: RedirectMode,
    /// [`watchdog::long_step_time`] when the request was sent.
    blocked_before: Duration,
    /// When the first request was sent; `None` until its exchange has ended.
    first_sent: Option<Instant>,
}

impl<'p, 'c> PythonRequestHandler<'p, 'c> {
    fn new(
        thread: &'p PythonThreadContext,
        name: &'c str,
        body_mode: BodyMode,
        redirects: RedirectMode,
    ) -> PythonRequestHandler<'p, 'c> {
        PythonRequestHandler {
            thread,
            name: Cow::Borrowed(name),
            redirect_metric: None,
            body_mode,
            redirects,
            blocked_before: Duration::ZERO,
            first_sent: None,
        }
    }
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

    fn follows_redirect(&self, _status: u16) -> bool {
        self.redirects == RedirectMode::Follow
    }

    fn before_send(&mut self) {
        self.blocked_before = watchdog::long_step_time();
    }

    fn after_exchange(&mut self, exchange: &Exchange<'_>) {
        self.first_sent.get_or_insert(exchange.started);
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
