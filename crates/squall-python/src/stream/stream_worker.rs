//! A streams worker whose processors and background tasks are Python coroutines. Python registers
//! them, then starts the worker, which runs until it is stopped or halts. The worker does not hold
//! the Python functions: it knows them by number, and the asyncio loop maps numbers to functions.
//! `squall.streams` calls it.

use pyo3::{exceptions::PyValueError, prelude::*};
use squall_streams::{
    BackgroundTask, BoxError, DeadLetterQueue, ExecutorError, FailurePolicy, Processor, ProcessorName,
    ProcessorSettings, RawPartitionEvents, StreamApp, StreamMetrics, TaskScheduleError,
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
    OpenedStream, StreamAppConnection,
    app_connection::{bridge_error, seconds},
    coroutine_run::PendingCoroutineRun,
    engine_thread::engine_handle,
    mailbox::{LoopMailbox, LoopMessage, StreamBridgeError, StreamMailbox, next_id},
    partition_events::{StreamEventFormat, StreamSource},
    prometheus,
};

/// The exit code after a second signal.
const FORCED_EXIT_CODE: i32 = 130;

/// The options of one processor.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ProcessorRunOptions {
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

/// A worker of an app, with its registered processors and tasks.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamWorker {
    app: StreamApp,
    mailbox: Arc<LoopMailbox>,
    plan: Mutex<StreamWorkerPlan>,
    stop: CancellationToken,
}

#[derive(Default)]
struct StreamWorkerPlan {
    /// Each with its stream, if the processor has a dead-letter queue.
    processors: Vec<(Processor, Option<squall_streams::RecordStream<serde_json::Value>>)>,
    tasks: Vec<BackgroundTask>,
    listener: Option<TcpListener>,
}

#[pymethods]
impl StreamWorker {
    #[new]
    fn new(mailbox: &StreamMailbox, connection: &StreamAppConnection) -> StreamWorker {
        StreamWorker {
            app: connection.app.clone(),
            mailbox: mailbox.mailbox.clone(),
            plan: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Registers a processor. Processors are numbered from 0 in the order of registration.
    fn processor(&self, stream: &OpenedStream, options: ProcessorRunOptions) -> PyResult<()> {
        let policy = match options.policy.as_str() {
            "halt" => FailurePolicy::halt(),
            "quarantine" => FailurePolicy::quarantine(),
            "ignore" => FailurePolicy::ignore(),
            other => return Err(PyValueError::new_err(format!("`{other}` is not an exception policy"))),
        };
        let settings = ProcessorSettings {
            heartbeat_interval: seconds("beat", options.beat)?,
            lease_ttl: seconds("lock_expiry", options.lease)?,
            join_delay: seconds("join_delay", options.join_delay)?,
            grace: seconds("grace_period", options.grace)?,
            prefetch: options.prefetch,
            max_fetches: options.fetches,
            report_interval: seconds("report", options.report)?,
        };
        let mut plan = self.plan();
        let (mailbox, shape, number) =
            (self.mailbox.clone(), StreamEventFormat::parse(&options.shape)?, plan.processors.len());
        let function = move |events| call_processor(mailbox.clone(), number, shape, events);
        let processor = Processor::raw(&options.name, &stream.stream, function)
            .policy(policy.retry(options.retries, seconds("retry_backoff", options.backoff)?))
            .settings(settings);
        plan.processors.push((processor, options.dead_letters.then(|| stream.stream.clone())));
        Ok(())
    }

    /// Registers a background task: run once, every `interval` seconds, or by a crontab line in a
    /// time zone. Tasks are numbered like processors.
    #[pyo3(signature = (name, *, on_leader, interval=None, crontab=None))]
    fn task(
        &self,
        name: &str,
        on_leader: bool,
        interval: Option<f64>,
        crontab: Option<(String, String)>,
    ) -> PyResult<()> {
        let mut plan = self.plan();
        let (mailbox, number) = (self.mailbox.clone(), plan.tasks.len());
        let action = move || run_task(mailbox.clone(), number);
        let schedule_error = |error: TaskScheduleError| PyValueError::new_err(error.to_string());
        let task = match (interval, crontab) {
            (Some(interval), _) => {
                BackgroundTask::timer(name, seconds("interval", interval)?, action).map_err(schedule_error)?
            }
            (None, Some((line, zone))) => {
                BackgroundTask::crontab(name, &line, &zone, action).map_err(schedule_error)?
            }
            (None, None) => BackgroundTask::once(name, action),
        };
        plan.tasks.push(if on_leader { task.on_leader() } else { task });
        Ok(())
    }

    /// Listens on `addr` to serve the metrics at `/metrics`, and returns the address with the
    /// actual port.
    fn prometheus(&self, addr: &str) -> PyResult<String> {
        let listen_error = |error: std::io::Error| PyValueError::new_err(format!("cannot listen on {addr}: {error}"));
        let parsed: SocketAddr = addr.parse().map_err(|_| {
            PyValueError::new_err(format!("`{addr}` is not an address and port, such as 127.0.0.1:9100"))
        })?;
        let listener = TcpListener::bind(parsed).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let local = listener.local_addr().map_err(listen_error)?;
        self.plan().listener = Some(listener);
        Ok(local.to_string())
    }

    /// Starts the worker and returns an id; the message with this id reports how the worker ended.
    /// With `signals`, SIGTERM and SIGINT stop the worker.
    fn start(&self, signals: bool) -> PyResult<u64> {
        let plan = std::mem::take(&mut *self.plan());
        let (id, mailbox, app, stop) = (next_id(), self.mailbox.clone(), self.app.clone(), self.stop.clone());
        engine_handle()?.spawn(async move {
            let signal_task = signals.then(|| tokio::spawn(watch_signals(stop.clone())));
            let result = run_worker(&app, plan, stop).await;
            if let Some(signal_task) = signal_task {
                signal_task.abort();
            }
            mailbox.push(id, LoopMessage::Ended(result));
        });
        Ok(id)
    }

    /// Stops the worker: it finishes the events that it has taken and releases its partitions.
    fn stop(&self) {
        self.stop.cancel();
    }
}

impl StreamWorker {
    fn plan(&self) -> std::sync::MutexGuard<'_, StreamWorkerPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run_worker(app: &StreamApp, plan: StreamWorkerPlan, stop: CancellationToken) -> Result<(), StreamBridgeError> {
    let mut worker = app.worker();
    for (processor, dead_letter_stream) in plan.processors {
        worker = worker.processor(match dead_letter_stream {
            None => processor,
            Some(stream) => {
                let dead_letters = DeadLetterQueue::for_stream(app, &stream).await;
                processor.middleware(dead_letters.map_err(|error| bridge_error("misconfigured", &error))?)
            }
        });
    }
    for task in plan.tasks {
        worker = worker.task(task);
    }
    let metrics: Vec<(ProcessorName, Arc<StreamMetrics>)> = worker.metrics();
    let metrics_server = plan.listener.map(|listener| tokio::spawn(prometheus::serve(listener, metrics)));
    let result = worker.run(stop).await;
    if let Some(metrics_server) = metrics_server {
        metrics_server.abort();
    }
    result.map_err(|error| match &error {
        ExecutorError::Halted { .. } | ExecutorError::Task(_) => bridge_error("halted", &error),
        _ => bridge_error("misconfigured", &error),
    })
}

/// The first signal stops the worker gracefully. The second ends the process at once; other workers
/// take over its partitions when the leases expire.
async fn watch_signals(stop: CancellationToken) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    for is_second in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if is_second {
            std::process::exit(FORCED_EXIT_CODE);
        }
        stop.cancel();
        info!("worker stops after the events that it has taken; send the signal again to exit at once");
    }
}

/// Runs one call of a processor on the loop: sends the call, then a `ready` message whenever the
/// processor asked for one and events are there. Dropping the future cancels the call.
async fn call_processor(
    mailbox: Arc<LoopMailbox>,
    processor: usize,
    shape: StreamEventFormat,
    events: RawPartitionEvents,
) -> Result<(), BoxError> {
    let (mut run, handle) = PendingCoroutineRun::new(&mailbox);
    let ready_requested = Arc::new(Notify::new());
    let source = StreamSource::new(events.clone(), shape, ready_requested.clone());
    run.send_message(LoopMessage::Call { processor, handle, source });
    loop {
        tokio::select! {
            biased;
            ended = run.wait_finished() => return ended,
            () = ready_requested.notified() => {}
        }
        tokio::select! {
            biased;
            ended = run.wait_finished() => return ended,
            () = events.wait_ready() => run.send_message(LoopMessage::Ready),
        }
    }
}

/// Runs a background task once.
async fn run_task(mailbox: Arc<LoopMailbox>, task: usize) -> Result<(), BoxError> {
    let (mut run, handle) = PendingCoroutineRun::new(&mailbox);
    run.send_message(LoopMessage::Task { task, handle });
    run.wait_finished().await
}
