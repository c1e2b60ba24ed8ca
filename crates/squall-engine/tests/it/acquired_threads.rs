//! Tests of tasks that need a thread of their own: starts that get none are dropped and counted.

use crate::scripted_driver::{closed, open};
use squall_engine::{
    Driver, DriverError, DriverThread, Engine, EngineConfig, Iteration, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_metrics::{Collector, RunView};
use squall_model::{EngineLimits, Load, TaskIndex, TaskSpec};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A driver whose iterations each use one of `threads` for `service`.
#[derive(Clone)]
struct ThreadUsers {
    threads: Arc<Semaphore>,
    service: Duration,
}

struct ThreadUser {
    driver: ThreadUsers,
    permit: Option<OwnedSemaphorePermit>,
}

impl Driver for ThreadUsers {
    type Thread = ThreadUsers;

    fn thread(&self, _: ThreadRecorder) -> Result<ThreadUsers, DriverError> {
        Ok(self.clone())
    }
}

impl DriverThread for ThreadUsers {
    type User = ThreadUser;

    fn user(&self, _: UserIdentity) -> ThreadUser {
        ThreadUser { driver: self.clone(), permit: None }
    }
}

impl VirtualUser for ThreadUser {
    async fn acquire_thread(&mut self, _: TaskIndex) {
        self.permit = self.driver.threads.clone().acquire_owned().await.ok();
    }

    async fn iterate(&mut self, _: Iteration) -> bool {
        tokio::time::sleep(self.driver.service).await;
        self.permit.take().is_some()
    }
}

/// Runs `load` with two threads for iterations that take `service`.
async fn run(load: Load, grace: Duration, service: Duration) -> RunView {
    let driver = ThreadUsers { threads: Arc::new(Semaphore::new(2)), service };
    let limits = EngineLimits { grace, threads: Some(1), ..EngineLimits::default() };
    let config = EngineConfig::with_limits(load, vec![TaskSpec::new("only")], limits);
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    while let Some(delta) = engine.next_delta().await {
        collector.merge(delta).unwrap();
    }
    engine.join().unwrap();
    collector.finish()
}

fn starts_without_thread(view: &RunView) -> u64 {
    view.metric("(no thread was free)").map_or(0, |metric| metric.requests)
}

#[tokio::test]
async fn starts_without_a_thread_before_the_end_of_the_load_are_dropped() {
    // The grace period is long enough for later iterations, or too short for the first ones.
    for grace in [MS(10_000), MS(0)] {
        let view = run(open(20.0, MS(1000)), grace, MS(2000)).await;
        let counts = (view.engine.iterations, view.engine.dropped, starts_without_thread(&view));
        assert_eq!(counts, (2, 18, 18), "with {grace:?}");
    }
}

#[tokio::test]
async fn wait_for_a_thread_makes_a_start_late_and_is_no_schedule_lag() {
    let view = run(open(20.0, MS(1000)), MS(10_000), MS(200)).await;
    assert_eq!(view.engine.iterations + view.engine.dropped, 20);
    assert!(view.engine.late > 0 && view.engine.iterations >= 6, "{:?}", view.engine);
}

#[tokio::test]
async fn limited_iterations_wait_for_threads_after_the_last_number_is_taken() {
    let load = Load { iterations: Some(20), ..closed(10.0, Duration::ZERO, MS(600_000)) };
    let view = run(load, MS(60_000), MS(20)).await;
    assert_eq!((view.engine.iterations, view.engine.dropped), (20, 0));
}

#[tokio::test]
async fn users_of_a_closed_load_that_wait_for_a_thread_leave_at_its_end() {
    let view = run(closed(10.0, Duration::ZERO, MS(500)), MS(60_000), MS(1000)).await;
    assert_eq!((view.engine.iterations, view.engine.dropped, starts_without_thread(&view)), (2, 0, 0));
}
