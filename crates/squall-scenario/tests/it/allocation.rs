//! The memory of a user: no allocation per constant request, and a few KiB in all.

use squall_engine::{Driver, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_metrics::RecorderConfig;
use squall_model::TaskIndex;
use squall_scenario::ScenarioUser;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Instant,
};

use crate::harness::{block_on, scenario, target};

/// Counts this thread's allocations and the bytes that it holds.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system allocator unchanged. Counting touches only thread-local
// cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        BYTES.with(|n| n.set(n.get() + layout.size() as i64));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.with(|n| n.set(n.get() - layout.size() as i64));
        // SAFETY: `at` came from `alloc` above, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn iteration(number: u64) -> Iteration {
    let now = Instant::now();
    Iteration { number, task: TaskIndex(0), intended: now, started: now }
}

/// Allocations of `requests` iterations of a user that has already run some.
async fn allocations(user: &mut ScenarioUser, requests: u64) -> u64 {
    for number in 0..50 {
        assert!(user.iterate(iteration(number)).await);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for number in 0..requests {
        assert!(user.iterate(iteration(number)).await);
    }
    ALLOCATIONS.with(Cell::get) - before
}

fn measured(rest: &str) -> u64 {
    let target = target();
    let scenario = scenario(&target, rest);
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let thread = scenario.driver().thread(recorder).expect("sound");
        allocations(&mut thread.user(UserIdentity { number: 0, seed: 0 }), 1000).await
    })
}

#[test]
fn constant_request_allocates_nothing() {
    let request = "[[task]]\nname = 'x'\npost = '/echo'\njson = { a = 1 }\nheaders = { x-a = 'b' }\n";
    assert_eq!(measured(request), 0);
    assert_eq!(measured(&format!("{request}expect = {{ status = [200, '3xx'] }}")), 0);
}

#[test]
fn rendered_request_allocates_at_most_three_times() {
    let request = "[[task]]\nname = 'x'\nget = '/api/products?page={{ random(1, 20) }}'";
    let each = measured(request) as f64 / 1000.0;
    assert!(each <= 3.0, "{each} allocations for each request: its flow, and a list of its headers");
}

#[test]
fn user_takes_less_than_eight_kibibytes() {
    const USERS: u64 = 200;
    let target = target();
    let scenario = scenario(&target, "[[task]]\nname = 'x'\nget = '/api/products'");
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let thread = scenario.driver().thread(recorder).expect("sound");
        // The thread's own memory is allocated before counting begins.
        let mut first = thread.user(UserIdentity { number: USERS, seed: 0 });
        assert!(first.iterate(iteration(0)).await);
        let before = BYTES.with(Cell::get);
        let mut users = Vec::new();
        let mut future = 0;
        for user in 0..USERS {
            let mut user = Box::new(thread.user(UserIdentity { number: user, seed: user }));
            let iterating = user.iterate(iteration(0));
            future = size_of_val(&iterating);
            assert!(iterating.await);
            users.push(user);
        }
        let each = (BYTES.with(Cell::get) - before) as u64 / USERS + future as u64;
        assert!(each < 8 * 1024, "{each} bytes for each user, {future} of them its future");
        assert!(future < 2 * 1024, "the future of a plain request takes {future} bytes");
    });
}
