//! Code that blocks its engine thread: the run still ends, begins nothing after its end, and counts
//! what it could not begin.

use crate::scripted_driver::{closed, open};
use squall_engine::{
    Driver, DriverError, DriverThread, Engine, EngineConfig, Iteration, LoadOutcome, ThreadDeadline, ThreadRecorder,
    UserIdentity, VirtualUser,
};
use squall_metrics::{Collector, MetricId, MetricKey, Outcome, RunView};
use squall_model::{EngineLimits, Load, TaskSpec};
use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// How an iteration blocks its thread.
#[derive(Clone)]
enum Block {
    For(Duration),
    /// Until the test drops the sender.
    UntilReleased(Arc<Mutex<mpsc::Receiver<()>>>),
}

/// A driver whose iterations block their thread. It gives a thread up once its deadline has passed.
struct BlockingDriver {
    block: Block,
    begun: Arc<Mutex<Vec<Instant>>>,
}

struct BlockingThread {
    block: Block,
    begun: Arc<Mutex<Vec<Instant>>>,
    recorder: ThreadRecorder,
    metric: MetricId,
}

struct BlockingUser {
    block: Block,
    begun: Arc<Mutex<Vec<Instant>>>,
    recorder: ThreadRecorder,
    metric: MetricId,
}

impl Driver for BlockingDriver {
    type Thread = BlockingThread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<BlockingThread, DriverError> {
        let metric = recorder.metric(MetricKey::request("blocks"));
        Ok(BlockingThread { block: self.block.clone(), begun: self.begun.clone(), recorder, metric })
    }

    fn run_thread<R>(
        &self,
        deadline: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        thread_main: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        if let Block::UntilReleased(_) = self.block {
            let deadline = deadline.clone();
            std::thread::spawn(move || {
                while !deadline.has_passed() {
                    std::thread::yield_now();
                }
                deadline.give_up("blocking.rs:1 in iterate");
            });
        }
        thread_main(runtime)
    }
}

impl DriverThread for BlockingThread {
    type User = BlockingUser;

    fn user(&self, _: UserIdentity) -> BlockingUser {
        let (block, begun, recorder) = (self.block.clone(), self.begun.clone(), self.recorder.clone());
        BlockingUser { block, begun, recorder, metric: self.metric }
    }
}

impl VirtualUser for BlockingUser {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        self.begun.lock().unwrap().push(iteration.started);
        let Some(request) = self.recorder.begin(self.metric, iteration.intended, iteration.started) else {
            return false;
        };
        match &self.block {
            Block::For(time) => std::thread::sleep(*time),
            // Ends with an error when the test drops the sender.
            Block::UntilReleased(released) => drop(released.lock().unwrap().recv()),
        }
        request.end(Instant::now(), Outcome::of_status(200), 0, 0);
        true
    }
}

struct Ended {
    view: RunView,
    outcome: LoadOutcome,
    /// When each iteration began, after the start of the run.
    begun: Vec<Duration>,
}

async fn run_blocking(load: Load, grace: Duration, block: Block) -> Ended {
    let begun = Arc::default();
    let driver = BlockingDriver { block, begun: Arc::clone(&begun) };
    let limits = EngineLimits { grace, threads: Some(1), ..EngineLimits::default() };
    let config = EngineConfig::with_limits(load, vec![TaskSpec::new("only")], limits);
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    let start = Instant::now();
    engine.start(start);
    while let Some(delta) = engine.next_delta().await {
        collector.merge(delta).unwrap();
    }
    let outcome = engine.join().unwrap();
    let begun = begun.lock().unwrap().iter().map(|at| at.saturating_duration_since(start)).collect();
    Ended { view: collector.finish(), outcome, begun }
}

#[tokio::test]
async fn no_start_begins_after_the_end_although_code_blocks_its_thread() {
    let Ended { view, begun, .. } = run_blocking(open(20.0, MS(1000)), MS(2000), Block::For(MS(300))).await;
    assert!(begun.iter().all(|at| *at <= MS(1250)), "{begun:?}");
    assert_eq!(view.engine.iterations + view.engine.dropped, 20, "every start was made or counted as dropped");
    assert!(view.engine.dropped > 10, "{}", view.engine.dropped);
    assert!(view.accounting().balances());
}

#[tokio::test]
async fn no_closed_user_begins_an_iteration_after_the_end_although_code_blocks_its_thread() {
    let Ended { view, begun, .. } = run_blocking(closed(20.0, MS(0), MS(1000)), MS(2000), Block::For(MS(300))).await;
    assert!(begun.iter().all(|at| *at < MS(1000)), "{begun:?}");
    assert_eq!(view.engine.iterations, begun.len() as u64);
}

#[tokio::test]
async fn run_ends_without_a_thread_that_was_given_up() {
    let (release, released) = mpsc::channel();
    let block = Block::UntilReleased(Arc::new(Mutex::new(released)));
    let Ended { view, outcome, begun } = run_blocking(open(10.0, MS(1000)), MS(100), block).await;
    assert!(outcome.cut_off);
    assert_eq!((begun.len(), outcome.lost_at_most), (1, 1));
    assert_eq!((view.engine.iterations, view.engine.dropped), (1, 9));
    assert!(view.errors.iter().any(|error| error.message.starts_with("blocking.rs:1 in iterate did not return")));
    drop(release);
}
