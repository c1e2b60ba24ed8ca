//! One call of a scenario's function on asyncio: its task runs by itself, this side performs what comes out of its port, several things
//! at once if it wants. Ends when the function has, and its requests.

use pyo3::{intern, prelude::*, types::PyTuple};
use squall_http::{Body, Session};
use squall_metrics::Outcome;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::Sleep;

use super::{
    Shared,
    landing::Landing,
    visit::{Sessions, TASK_TIMEOUT, Told, Visit, answers, exchange, exchange_all, pause},
};
use crate::{
    context::Variables,
    forgotten,
    guest::Guest,
    operation::{Operation, Work},
    port::Port,
    routes::Call,
    script::Hook,
};

/// How long a request that was answered waits for its verdict while the function awaits something of its own: then it is recorded, so that
/// it counts in the second it belongs to. Waited for twice, so that a process that stood still does not take that for the function's time.
const VERDICT: Duration = Duration::from_millis(500);

/// A user's task on the loop.
pub(super) struct Lodger {
    pub(super) port: Py<Port>,
    task: Py<PyAny>,
}

impl Lodger {
    pub(super) fn new(py: Python<'_>, guest: &Guest, port: Py<Port>, context: &Variables) -> PyResult<Lodger> {
        Ok(Lodger { task: guest.adopt(py, &port, context)?, port })
    }

    /// Whether it waits for `operation` itself, and not for something around it.
    fn waits_for(&self, py: Python<'_>, operation: &Py<Operation>) -> bool {
        self.task.bind(py).getattr(intern!(py, "_fut_waiter")).is_ok_and(|waiter| waiter.is(operation))
    }

    fn cancel(&self, py: Python<'_>) {
        if let Err(error) = self.task.bind(py).call_method0("cancel") {
            error.write_unraisable(py, None);
        }
        crate::guest::kick();
    }

    /// Its task is told to end; whether it does, nobody waits for.
    pub(super) fn dismiss(&self, py: Python<'_>) {
        self.port.get().dismiss(py);
        crate::guest::kick();
    }
}

/// An operation under way with the sessions that it uses.
struct UnderWay<'p> {
    operation: Py<Operation>,
    future: Pin<Box<dyn Future<Output = Performed<'p>> + 'p>>,
}

struct Performed<'p> {
    work: Done<'p>,
    sessions: Borrowed,
}

/// The sessions of an operation; most need one, and a box around it would cost each of them an allocation.
#[allow(clippy::large_enum_variant)]
enum Borrowed {
    None,
    One(Session),
    Several(Vec<Session>),
}

enum Done<'p> {
    Slept,
    Job(PyResult<Py<PyAny>>),
    One(Told<'p>, Call),
    All(Vec<Told<'p>>, Vec<Call>),
}

/// Which answer waits for its verdict, and how many times more it may.
type Waits = Option<(Instant, u8)>;

/// Records the answer in `last` if it has waited long enough.
fn record_unjudged(mut due: Pin<&mut Sleep>, waits: &mut Waits, cx: &mut Context<'_>, last: &mut Option<Landing<'_>>) {
    let Some(answered) = last.as_ref().map(Landing::ended) else { return };
    let mut left = match *waits {
        Some((of, left)) if of == answered => left,
        _ => {
            due.as_mut().reset(tokio::time::Instant::now() + VERDICT);
            2
        }
    };
    while left > 0 && due.as_mut().poll(cx).is_ready() {
        left -= 1;
        due.as_mut().reset(tokio::time::Instant::now() + VERDICT);
    }
    *waits = Some((answered, left));
    if left == 0 {
        *last = None;
    }
}

/// Cancels the task if the visit is given up before it ended.
struct Guard<'l> {
    lodger: &'l Lodger,
    ended: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            Python::attach(|py| self.lodger.cancel(py));
        }
    }
}

impl<'a> Visit<'a> {
    /// Runs `hook` in the user's task. `Err(true)` beside the error says that the task did not end and must not be used again.
    pub(super) async fn host(&mut self, lodger: &Lodger, hook: &Hook, arguments: &Py<PyTuple>) -> (PyResult<()>, bool) {
        let mut guard = Guard { lodger, ended: false };
        let guest = self.shared.guest.as_ref().expect("a lodger has a loop");
        let deadline = self.limit.map(|(deadline, _)| deadline);
        let begun = self.watched(|py| {
            let begun = lodger.port.get().begin(py, &hook.call, arguments, deadline);
            guest.kick_if_busy(py);
            begun
        });
        if let Err(error) = begun {
            return (Err(error), false);
        }
        let mut under_way: Vec<UnderWay<'a>> = Vec::new();
        let (mut due, mut waits) = (pin!(tokio::time::sleep(VERDICT)), None);
        loop {
            let deadline = self.limit.map(|(deadline, _)| deadline);
            let whole = poll_fn(|cx| match self.poll_port(cx, lodger, guest, &mut under_way) {
                Poll::Pending => {
                    record_unjudged(due.as_mut(), &mut waits, cx, &mut self.last);
                    Poll::Pending
                }
                ended => ended,
            });
            let ended = match deadline {
                None => Some(whole.await),
                Some(deadline) => tokio::time::timeout_at(deadline.into(), whole).await.ok(),
            };
            if let Some(ended) = ended {
                guard.ended = true;
                return (self.ended(ended), false);
            }
            let granted = self.limit.map(|(deadline, _)| deadline) != deadline;
            if self.cut && !granted {
                // It goes on and on.
                self.cut_request |= self.shared.probe.give_up(under_way, TASK_TIMEOUT) > 0;
                return (self.ended(Ok(())), true);
            }
            if !self.cut {
                self.cut_off(lodger, guest, std::mem::take(&mut under_way));
            }
        }
    }

    /// Cancels a function whose time is over, and all that it has under way.
    fn cut_off(&mut self, lodger: &Lodger, guest: &Guest, under_way: Vec<UnderWay<'a>>) {
        // Whatever it waited for, it was not what had been answered.
        self.last = None;
        self.grant_last_words();
        let operations: Vec<Py<Operation>> =
            Python::attach(|py| under_way.iter().map(|one| one.operation.clone_ref(py)).collect());
        self.cut_request = self.shared.probe.give_up(under_way, TASK_TIMEOUT) > 0;
        let errors: Vec<PyErr> = Python::attach(|py| operations.iter().map(|_| self.out_of_time(py)).collect());
        self.watched(|py| {
            lodger.cancel(py);
            // What it does not wait for itself somebody else does.
            for (operation, error) in operations.into_iter().zip(errors) {
                Operation::complete(operation, py, Err(error));
            }
            guest.kick_if_busy(py);
        });
    }

    fn poll_port(
        &mut self,
        cx: &mut Context<'_>,
        lodger: &Lodger,
        guest: &Guest,
        under_way: &mut Vec<UnderWay<'a>>,
    ) -> Poll<PyResult<()>> {
        loop {
            let news = lodger.port.get().look(cx.waker());
            let mut moved = !news.asked.is_empty();
            for gone in news.cancelled {
                let (given_up, others) = under_way.drain(..).partition(|one| one.operation.is(&gone));
                *under_way = others;
                let given_up: Vec<UnderWay<'a>> = given_up;
                self.cut_request |= self.shared.probe.give_up(given_up, Outcome::ABORTED) > 0;
            }
            for operation in news.asked {
                if let Some(work) = Python::attach(|py| operation.borrow_mut(py).take()) {
                    let future = self.begin(work);
                    under_way.push(UnderWay { operation, future });
                }
            }
            let mut index = 0;
            while index < under_way.len() {
                match under_way[index].future.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(performed) => {
                        moved = true;
                        let operation = under_way.swap_remove(index).operation;
                        let result = self.settle(performed);
                        let direct = self.watched(|py| {
                            let direct = lodger.waits_for(py, &operation);
                            Operation::complete(operation, py, result);
                            guest.kick_if_busy(py);
                            direct
                        });
                        if direct && lodger.port.get().awaits_else() {
                            self.last = None;
                        }
                    }
                }
            }
            if moved {
                continue;
            }
            // What the function sent is part of it, awaited or not.
            if !under_way.is_empty() || lodger.port.get().is_promised() {
                return Poll::Pending;
            }
            return match lodger.port.get().ended() {
                Some(None) => Poll::Ready(forgotten::verdict(lodger.port.get().forgotten())),
                Some(Some(error)) => Poll::Ready(Err(Python::attach(|py| PyErr::from_value(error.into_bound(py))))),
                None => Poll::Pending,
            };
        }
    }

    fn begin(&mut self, work: Work) -> Pin<Box<dyn Future<Output = Performed<'a>> + 'a>> {
        let shared = self.shared;
        // What comes now bears what is raised from here on, also when it is given up.
        self.last = None;
        self.cut_request &= self.cut;
        match work {
            Work::Sleep(time) => Box::pin(async move {
                pause(time).await;
                Performed { work: Done::Slept, sessions: Borrowed::None }
            }),
            Work::Job(job) => {
                let means = shared.means(self.sessions.first.cookies());
                Box::pin(async move { Performed { work: Done::Job(job.begin(means).await), sessions: Borrowed::None } })
            }
            Work::Borrow(borrow) => Box::pin(async move {
                Performed { work: Done::Job(borrow.perform(&shared.probe).await), sessions: Borrowed::None }
            }),
            Work::Request(call) => {
                let (mut session, late) = (self.borrow_session(), std::mem::take(&mut self.late));
                Box::pin(async move {
                    let told = exchange(shared, &mut session, &call, late, Body::Keep).await;
                    Performed { work: Done::One(told, call), sessions: Borrowed::One(session) }
                })
            }
            Work::Batch(calls) => {
                let mut sessions: Vec<Session> = calls.iter().map(|_| self.borrow_session()).collect();
                let late = if calls.is_empty() { Duration::ZERO } else { std::mem::take(&mut self.late) };
                Box::pin(async move {
                    let told = exchange_all(shared, sessions.iter_mut(), &calls, late).await;
                    Performed { work: Done::All(told, calls), sessions: Borrowed::Several(sessions) }
                })
            }
        }
    }

    fn borrow_session(&mut self) -> Session {
        let Sessions { first, more } = &mut *self.sessions;
        more.pop().unwrap_or_else(|| Session::with_cookies(&self.shared.script.connector, first.cookies().clone()))
    }

    /// Takes sessions back and makes the result.
    fn settle(&mut self, performed: Performed<'a>) -> PyResult<Py<PyAny>> {
        let Performed { work, sessions } = performed;
        match sessions {
            Borrowed::None => {}
            Borrowed::One(session) => self.sessions.more.push(session),
            Borrowed::Several(sessions) => self.sessions.more.extend(sessions),
        }
        match work {
            Done::Slept => Ok(Python::attach(|py| py.None())),
            Done::Job(done) => done,
            Done::One(told, call) => self.answered(call, told),
            Done::All(told, calls) => answers(self, told, calls),
        }
    }
}

/// A port of a user, and the client that uses it; its resources come through the same port.
pub(super) fn port_and_client(user: &Bound<'_, PyAny>, shared: &Shared) -> PyResult<(Py<Port>, Py<PyAny>)> {
    let py = user.py();
    let port = Py::new(py, Port::new())?;
    user.getattr("resources")?.setattr("queue", &port)?;
    let client = shared.clients.awaited.get().with_port(port.clone_ref(py));
    Ok((port, Py::new(py, client)?.into_any()))
}
