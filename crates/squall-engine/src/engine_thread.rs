//! Runs one engine thread from its runtime to its result, and reports its failure to the engine. The
//! load itself is made by the [`ThreadScheduler`].

use squall_metrics::{RecorderConfig, SourceId};
use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};
use tokio::{
    sync::{mpsc, watch},
    task::LocalSet,
};

use crate::{
    Driver, DriverThread, ThreadDeadline, ThreadRecorder,
    engine::{EngineCommand, EngineError, LoadOutcome, StartTimeLock, ThreadMessage},
    engine_config::EngineConfig,
    load_end::LoadEnd,
    number_quota::NumberQuota,
    on_start_tracker::OnStartTracker,
    precise_timer::PreciseTimer,
    share_assignment::ShareAssignment,
    thread_counters::ThreadActivity,
    thread_scheduler::{SchedulerInputs, ThreadScheduler},
    thread_state::{CrossThreadState, ThreadState},
};

/// What all threads of an engine get.
pub(crate) struct EngineContext<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) iteration_quota: Option<NumberQuota>,
    /// See [`CrossThreadState::iterations_begun`].
    pub(crate) iterations_begun: Option<Arc<AtomicU64>>,
    /// Users that got through their own start; `None` in an open model, where each thread has its own.
    pub(crate) on_start_tracker: Option<Arc<OnStartTracker>>,
    pub(crate) ready: mpsc::UnboundedSender<()>,
    pub(crate) messages: mpsc::UnboundedSender<ThreadMessage>,
    pub(crate) start_time: StartTimeLock,
    pub(crate) load_end: Arc<LoadEnd>,
}

// A derived `Clone` would require `D: Clone`.
impl<D> Clone for EngineContext<D> {
    fn clone(&self) -> Self {
        EngineContext {
            driver: self.driver.clone(),
            config: self.config.clone(),
            iteration_quota: self.iteration_quota.clone(),
            iterations_begun: self.iterations_begun.clone(),
            on_start_tracker: self.on_start_tracker.clone(),
            ready: self.ready.clone(),
            messages: self.messages.clone(),
            start_time: self.start_time.clone(),
            load_end: self.load_end.clone(),
        }
    }
}

/// What one thread alone gets.
pub(crate) struct ThreadContext {
    pub(crate) index: u32,
    pub(crate) activity: Arc<ThreadActivity>,
    pub(crate) commands: watch::Receiver<EngineCommand>,
    pub(crate) assignments: mpsc::UnboundedReceiver<ShareAssignment>,
}

/// Reports a thread's failure when it is dropped, so that a panic is reported too.
struct FailureReporter {
    /// The engine takes a closed channel for success, so the reporter holds the sender until it is dropped.
    messages: mpsc::UnboundedSender<ThreadMessage>,
    thread: u32,
    /// The report if the thread ended now.
    failure: Option<String>,
}

impl FailureReporter {
    fn finish<T>(mut self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        self.failure = result.as_ref().err().map(EngineError::to_string);
        result
    }
}

impl Drop for FailureReporter {
    fn drop(&mut self) {
        if let Some(reason) = self.failure.take() {
            // The receiver exists unless the engine was dropped; then the failure does not matter.
            let _ = self.messages.send(ThreadMessage::Failed { thread: self.thread, reason });
        }
    }
}

/// Runs the thread to its end, and reports its failure.
pub(crate) fn run_thread<D: Driver>(
    thread: ThreadContext,
    engine: EngineContext<D>,
    deadline: &ThreadDeadline,
) -> Result<LoadOutcome, EngineError> {
    let reporter = FailureReporter {
        messages: engine.messages.clone(),
        thread: thread.index,
        failure: Some(EngineError::ThreadPanicked.to_string()),
    };
    reporter.finish(run_in_runtime(thread, engine, deadline))
}

fn run_in_runtime<D: Driver>(
    thread: ThreadContext,
    engine: EngineContext<D>,
    deadline: &ThreadDeadline,
) -> Result<LoadOutcome, EngineError> {
    let driver = engine.driver.clone();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    driver.run_thread(deadline, builder.enable_all(), |builder| {
        let runtime = builder.build().map_err(EngineError::Thread)?;
        let local = LocalSet::new();
        let outcome = runtime.block_on(local.run_until(prepare_and_run(thread, engine)));
        // The scheduler has waited for aborted tasks, so their requests have recorded themselves.
        drop(local);
        // Without this, the thread would wait many seconds for a name server that does not respond.
        runtime.shutdown_background();
        outcome
    })
}

async fn prepare_and_run<D: Driver>(
    ThreadContext { index, activity, mut commands, assignments }: ThreadContext,
    engine: EngineContext<D>,
) -> Result<LoadOutcome, EngineError> {
    let EngineContext { driver, config, iteration_quota, ready, messages, start_time, .. } = engine;
    let thread = config.first_thread + index;
    let send_permit = config.send_permit.clone().map(|permit| (thread as usize, permit));
    let recorder_config = RecorderConfig { phases: config.limits.phases, ..config.recorder };
    let recorder = ThreadRecorder::with_limits(
        recorder_config,
        Instant::now(),
        send_permit,
        (config.resources.clone(), activity.clone()),
    );
    let mut driver_thread = driver.thread(recorder.clone())?;
    driver_thread.connect().await?;
    // The timer needs a file descriptor; users may take all of them later.
    let timer = PreciseTimer::new().map_err(EngineError::Timer)?;
    let _ = ready.send(());
    drop(ready);
    let run_start = match commands.wait_for(|command| *command != EngineCommand::Prepare).await.as_deref() {
        Ok(EngineCommand::Start(at)) => *at,
        _ => return Ok(LoadOutcome::NONE),
    };
    commands.mark_unchanged();
    // A process that learns of the start late was not stalled: the stall check counts from here.
    let first_wake = run_start.max(Instant::now());
    tokio::time::sleep_until(run_start.into()).await;
    recorder.measure_from(run_start + config.load.warm_up);
    let source = SourceId { instance: config.instance, thread };
    let quota_changes = iteration_quota.as_ref().map(NumberQuota::subscribe);
    let cross_thread = CrossThreadState {
        requests_per_iteration: driver.requests_per_iteration(),
        user_start: driver.user_start(),
        iterations_begun: engine.iterations_begun,
        on_start_tracker: engine.on_start_tracker.unwrap_or_default(),
        load_end: engine.load_end,
    };
    let state = ThreadState::new(config, source, recorder, run_start, iteration_quota, (activity, cross_thread));
    state.scheduler.next_wake.set(first_wake);
    let inputs = SchedulerInputs { commands, assignments, start_time, quota_changes };
    ThreadScheduler::new(Rc::new(state), driver_thread, timer, inputs, messages).run().await
}
