//! Code of a driver that panics: the run ends at once with an error, and what was measured until then is there.

use crate::drivers::{Scripted, closed, config};
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
/// Longest that anything is waited for; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A user's second iteration is one too many.
fn one_too_many(number: u64) -> Duration {
    assert_eq!(number, 0, "told to");
    Duration::from_millis(1)
}

/// The users of one test are told by it to panic.
static TOLD: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn a_panic_of_one_user_ends_the_run_and_loses_nothing() {
    let driver = Scripted::new(|_| {
        assert!(!TOLD.load(Ordering::SeqCst), "told to");
        Duration::from_millis(1)
    });
    // Two threads, one of which has nobody.
    let config = config(closed(1.0, Duration::ZERO, LONG), &driver);
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    let mut begun = BTreeSet::new();
    let following = async {
        while let Some(delta) = engine.next_delta().await {
            // A thread that has not begun has nothing to say in the end.
            if begun.insert(delta.source) && begun.len() == 2 {
                TOLD.store(true, Ordering::SeqCst);
            }
            collector.merge(delta).unwrap();
        }
    };
    timeout(PATIENCE, following).await.expect("the other thread ends as well");
    assert!(collector.is_complete(), "every thread has sent its last delta");
    assert!(engine.failure().is_some_and(|why| why.contains("user's code panicked")), "{:?}", engine.failure());
    assert!(matches!(engine.join(), Err(EngineError::UserPanicked)));
    let view = collector.finish();
    assert!(view.accounting().balances(), "{:?}", view.accounting());
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 1);
}

#[tokio::test]
async fn one_that_fails_ends_those_beside_it() {
    let voice = |service| {
        let driver = Scripted::new(service);
        EngineSpec { config: config(closed(2.0, Duration::ZERO, LONG), &driver), driver, background: false }
    };
    let mut chorus =
        EngineGroup::prepare(vec![voice(|_| Duration::from_millis(1)), voice(one_too_many)]).await.unwrap();
    chorus.start(Instant::now());
    let following = async { while chorus.next_delta().await.is_some() {} };
    timeout(PATIENCE, following).await.expect("all end");
    assert!(chorus.failure().is_some());
    assert!(matches!(chorus.join(), Err(EngineError::UserPanicked)));
}

/// Its threads fall over themselves, not in a user's code, when they are told to.
struct Falling {
    scripted: Scripted,
    fall: Arc<AtomicBool>,
}

impl Driver for Falling {
    type Thread = <Scripted as Driver>::Thread;

    fn thread(&self, probe: ThreadRecorder) -> Result<Self::Thread, DriverError> {
        self.scripted.thread(probe)
    }

    fn run_thread<R>(
        &self,
        _: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        life: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        let fall = self.fall.clone();
        // One of them only.
        life(runtime.on_thread_park(move || assert!(!fall.swap(false, Ordering::SeqCst), "told to")))
    }
}

#[tokio::test]
async fn a_thread_that_panics_is_not_waited_for() {
    let (scripted, fall) = (Scripted::new(|_| Duration::from_millis(1)), Arc::new(AtomicBool::new(false)));
    let config = EngineConfig {
        limits: EngineLimits { grace: LONG, ..EngineLimits::default() },
        ..config(closed(2.0, Duration::ZERO, LONG), &scripted)
    };
    let mut engine = Engine::prepare(Falling { scripted, fall: fall.clone() }, config).await.unwrap();
    engine.start(Instant::now());
    let (mut last, mut begun) = (0, BTreeSet::new());
    let following = async {
        while let Some(delta) = engine.next_delta().await {
            last += u32::from(delta.last);
            // One that has not begun has nothing to say in the end.
            if begun.insert(delta.source) && begun.len() == 2 {
                fall.store(true, Ordering::SeqCst);
            }
        }
    };
    timeout(PATIENCE, following).await.expect("the other thread ends as well");
    assert_eq!(last, 1, "of the other one");
    assert!(engine.failure().is_some());
    assert!(matches!(engine.join(), Err(EngineError::ThreadPanicked)));
}
