//! A worker whose processors and tasks are Python coroutines: what is to run is registered, then it runs until it is stopped or
//! halts. Refuses to know the functions; they have numbers, and the loop knows which is which.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_streams::{
    App, BoxError, DeadLetters, ExecutorError, Policy, Processor, ProcessorName, RawEvents, Settings, StreamMetrics,
    Task, TaskError,
};
use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Stream, StreamLink,
    link::{seconds, trouble},
    post::{Message, Post, StreamPost, Trouble, ticket},
    runtime::engine,
    scrape,
    source::{Shape, StreamSource},
    turn::Awaited,
};

/// Stopped by hand, a second time.
const FORCED: i32 = 130;

/// How one processor is to be run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Manner {
    name: String,
    shape: String,
    policy: String,
    retries: u32,
    backoff: f64,
    beat: f64,
    lease: f64,
    join_delay: f64,
    grace: f64,
    prefetch: usize,
    fetches: usize,
    report: f64,
    dead_letters: bool,
}

/// A worker of an app, and what it is to run.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamWorker {
    app: App,
    post: Arc<Post>,
    plan: Mutex<Plan>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Plan {
    /// With the stream for dead letters, if there are to be any.
    processors: Vec<(Processor, Option<squall_streams::Stream<serde_json::Value>>)>,
    tasks: Vec<Task>,
    listener: Option<TcpListener>,
}

#[pymethods]
impl StreamWorker {
    #[new]
    fn new(post: &StreamPost, link: &StreamLink) -> StreamWorker {
        StreamWorker {
            app: link.app.clone(),
            post: post.post.clone(),
            plan: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Registers the next processor; its number is how many there were before.
    fn processor(&self, stream: &Stream, manner: Manner) -> PyResult<()> {
        let policy = match manner.policy.as_str() {
            "halt" => Policy::halt(),
            "quarantine" => Policy::quarantine(),
            "ignore" => Policy::ignore(),
            other => return Err(PyValueError::new_err(format!("`{other}` is not an exception policy"))),
        };
        let settings = Settings {
            beat: seconds("beat", manner.beat)?,
            lease: seconds("lock_expiry", manner.lease)?,
            join_delay: seconds("join_delay", manner.join_delay)?,
            grace: seconds("grace_period", manner.grace)?,
            prefetch: manner.prefetch,
            fetches: manner.fetches,
            report: seconds("report", manner.report)?,
        };
        let mut plan = self.plan();
        let (post, shape, number) = (self.post.clone(), Shape::parse(&manner.shape)?, plan.processors.len());
        let function = move |events| call(post.clone(), number, shape, events);
        let processor = Processor::raw(&manner.name, &stream.stream, function)
            .policy(policy.retry(manner.retries, seconds("retry_backoff", manner.backoff)?))
            .settings(settings);
        plan.processors.push((processor, manner.dead_letters.then(|| stream.stream.clone())));
        Ok(())
    }

    /// Registers the next task: once, or every so many seconds, or by a crontab line in a time zone.
    #[pyo3(signature = (name, *, on_leader, interval=None, crontab=None))]
    fn task(
        &self,
        name: &str,
        on_leader: bool,
        interval: Option<f64>,
        crontab: Option<(String, String)>,
    ) -> PyResult<()> {
        let mut plan = self.plan();
        let (post, number) = (self.post.clone(), plan.tasks.len());
        let action = move || run(post.clone(), number);
        let unusable = |error: TaskError| PyValueError::new_err(error.to_string());
        let task = match (interval, crontab) {
            (Some(interval), _) => Task::timer(name, seconds("interval", interval)?, action).map_err(unusable)?,
            (None, Some((line, zone))) => Task::crontab(name, &line, &zone, action).map_err(unusable)?,
            (None, None) => Task::once(name, action),
        };
        plan.tasks.push(if on_leader { task.on_leader() } else { task });
        Ok(())
    }

    /// Makes the counters readable at `http://ADDR/metrics`, and says at which address.
    fn prometheus(&self, addr: &str) -> PyResult<String> {
        let refused = |error: std::io::Error| PyValueError::new_err(format!("cannot listen on {addr}: {error}"));
        let parsed: SocketAddr =
            addr.parse().map_err(|_| PyValueError::new_err(format!("`{addr}` is not an address and port")))?;
        let listener = TcpListener::bind(parsed).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let local = listener.local_addr().map_err(refused)?;
        self.plan().listener = Some(listener);
        Ok(local.to_string())
    }

    /// Starts. The message with the number returned says how it ended. With `signals`, SIGTERM and SIGINT stop it.
    fn start(&self, signals: bool) -> PyResult<u64> {
        let plan = std::mem::take(&mut *self.plan());
        let (id, post, app, stop) = (ticket(), self.post.clone(), self.app.clone(), self.stop.clone());
        engine()?.spawn(async move {
            let watching = signals.then(|| tokio::spawn(watch_signals(stop.clone())));
            let outcome = work(&app, plan, stop).await;
            if let Some(watching) = watching {
                watching.abort();
            }
            post.leave(id, Message::Ended(outcome));
        });
        Ok(id)
    }

    /// Finishes what is in hand and hands everything over.
    fn stop(&self) {
        self.stop.cancel();
    }
}

impl StreamWorker {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work(app: &App, plan: Plan, stop: CancellationToken) -> Result<(), Trouble> {
    let mut worker = app.worker();
    for (processor, dead) in plan.processors {
        worker = worker.processor(match dead {
            None => processor,
            Some(stream) => {
                let letters = DeadLetters::of(app, &stream).await;
                processor.middleware(letters.map_err(|error| trouble("misconfigured", &error))?)
            }
        });
    }
    for task in plan.tasks {
        worker = worker.task(task);
    }
    let metrics: Vec<(ProcessorName, Arc<StreamMetrics>)> = worker.metrics();
    let serving = plan.listener.map(|listener| tokio::spawn(scrape::serve(listener, metrics)));
    let outcome = worker.run(stop).await;
    if let Some(serving) = serving {
        serving.abort();
    }
    outcome.map_err(|error| match &error {
        ExecutorError::Halted { .. } | ExecutorError::Task(_) => trouble("halted", &error),
        _ => trouble("misconfigured", &error),
    })
}

/// The first signal drains, the second ends the process: others take over when the leases run out.
async fn watch_signals(stop: CancellationToken) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    for again in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if again {
            std::process::exit(FORCED);
        }
        stop.cancel();
        info!("stopping: finishing what is in hand; once more to end at once");
    }
}

/// One call of a processor: handed to the loop, fed while it lasts, cancelled if the engine drops it.
async fn call(post: Arc<Post>, processor: usize, shape: Shape, events: RawEvents) -> Result<(), BoxError> {
    let (mut awaited, turn) = Awaited::new(&post);
    let wanted = Arc::new(Notify::new());
    let source = StreamSource::new(events.clone(), shape, wanted.clone());
    awaited.tell(Message::Call { processor, turn, source });
    loop {
        tokio::select! {
            biased;
            ended = awaited.ended() => return ended,
            () = wanted.notified() => {}
        }
        tokio::select! {
            biased;
            ended = awaited.ended() => return ended,
            () = events.ready() => awaited.tell(Message::Ready),
        }
    }
}

/// One run of a task.
async fn run(post: Arc<Post>, task: usize) -> Result<(), BoxError> {
    let (mut awaited, turn) = Awaited::new(&post);
    awaited.tell(Message::Task { task, turn });
    awaited.ended().await
}
