//! The Python driver of the engine: one thread's users share routes, metrics and the interpreter's attachment. Decides neither when
//! nor which task runs.

mod hosted;
mod landing;
mod user;
mod visit;

use pyo3::prelude::*;
use squall_engine::{ThreadDeadline, Driver, DriverError, DriverThread, ThreadRecorder, UserIdentity};
use squall_http::Cookies;
use squall_metrics::{OutcomeCategory, MetricId, MetricKey, Outcome};
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::runtime::Builder;

use crate::{
    attach,
    client::Client,
    custom,
    guest::Guest,
    job::Means,
    routes::{Call, Routes},
    script::{Constant, Kind, Script, Task},
    step::Fibers,
    watchdog::Held,
};
pub(crate) use user::PythonUser;
pub(crate) use visit::failure;

/// A Python scenario, ready to make load.
pub(crate) struct PythonDriver {
    script: Arc<Script>,
}

impl PythonDriver {
    pub(crate) fn new(script: Arc<Script>) -> PythonDriver {
        PythonDriver { script }
    }
}

/// Refuses a scenario with a constant request that cannot be sent: it would fail whenever it is made.
pub(crate) fn try_constant(py: Python<'_>, script: &Script) -> Result<(), String> {
    let routes = Routes::new(script.connector.clone(), script.base.clone(), script.headers.clone());
    constant_calls(py, script, &routes).map(drop)
}

impl Driver for PythonDriver {
    type Thread = PythonThread;

    fn thread(&self, probe: ThreadRecorder) -> Result<PythonThread, DriverError> {
        custom::record_here(&probe, &self.script.prefix);
        let script = self.script.clone();
        let routes = Routes::new(script.connector.clone(), script.base.clone(), script.headers.clone());
        let clients = Python::attach(|py| Clients::new(py, &script, &routes))
            .map_err(|error| DriverError(format!("cannot make a client: {error}")))?;
        let tasks = script.tasks.iter().map(|task| probe.metric(MetricKey::group(script.full(&task.name)))).collect();
        let lifecycle = RefCell::default();
        let metrics = RefCell::default();
        let constant = Python::attach(|py| constant_calls(py, &script, &routes)).map_err(DriverError)?;
        let guest = match script.hosted {
            true => Some(
                Python::attach(|py| {
                    let (probe, script) = (probe.clone(), script.clone());
                    Guest::start(py, longest(&script), move |held| tell_held(&probe, &script, held, "code on asyncio"))
                })
                .map_err(|error| DriverError(format!("cannot start asyncio: {error}")))?,
            ),
            false => None,
        };
        Ok(PythonThread {
            shared: Rc::new(Shared {
                script,
                routes,
                probe,
                tasks,
                lifecycle,
                metrics,
                clients,
                fibers: Fibers::default(),
                constant,
                holder: RefCell::new("asyncio".to_owned()),
                guest,
            }),
        })
    }

    fn run_thread<R>(&self, curfew: &ThreadDeadline, runtime: &mut Builder, life: impl FnOnce(&mut Builder) -> R) -> R {
        match self.script.needs_python {
            true => attach::host(curfew, runtime, life),
            false => life(runtime),
        }
    }
}

/// One engine thread's share.
pub(crate) struct PythonThread {
    shared: Rc<Shared>,
}

impl DriverThread for PythonThread {
    type User = PythonUser;

    fn user(&self, seat: UserIdentity) -> PythonUser {
        PythonUser::new(self.shared.clone(), seat)
    }
}

/// What the users of one thread have in common.
struct Shared {
    script: Arc<Script>,
    routes: Routes,
    probe: ThreadRecorder,
    /// The span of each task.
    tasks: Vec<MetricId>,
    /// The spans of on_start and on_stop, once something is to be said of them.
    lifecycle: RefCell<HashMap<&'static str, MetricId>>,
    /// Of each route.
    metrics: RefCell<Vec<Option<MetricId>>>,
    clients: Clients,
    fibers: Fibers,
    /// The requests of each task that is constant.
    constant: Vec<Option<Vec<Call>>>,
    /// Whose code kept the thread last, for long enough to matter.
    holder: RefCell<String>,
    /// The asyncio loop, where the scenario needs one.
    guest: Option<Guest>,
}

/// Clients keep nothing of a user, so all users of a thread have the same two.
struct Clients {
    awaited: Py<Client>,
    blocking: Py<PyAny>,
}

impl Clients {
    fn new(py: Python<'_>, script: &Script, routes: &Routes) -> PyResult<Clients> {
        let awaited = Bound::new(py, Client::new(routes.clone(), None))?;
        let blocking = script.blocking_client.bind(py).call1((&awaited,))?;
        Ok(Clients { awaited: awaited.unbind(), blocking: blocking.unbind() })
    }

    fn of(&self, kind: Kind) -> &Py<PyAny> {
        match kind {
            Kind::Coroutine => self.awaited.as_any(),
            Kind::Plain => &self.blocking,
        }
    }
}

impl Shared {
    fn metric(&self, call: &Call) -> MetricId {
        let Some(route) = call.route else {
            return self.request(&call.name);
        };
        let mut metrics = self.metrics.borrow_mut();
        if metrics.len() <= route {
            metrics.resize(route + 1, None);
        }
        *metrics[route].get_or_insert_with(|| self.request(&call.name))
    }

    fn means(&self, cookies: &Cookies) -> Means<'_> {
        Means { probe: &self.probe, cookies: cookies.clone(), prefix: &self.script.prefix }
    }

    /// The series of requests of this name.
    fn request(&self, name: &str) -> MetricId {
        self.probe.metric(MetricKey::request(self.script.full(name)))
    }

    fn held(&self, held: &Held, name: &str) {
        tell_held(&self.probe, &self.script, held, name);
    }

    #[cold]
    fn hold(&self, name: &str) {
        name.clone_into(&mut self.holder.borrow_mut());
    }

    /// Takes note that an answer may have been there before anybody could look: code of others kept the thread for `held`.
    #[cold]
    fn kept_waiting(&self, held: Duration, ended: Instant) {
        let name = format!("(held by {})", self.holder.borrow());
        let metric = self.probe.metric(MetricKey::group(self.script.full(&name)));
        self.probe.record_span(metric, ended - held, ended, Outcome::new(OutcomeCategory::Ok, "OK"));
    }

    fn lifecycle(&self, name: &'static str) -> MetricId {
        *self
            .lifecycle
            .borrow_mut()
            .entry(name)
            .or_insert_with(|| self.probe.metric(MetricKey::group(self.script.full(name))))
    }
}

/// Tells that code of `name` kept its thread, and everybody on it, from going on.
#[cold]
fn tell_held(probe: &ThreadRecorder, script: &Script, held: &Held, name: &str) {
    let metric = probe.metric(MetricKey::group(script.full("(held thread)")));
    let outcome = Outcome::new(OutcomeCategory::Exception, "HELD_THREAD");
    let words = format!(
        "{name} held the generator's thread at {}: no other user could run meanwhile (use squall.sleep, the client, or an \
         executor)",
        held.place
    );
    probe.note_error(metric, outcome, &words);
    probe.record_span(metric, held.since, Instant::now(), outcome);
}

/// The timeout of the most patient task; on the loop nobody knows whose code runs.
fn longest(script: &Script) -> Option<Duration> {
    script
        .tasks
        .iter()
        .map(|task| task.timeout)
        .max()
        .flatten()
        .filter(|_| script.tasks.iter().all(|task| task.timeout.is_some()))
}

/// What constant tasks send, rendered for this thread.
fn constant_calls(py: Python<'_>, script: &Script, routes: &Routes) -> Result<Vec<Option<Vec<Call>>>, String> {
    let client = Client::new(routes.clone(), None);
    let call = |(method, url, options, place): &Constant| {
        let unsendable = |error: PyErr| format!("{place}: {method} {url} cannot be sent: {}", error.value(py));
        client.render(method, url, options.bind(py)).map_err(unsendable)
    };
    let calls = |task: &Task| task.requests.as_ref().map(|requests| requests.iter().map(call).collect()).transpose();
    script.tasks.iter().map(calls).collect()
}

/// The name of an exception class as an outcome's code. Codes are static, so names are kept for ever; there are only so many
/// classes, and past a limit they share one word.
pub(crate) fn code_of(name: &str) -> &'static str {
    const MOST: usize = 256;
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    if names.len() >= MOST {
        return "EXCEPTION";
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.push(kept);
    kept
}
