//! One call of a scenario's function, from its first line to its last: steps it, performs what it asks for, records every request.

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyList};
use squall_http::{BodyMode, HttpError, PreparedRequest, Session};
use squall_metrics::{OutcomeCategory, MetricId, Outcome};
use squall_scenario::Aloft;
use std::{
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use super::{Shared, landing::Landing};
use crate::{
    forgotten,
    operation::Work,
    raise,
    response::Response,
    routes::Call,
    step::{Step, Stepper},
    watchdog::{self, LAST_WORDS, Noticed},
};

/// The task's time was over.
pub(super) const TASK_TIMEOUT: Outcome =
    Outcome { category: OutcomeCategory::Timeout, code: squall_metrics::OutcomeCode::Named("TASK_TIMEOUT") };

/// A request that lasted mostly because others' code had the thread, and by more than this, says more of the generator than of the target.
const KEPT: Duration = Duration::from_millis(10);

/// How long a user waits that found no descriptor or port to send by.
const STARVED: Duration = Duration::from_millis(20);

/// A user's connections: one session, and more where several requests are under way at once. All have the same cookies.
pub(super) struct Sessions {
    pub(super) first: Session,
    pub(super) more: Vec<Session>,
}

/// A function under way.
pub(super) struct Visit<'a> {
    pub(super) shared: &'a Shared,
    pub(super) sessions: &'a mut Sessions,
    /// How late the function itself began; the first request that it makes was delayed by so much.
    pub(super) late: Duration,
    /// When the whole visit must be over, the limit behind it, and whose it is.
    pub(super) limit: Option<(Instant, Duration)>,
    pub(super) name: &'a str,
    /// The last request, until the next one or the verdict.
    pub(super) last: Option<Landing<'a>>,
    /// Its time was over while a request was under way, which counts as failed.
    pub(super) cut_request: bool,
    /// It was told that its time is over, and cleans up after itself.
    pub(super) cut: bool,
    /// The last request before it was: those of the clean-up are not to blame.
    pub(super) borne: Option<Box<Landing<'a>>>,
    /// What the last request brought.
    pub(super) answer: Option<Py<Response>>,
}

impl<'a> Visit<'a> {
    /// Runs `stepper` to its end.
    pub(super) async fn drive(&mut self, mut stepper: Stepper) -> PyResult<()> {
        drop(forgotten::take());
        let mut step = self.watched(|py| stepper.step(py));
        let mut forgotten = None;
        loop {
            // Others run on this thread before the next step.
            forgotten = forgotten.or_else(forgotten::take);
            match step {
                Step::Returned => {
                    stepper.recycle(&self.shared.fibers);
                    return self.ended(forgotten::verdict(forgotten));
                }
                Step::Raised(error) => return self.ended(Err(error)),
                Step::Foreign => {
                    step = self.watched(|py| stepper.throw(py, foreign_await()));
                    if matches!(step, Step::Foreign | Step::Asks(_)) {
                        return Err(foreign_await());
                    }
                }
                Step::Asks(operation) => {
                    let work = Python::attach(|py| operation.borrow_mut(py).take());
                    let result = match work {
                        None => Err(PyRuntimeError::new_err("this request is already under way elsewhere")),
                        // The usual case is spelled out: every level between would copy the whole exchange once more.
                        Some(Work::Request(call)) if self.limit.is_none() => {
                            self.last = None;
                            let (shared, late) = (self.shared, std::mem::take(&mut self.late));
                            let told = exchange(shared, &mut self.sessions.first, &call, late, BodyMode::Keep).await;
                            self.answered(call, told)
                        }
                        Some(Work::Sleep(Duration::ZERO)) if self.in_time() => {
                            self.last = None;
                            step_aside().await;
                            Ok(Python::attach(|py| py.None()))
                        }
                        Some(work) => match Box::pin(self.perform_in_time(work)).await {
                            Some(result) => result,
                            // It goes on and on.
                            None if self.cut => return self.ended(Ok(())),
                            None => {
                                self.grant_last_words();
                                Err(Python::attach(|py| self.out_of_time(py)))
                            }
                        },
                    };
                    step = self.watched(|py| {
                        operation.borrow_mut(py).finish(result);
                        // The code that waits holds it too, and is the last to let go.
                        drop(operation);
                        stepper.step(py)
                    });
                }
            }
        }
    }

    /// Runs a piece of the scenario's code that is cut if it outlasts the visit.
    pub(super) fn watched<R>(&mut self, run: impl FnOnce(Python<'_>) -> R) -> R {
        let long_steps = watchdog::long_steps();
        let (done, noticed) = watchdog::step(self.limit.map(|(deadline, _)| deadline), || Python::attach(run));
        if watchdog::long_steps() > long_steps {
            self.shared.hold(self.name);
        }
        if let Some(Noticed { held, cut }) = noticed {
            held.iter().for_each(|held| self.shared.held(held, self.name));
            if cut && !self.cut {
                self.grant_last_words();
            }
        }
        done
    }

    /// Gives a function that was told that its time is over some more, to clean up after itself.
    #[cold]
    pub(super) fn grant_last_words(&mut self) {
        self.cut = true;
        self.borne = self.last.take().map(Box::new);
        if let Some((deadline, _)) = &mut self.limit {
            *deadline = Instant::now() + LAST_WORDS;
        }
    }

    /// How the function ended: whatever became of one that was cut, its time was over.
    pub(super) fn ended(&mut self, ended: PyResult<()>) -> PyResult<()> {
        if !self.cut {
            return ended;
        }
        self.last = self.borne.take().map(|borne| *borne);
        // The one that was raised says where.
        Err(Python::attach(|py| match ended {
            Err(error) if raise::is_task_timeout(py, &error) => error,
            _ => self.out_of_time(py),
        }))
    }

    /// `None` if the visit's time was over first.
    async fn perform_in_time(&mut self, work: Work) -> Option<PyResult<Py<PyAny>>> {
        match self.limit {
            None => Some(self.perform(work).await),
            Some(_) if !self.in_time() => None,
            Some((deadline, _)) => {
                let shared = self.shared;
                let mut performed = Box::pin(self.perform(work));
                let ended = tokio::time::timeout_at(deadline.into(), &mut performed).await.ok();
                if ended.is_none() {
                    self.cut_request |= shared.probe.cancel_as(performed, TASK_TIMEOUT) > 0;
                }
                ended
            }
        }
    }

    fn in_time(&self) -> bool {
        self.limit.is_none_or(|(deadline, _)| Instant::now() < deadline)
    }

    pub(super) fn out_of_time(&self, py: Python<'_>) -> PyErr {
        raise::task_timeout(py, self.name, self.limit.map_or(Duration::ZERO, |(_, limit)| limit))
    }

    async fn perform(&mut self, work: Work) -> PyResult<Py<PyAny>> {
        self.last = None;
        match work {
            Work::Request(call) => {
                let (shared, late) = (self.shared, std::mem::take(&mut self.late));
                let told = exchange(shared, &mut self.sessions.first, &call, late, BodyMode::Keep).await;
                self.answered(call, told)
            }
            Work::Batch(calls) => self.batch(calls).await,
            // Boxed: few wait for it, and no user should be larger for it.
            Work::Borrow(borrow) => Box::pin(borrow.perform(&self.shared.probe)).await,
            Work::Job(job) => job.begin(self.shared.means(self.sessions.first.cookies())).await,
            Work::Sleep(time) => {
                pause(time).await;
                Ok(Python::attach(|py| py.None()))
            }
        }
    }

    /// What the code gets to see of one request.
    pub(super) fn answered(&mut self, call: Call, told: Told<'a>) -> PyResult<Py<PyAny>> {
        self.shared.routes.give_back(call);
        self.last = told.landing;
        let response = told.result?.expect("it was asked to be kept");
        Python::attach(|py| {
            let response = Py::new(py, response)?;
            self.answer = Some(response.clone_ref(py));
            Ok(response.into_any())
        })
    }

    /// All at once, each on a connection of its own; results in the order of `calls`.
    async fn batch(&mut self, calls: Vec<Call>) -> PyResult<Py<PyAny>> {
        let (shared, late) = (self.shared, std::mem::take(&mut self.late));
        let Sessions { first, more } = &mut *self.sessions;
        while more.len() + 1 < calls.len() {
            more.push(Session::with_cookies(&shared.script.connector, first.cookies().clone()));
        }
        let sessions = std::iter::once(first).chain(more.iter_mut());
        let told = exchange_all(shared, sessions, &calls, late).await;
        answers(self, told, calls)
    }
}

/// A pause; none at all still lets others run.
pub(super) async fn pause(time: Duration) {
    match time.is_zero() {
        // A timer would last until the clock's next millisecond.
        true => step_aside().await,
        false => tokio::time::sleep(time).await,
    }
}

/// Lets everybody go first who is ready. Not tokio's `yield_now`: that looks for I/O each time, which costs more than all the rest of an
/// await; from the end of the queue the runtime looks after every 61 tasks.
async fn step_aside() {
    let mut aside = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut aside, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sends `calls` at once, each on a session of its own.
pub(super) async fn exchange_all<'p, 's>(
    shared: &'p Shared,
    sessions: impl Iterator<Item = &'s mut Session>,
    calls: &[Call],
    late: Duration,
) -> Vec<Told<'p>> {
    let under_way = calls.iter().zip(sessions);
    together(under_way.map(|(call, session)| exchange(shared, session, call, late, BodyMode::Keep)).collect()).await
}

/// What the code gets to see of a batch. The last answer counts for the check.
pub(super) fn answers<'a>(visit: &mut Visit<'a>, mut told: Vec<Told<'a>>, calls: Vec<Call>) -> PyResult<Py<PyAny>> {
    calls.into_iter().for_each(|call| visit.shared.routes.give_back(call));
    visit.last = told.last_mut().and_then(|told| told.landing.take());
    let responses = told.into_iter().filter_map(|told| told.result.transpose()).collect::<PyResult<Vec<_>>>()?;
    Python::attach(|py| {
        let responses = responses.into_iter().map(|one| Py::new(py, one)).collect::<PyResult<Vec<_>>>()?;
        visit.answer = responses.last().map(|last| last.clone_ref(py));
        Ok(PyList::new(py, responses)?.into_any().unbind())
    })
}

/// What became of a request.
pub(super) struct Told<'p> {
    /// Absent if only the outcome was asked for.
    result: PyResult<Option<Response>>,
    /// Absent where it is already recorded.
    landing: Option<Landing<'p>>,
}

/// Sends one request, which is due now or was due `late` ago, and follows its redirects.
pub(super) async fn exchange<'p>(
    shared: &'p Shared,
    session: &mut Session,
    call: &Call,
    late: Duration,
    body: BodyMode,
) -> Told<'p> {
    let metric = shared.metric(call);
    let (told, next) = hop(shared, session, call.request(), &call.name, metric, late, body).await;
    match next {
        None => told,
        Some(next) => Box::pin(follow(shared, session, call, next, body)).await,
    }
}

async fn follow<'p>(
    shared: &'p Shared,
    session: &mut Session,
    call: &Call,
    mut request: Box<PreparedRequest>,
    body: BodyMode,
) -> Told<'p> {
    let name = format!("{} (redirect)", call.name);
    let metric = shared.request(&name);
    loop {
        let (told, next) = hop(shared, session, &request, &name, metric, Duration::ZERO, body).await;
        match next {
            None => return told,
            Some(next) => request = next,
        }
    }
}

async fn hop<'p>(
    shared: &'p Shared,
    session: &mut Session,
    request: &PreparedRequest,
    name: &str,
    metric: MetricId,
    late: Duration,
    body: BodyMode,
) -> (Told<'p>, Option<Box<PreparedRequest>>) {
    let probe = &shared.probe;
    let due = Instant::now();
    let started = probe.wait_for_budget(due).await;
    let Some(flight) = probe.begin(metric, due - late, started) else {
        let result = Err(Python::attach(|py| raise::fenced(py, name)));
        return (Told { result, landing: None }, None);
    };
    let long_steps = watchdog::long_steps();
    let mut aloft = Aloft::new(flight, session);
    let exchange = aloft.session.send(request, body).await;
    let flight = aloft.flight.take().expect("it has not landed yet");
    let held = watchdog::long_steps() - long_steps;
    if held > KEPT && held * 2 > exchange.ended - exchange.started {
        shared.kept_waiting(held, exchange.ended);
    }
    if let Some(times) = &exchange.phases {
        probe.record_phases(metric, &[times.dns, times.connect, times.tls, times.first_byte, times.body]);
    }
    let response = match &exchange.result {
        Ok(response) => response,
        Err(error) => {
            let outcome = failure(error);
            probe.note_error(metric, outcome, &error.to_string());
            let result = Err(Python::attach(|py| raise::request_failed(py, error, name)));
            if error.failed_before_sending() {
                // There was nothing to send it by: the target saw nothing, and trying again at once would only heat this machine.
                flight.end_unsent(exchange.ended, outcome);
                tokio::time::sleep(STARVED).await;
                return (Told { result, landing: None }, None);
            }
            let landing = Some(Landing::new(flight, &exchange, outcome));
            return (Told { result, landing }, None);
        }
    };
    let mut landing = Landing::new(flight, &exchange, Outcome::of_status(response.status));
    let next = if (300..400).contains(&response.status) { request.redirect(response) } else { None };
    match next {
        Some(Ok(next)) => {
            drop(landing);
            (Told { result: Ok(None), landing: None }, Some(Box::new(next)))
        }
        Some(Err(error)) => {
            let outcome = Outcome::new(OutcomeCategory::ProtocolError, error.redirect_code());
            probe.note_error(metric, outcome, &error.to_string());
            landing.object(outcome);
            let result = Err(Python::attach(|py| raise::broken(py, error.redirect_code(), &error.to_string(), name)));
            (Told { result, landing: Some(landing) }, None)
        }
        None => {
            let kept = (body == BodyMode::Keep).then(|| Response::new(response, exchange.ended - exchange.started));
            (Told { result: Ok(kept), landing: Some(landing) }, None)
        }
    }
}

/// Sends the requests of a constant task, one after the other; the first that fails ends it.
pub(super) async fn repeat(shared: &Shared, session: &mut Session, calls: &[Call], late: Duration) -> PyResult<()> {
    let mut late = late;
    for call in calls {
        exchange(shared, session, call, std::mem::take(&mut late), BodyMode::Discard).await.result?;
    }
    Ok(())
}

/// Polls all until all are done. Batches are short: a scan per wake-up costs less than a queue, and one allocation for all of them
/// less than a box for each.
async fn together<F: Future>(futures: Box<[F]>) -> Vec<F::Output> {
    let mut futures: Pin<Box<[F]>> = Box::into_pin(futures);
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut left = done.len();
    poll_fn(|cx| {
        for (index, done) in done.iter_mut().enumerate().filter(|(_, done)| done.is_none()) {
            // SAFETY: the slice is pinned as a whole and never moved again before it is dropped, so each of its elements is pinned.
            let future = unsafe { futures.as_mut().map_unchecked_mut(|all| &mut all[index]) };
            if let Poll::Ready(value) = future.poll(cx) {
                *done = Some(value);
                left -= 1;
            }
        }
        if left > 0 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

pub(crate) fn failure(error: &HttpError) -> Outcome {
    let category = match error.error_category() {
        squall_http::HttpErrorCategory::Protocol => OutcomeCategory::ProtocolError,
        squall_http::HttpErrorCategory::Transport => OutcomeCategory::TransportError,
        squall_http::HttpErrorCategory::Timeout => OutcomeCategory::Timeout,
    };
    Outcome::new(category, error.code())
}

#[cold]
fn foreign_await() -> PyErr {
    PyRuntimeError::new_err(
        "this awaits something that is not Squall's: run it with --mode asyncio, or use squall.sleep and the client",
    )
}
