//! Recording does not allocate; and the tests of merging, fleets and the wire format.

mod deltas;
mod fleet;
mod wire;

use squall_metrics::{MetricKey, MetricRecorder, Outcome, OutcomeCategory, OutcomeCode, RecorderConfig, Sample};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

/// Counts this thread's allocations.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call is passed to the system allocator unchanged. Counting touches only a
// thread-local cell without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_during(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn allocation_counter_counts() {
    assert!(allocations_during(|| drop(Box::new(1))) > 0);
}

#[test]
fn recording_a_sample_does_not_allocate() {
    let mut recorder = MetricRecorder::new(RecorderConfig { phases: true, ..RecorderConfig::default() });
    let metric = recorder.metric(MetricKey::request("browse"));
    let codes =
        [OutcomeCode::Http(200), OutcomeCode::Http(503), OutcomeCode::Named("CONNECT_REFUSED"), OutcomeCode::Http(404)];
    // The first sample, every magnitude of latency, several outcomes, phases and lag must not
    // allocate.
    let allocations = allocations_during(|| {
        for i in 0..100_000u64 {
            let wait = Duration::from_nanos(i * 7);
            let service = Duration::from_nanos(1 << (i % 45));
            let outcome = Outcome { category: OutcomeCategory::Ok, code: codes[i as usize % codes.len()] };
            recorder.count_begun();
            recorder.record_iteration(wait, false);
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 100,
                bytes_out: 50,
                due_in_warm_up: false,
            });
            recorder.record_phases(metric, &[service; 5]);
        }
    });
    assert_eq!(allocations, 0);
}
