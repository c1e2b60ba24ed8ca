//! Sends one request and the redirects that it leads to, and records each of them exactly once. It
//! does not judge responses: its caller does, as a [`RequestHandler`]. Users of TOML scenarios
//! (constant tasks and flows) and users of Python scenarios (requests, streams and WebSockets) call it.

use squall_engine::{InFlightRequest, ThreadRecorder};
use squall_http::{
    BodyMode, Exchange, HttpError, HttpErrorCategory, HttpResponse, PreparedRequest, RequestError, Session,
    StreamOpener,
};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
use std::time::{Duration, Instant};

use super::ended_request::EndedRequest;

/// How long a user waits that could not send. Without the wait a closed loop spins, and a user that
/// retries takes the processor from those that can send.
pub(super) const UNSENT_PAUSE: Duration = Duration::from_millis(100);

/// Sends the requests of one engine thread's users.
#[derive(Clone, Copy)]
pub struct RequestRunner<'p> {
    recorder: &'p ThreadRecorder,
}

/// The metric of a request and its start.
#[derive(Debug, Clone, Copy)]
pub struct RequestStart {
    /// Where the request is recorded.
    pub metric: MetricId,
    /// When the request should have started. Response time counts from here.
    pub intended: Instant,
    /// When the request did start. Service time counts from here, or from the moment at which the
    /// send budget allows the request.
    pub started: Instant,
}

/// A client that the runner sends with: a session, or an opener of streamed responses.
pub trait RequestSender {
    /// Sends one request.
    fn send(&mut self, request: &PreparedRequest, body: BodyMode) -> impl Future<Output = Exchange<'_>>;

    /// Bytes read and written by an exchange whose future was dropped; its connection is closed.
    fn close_abandoned(&mut self) -> (u64, u64);
}

impl RequestSender for Session {
    #[inline]
    fn send(&mut self, request: &PreparedRequest, body: BodyMode) -> impl Future<Output = Exchange<'_>> {
        Session::send(self, request, body)
    }

    #[inline]
    fn close_abandoned(&mut self) -> (u64, u64) {
        Session::close_abandoned(self)
    }
}

/// The exchange ends with the head of the response; the body mode does not matter.
impl RequestSender for StreamOpener {
    fn send(&mut self, request: &PreparedRequest, _body: BodyMode) -> impl Future<Output = Exchange<'_>> {
        StreamOpener::send(self, request)
    }

    fn close_abandoned(&mut self) -> (u64, u64) {
        StreamOpener::close_abandoned(self)
    }
}

/// The caller's side of one request and its redirects. Methods are called in the order of sending.
pub trait RequestHandler<'p> {
    /// The result of the request for the caller.
    type Output;

    /// Whether a session keeps the response's body.
    fn body_mode(&self) -> BodyMode;

    /// The metric of the requests after the first redirect.
    fn redirect_metric(&mut self) -> MetricId;

    /// Whether a redirect with this status is followed. If not, it is judged like any response.
    fn follows_redirect(&self, _status: u16) -> bool {
        true
    }

    /// The request is about to be sent.
    fn before_send(&mut self) {}

    /// The exchange has ended, with or without a response.
    fn after_exchange(&mut self, _exchange: &Exchange<'_>) {}

    /// Handles the last response, which is not a redirect to follow. The handler records `request`, or
    /// keeps it while its outcome can change.
    fn on_response(
        &mut self,
        request: EndedRequest<'p>,
        response: HttpResponse<'_>,
        exchange: &Exchange<'_>,
    ) -> Self::Output;

    /// Handles a request without a response to judge. The runner has noted the error's message.
    fn on_failure(&mut self, failure: RequestFailure<'p, '_>) -> Self::Output;
}

/// Why there is no response to judge.
pub enum RequestFailure<'p, 'e> {
    /// The worker may not send: it has lost its membership, or its send budget is used up. The runner
    /// has recorded the request as [`squall_engine::FENCED`].
    Fenced,
    /// This machine had no descriptor or port left. The runner has recorded the request as unsent.
    Unsent { outcome: Outcome, ended: Instant, error: &'e HttpError },
    /// The request was sent, or the connection failed.
    NoResponse { request: EndedRequest<'p>, error: &'e HttpError },
    /// The response redirects to a URL that cannot be requested, or once too often.
    BadRedirect { request: EndedRequest<'p>, error: RequestError },
}

/// What follows one exchange.
enum AfterExchange<T> {
    Done(T),
    /// The request was not sent for lack of a socket.
    Pause(T),
    Redirect(Box<PreparedRequest>),
}

impl<'p> RequestRunner<'p> {
    pub fn new(recorder: &'p ThreadRecorder) -> RequestRunner<'p> {
        RequestRunner { recorder }
    }

    /// Waits for the send budget, sends `request` and follows its redirects. Dropping the future
    /// records the request under way as aborted, with the bytes moved so far.
    #[inline]
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn keeps each argument twice")]
    pub fn run<S: RequestSender, H: RequestHandler<'p>>(
        self,
        sender: &mut S,
        request: &PreparedRequest,
        mut start: RequestStart,
        handler: &mut H,
    ) -> impl Future<Output = H::Output> {
        async move {
            start.started = self.recorder.wait_for_budget(start.started).await;
            match self.send_once(sender, request, &start, handler).await {
                AfterExchange::Done(output) => output,
                // Boxed: redirects and pauses are rare, and no user should be larger for them.
                next => Box::pin(self.continue_after(next, sender, handler)).await,
            }
        }
    }

    /// Follows redirects to their end, or pauses.
    async fn continue_after<S: RequestSender, H: RequestHandler<'p>>(
        self,
        mut next: AfterExchange<H::Output>,
        sender: &mut S,
        handler: &mut H,
    ) -> H::Output {
        loop {
            let request = match next {
                AfterExchange::Done(output) => return output,
                AfterExchange::Pause(output) => {
                    tokio::time::sleep(UNSENT_PAUSE).await;
                    return output;
                }
                AfterExchange::Redirect(request) => request,
            };
            let metric = handler.redirect_metric();
            let intended = Instant::now();
            let started = self.recorder.wait_for_redirect_budget(intended).await;
            next = self.send_once(sender, &request, &RequestStart { metric, intended, started }, handler).await;
        }
    }

    #[inline]
    #[expect(clippy::manual_async_fn, reason = "the future of an async fn keeps each argument twice")]
    fn send_once<S: RequestSender, H: RequestHandler<'p>>(
        self,
        sender: &mut S,
        request: &PreparedRequest,
        start: &RequestStart,
        handler: &mut H,
    ) -> impl Future<Output = AfterExchange<H::Output>> {
        async move {
            let Some(in_flight) = self.recorder.begin(start.metric, start.intended, start.started) else {
                return AfterExchange::Done(handler.on_failure(RequestFailure::Fenced));
            };
            handler.before_send();
            let mut guard = RequestGuard { in_flight: Some(in_flight), sender };
            let exchange = guard.sender.send(request, handler.body_mode()).await;
            let in_flight = guard.in_flight.take().expect("the guard has it until the exchange ends");
            handler.after_exchange(&exchange);
            let response = match &exchange.result {
                Ok(response) => *response,
                Err(error) => return self.finish_failed(in_flight, *start, &exchange, error, handler),
            };
            record_phases(&in_flight, &exchange);
            let outcome = Outcome::of_status(response.status);
            let ended_request = EndedRequest::new(self.recorder, in_flight, *start, &exchange, outcome);
            if is_redirect(response.status)
                && handler.follows_redirect(response.status)
                && let Some(next) = request.redirect(&response)
            {
                return self.finish_redirected(ended_request, next, handler);
            }
            AfterExchange::Done(handler.on_response(ended_request, response, &exchange))
        }
    }

    #[cold]
    fn finish_failed<H: RequestHandler<'p>>(
        self,
        in_flight: InFlightRequest<'p>,
        start: RequestStart,
        exchange: &Exchange<'_>,
        error: &HttpError,
        handler: &mut H,
    ) -> AfterExchange<H::Output> {
        let (outcome, ended) = (http_error_outcome(error), exchange.ended);
        self.recorder.note_error(start.metric, start.intended, outcome, &error.to_string());
        if error.failed_before_sending() {
            in_flight.end_unsent(ended, outcome);
            return AfterExchange::Pause(handler.on_failure(RequestFailure::Unsent { outcome, ended, error }));
        }
        record_phases(&in_flight, exchange);
        let request = EndedRequest::new(self.recorder, in_flight, start, exchange, outcome);
        AfterExchange::Done(handler.on_failure(RequestFailure::NoResponse { request, error }))
    }

    #[cold]
    fn finish_redirected<H: RequestHandler<'p>>(
        self,
        mut redirected: EndedRequest<'p>,
        next: Result<PreparedRequest, RequestError>,
        handler: &mut H,
    ) -> AfterExchange<H::Output> {
        match next {
            Ok(next) => {
                redirected.record();
                AfterExchange::Redirect(Box::new(next))
            }
            Err(error) => {
                let outcome = Outcome::new(OutcomeCategory::ProtocolError, error.redirect_code());
                redirected.mark_failed(outcome);
                redirected.note_error(&error.to_string());
                AfterExchange::Done(handler.on_failure(RequestFailure::BadRedirect { request: redirected, error }))
            }
        }
    }
}

#[inline]
fn record_phases(in_flight: &InFlightRequest<'_>, exchange: &Exchange<'_>) {
    if let Some(phases) = &exchange.phases {
        in_flight.record_phases(&[phases.dns, phases.connect, phases.tls, phases.first_byte, phases.body]);
    }
}

/// Records a request whose future is dropped half-way with the bytes it has moved by then, which only
/// the sender knows.
struct RequestGuard<'p, 's, S: RequestSender> {
    /// Set until the exchange ends.
    in_flight: Option<InFlightRequest<'p>>,
    sender: &'s mut S,
}

impl<S: RequestSender> Drop for RequestGuard<'_, '_, S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            let (bytes_in, bytes_out) = self.sender.close_abandoned();
            in_flight.cancel(bytes_in, bytes_out);
        }
    }
}

/// The outcome of a request without a response.
pub fn http_error_outcome(error: &HttpError) -> Outcome {
    let category = match error.error_category() {
        HttpErrorCategory::Protocol => OutcomeCategory::ProtocolError,
        HttpErrorCategory::Transport => OutcomeCategory::TransportError,
        HttpErrorCategory::Timeout => OutcomeCategory::Timeout,
    };
    Outcome::new(category, error.code())
}

/// The statuses that [`PreparedRequest::redirect`] follows; checked first because it is cheap.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}
