//! A driver that panics: the run ends at once with an error and keeps its samples.

use crate::scripted_driver::{ScriptedDriver, closed, config};
use squall_engine::{
    Driver, DriverError, Engine, EngineConfig, EngineError, EngineGroup, EngineSpec, ThreadDeadline, ThreadRecorder,
};
use squall_metrics::{Collector, Outcome};
use squall_model::EngineLimits;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(3600);
/// The longest wait of a test; only a failing test reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Panics in a user's second iteration.
fn panic_in_second_iteration(number: u64) -> Duration {
    assert_eq!(number, 0, "this test panics");
    Duration::from_millis(1)
}

/// Makes the users of one test panic.
static PANIC_NEXT: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn user_panic_ends_the_run_and_keeps_its_samples() {
    let driver = ScriptedDriver::new(|_| {
        assert!(!PANIC_NEXT.load(Ordering::SeqCst), "this test panics");
        Duration::from_millis(1)
    });
    // Two threads, one of them without a user.
    let config = config(closed(1.0, Duration::ZERO, LONG), &driver);
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    let mut begun = BTreeSet::new();
    let draining = async {
        while let Some(delta) = engine.next_delta().await {
            // Panics once both threads have begun, because a thread that has not begun sends no
            // last delta.
            if begun.insert(delta.source) && begun.len() == 2 {
                PANIC_NEXT.store(true, Ordering::SeqCst);
            }
            collector.merge(delta).unwrap();
        }
    };
    timeout(TEST_TIMEOUT, draining).await.expect("the other thread ends as well");
    assert!(collector.is_complete(), "every thread has sent its last delta");
    assert!(engine.failure().is_some_and(|reason| reason.contains("user's code panicked")), "{:?}", engine.failure());
    assert!(matches!(engine.join(), Err(EngineError::UserPanicked)));
    let view = collector.finish();
    assert!(view.accounting().balances(), "{:?}", view.accounting());
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 1);
}

#[tokio::test]
async fn failed_engine_ends_the_other_engines_of_its_group() {
    let spec = |service| {
        let driver = ScriptedDriver::new(service);
        EngineSpec { config: config(closed(2.0, Duration::ZERO, LONG), &driver), driver, background: false }
    };
    let mut group =
        EngineGroup::prepare(vec![spec(|_| Duration::from_millis(1)), spec(panic_in_second_iteration)]).await.unwrap();
    group.start(Instant::now());
    let draining = async { while group.next_delta().await.is_some() {} };
    timeout(TEST_TIMEOUT, draining).await.expect("all end");
    assert!(group.failure().is_some());
    assert!(matches!(group.join(), Err(EngineError::UserPanicked)));
}

/// A driver whose thread panics outside a user's code when `panic_next` is set.
struct PanickingDriver {
    scripted: ScriptedDriver,
    panic_next: Arc<AtomicBool>,
}

impl Driver for PanickingDriver {
    type Thread = <ScriptedDriver as Driver>::Thread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<Self::Thread, DriverError> {
        self.scripted.thread(recorder)
    }

    fn run_thread<R>(
        &self,
        _: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        thread_main: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        let panic_next = self.panic_next.clone();
        // Only one of the threads panics.
        thread_main(
            runtime.on_thread_park(move || assert!(!panic_next.swap(false, Ordering::SeqCst), "this test panics")),
        )
    }
}

#[tokio::test]
async fn thread_panic_ends_the_run() {
    let (scripted, panic_next) = (ScriptedDriver::new(|_| Duration::from_millis(1)), Arc::new(AtomicBool::new(false)));
    let config = EngineConfig {
        limits: EngineLimits { grace: LONG, ..EngineLimits::default() },
        ..config(closed(2.0, Duration::ZERO, LONG), &scripted)
    };
    let mut engine =
        Engine::prepare(PanickingDriver { scripted, panic_next: panic_next.clone() }, config).await.unwrap();
    engine.start(Instant::now());
    let (mut last, mut begun) = (0, BTreeSet::new());
    let draining = async {
        while let Some(delta) = engine.next_delta().await {
            last += u32::from(delta.last);
            // A thread that has not begun sends no last delta.
            if begun.insert(delta.source) && begun.len() == 2 {
                panic_next.store(true, Ordering::SeqCst);
            }
        }
    };
    timeout(TEST_TIMEOUT, draining).await.expect("the other thread ends as well");
    assert_eq!(last, 1, "only the other thread sends its last delta");
    assert!(engine.failure().is_some());
    assert!(matches!(engine.join(), Err(EngineError::ThreadPanicked)));
}
