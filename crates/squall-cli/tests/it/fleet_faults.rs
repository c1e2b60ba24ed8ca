//! Kills and freezes every process of a fleet in every phase of a run, and delays, cuts and
//! half-opens its connections to Redis. After every fault, the requests that the target received
//! are between the reported ones and the reported plus the possibly lost ones, no start is made
//! twice, and the fleet runs the next test.
//!
//! Fleets run in parallel, because a fault is mostly waiting. The tests do not depend on timing:
//! the store blocks writes during the fault, so the run stays in the phase that the test has read.
//! If the run has left the phase before, the test starts a longer run.

use crate::support::{FinishedProcess, RunningProcess, TestFolder, ask_redis, target, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use squall_target::TargetServer;
use squall_testkit::{fault_proxy::FaultProxy, redis::RedisServer};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Fleets that run in parallel.
const PARALLEL_FLEETS: usize = 6;
/// Longer than a member lives without a heartbeat (3.5 s).
const FREEZE: Duration = Duration::from_secs(5);
/// The load of every run. Responses are delayed, so that a run has requests to drain.
const RATE: u64 = 20;
const SECONDS: u64 = 5;
const DELAY_MS: u64 = 1200;
/// Attempts to hit the phase; each run is twice as long as the one before.
const ATTEMPTS: u32 = 5;

const STATE: &str = "GET squall:{main}:test:state";

#[derive(Debug, Clone, Copy, PartialEq)]
enum FaultTarget {
    Worker,
    Orchestrator,
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Freeze,
    /// Redis restarts without its data.
    Empty,
    /// Redis restarts and takes seconds to load its data.
    Slow,
    /// Delays on the connection to Redis. In a crawl a heartbeat takes longer than half of a
    /// member's lifetime.
    Delay,
    Crawl,
    Cut,
    HalfOpen,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    who: FaultTarget,
    fault: Fault,
    phase: &'static str,
}

#[test]
fn request_counts_agree_after_every_fault_in_every_phase() {
    let mut cases = Vec::new();
    for phase in ["IDLE", "PREPARING", "RUNNING", "STOPPING"] {
        for who in [FaultTarget::Worker, FaultTarget::Orchestrator, FaultTarget::Redis] {
            cases.extend([Fault::Kill, Fault::Freeze].map(|fault| Case { who, fault, phase }));
        }
        cases.push(Case { who: FaultTarget::Redis, fault: Fault::Slow, phase });
    }
    for phase in ["IDLE", "RUNNING"] {
        cases.push(Case { who: FaultTarget::Redis, fault: Fault::Empty, phase });
        for who in [FaultTarget::Worker, FaultTarget::Orchestrator] {
            let faults = [Fault::Delay, Fault::Crawl, Fault::Cut, Fault::HalfOpen];
            cases.extend(faults.map(|fault| Case { who, fault, phase }));
        }
    }
    let next = AtomicUsize::new(0);
    let failed: Vec<String> = thread::scope(|scope| {
        let run_cases = || {
            let mut failed = Vec::new();
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                // A panic of one case must not hide the others.
                if std::panic::catch_unwind(|| run_case(*case)).is_err() {
                    failed.push(format!("{case:?}"));
                }
            }
            failed
        };
        let threads: Vec<_> = (0..PARALLEL_FLEETS).map(|_| scope.spawn(run_cases)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    assert!(failed.is_empty(), "failed cases, with their panics above: {failed:#?}");
}

/// A fleet with handles of all its processes.
struct Fleet {
    folder: TestFolder,
    redis: RedisServer,
    target: TargetServer,
    victim: RunningProcess,
    leader: RunningProcess,
    helper: RunningProcess,
    /// Between Redis and the process that gets the fault.
    proxy: FaultProxy,
}

impl Fleet {
    fn start(who: FaultTarget) -> Fleet {
        let (folder, redis) = (TestFolder::new(), RedisServer::start_persistent());
        redis.write_filler_keys();
        let proxy = FaultProxy::start(redis.port());
        let (direct, through) = (redis.url(), format!("redis://127.0.0.1:{}/", proxy.port()));
        let way = |one: FaultTarget| if who == one { through.as_str() } else { direct.as_str() };
        let worker = |id: &str, redis: &str, lives: &str| {
            let mut worker = folder.start(&["worker", "--redis", redis, "--id", id, "--expires-after", lives]);
            worker.wait_for_line("joined");
            worker
        };
        // The helper has a long expiry, so that it counts as alive while it is stopped.
        let (victim, helper) =
            (worker("victim", way(FaultTarget::Worker), "3500ms"), worker("helper", &direct, "120s"));
        let listen = "127.0.0.1:0";
        let mut leader = folder.start(&["orchestrator", "--redis", way(FaultTarget::Orchestrator), "--listen", listen]);
        leader.wait_for_line("leads");
        let fleet = Fleet { redis, target: target(), victim, leader, helper, proxy, folder };
        // A run waits only for workers that have reported.
        wait_until("reports", || fleet.ask(&["SCARD squall:{main}:workers"]).as_deref() == Some(":2"));
        fleet
    }

    fn run(&self, result: &str, delay_ms: u64, seconds: u64) -> RunningProcess {
        let (url, redis) = (self.target.url(&format!("/delay/{delay_ms}")), self.redis.url());
        let load = [format!("--rate={RATE}"), format!("--for={seconds}s"), "--grace=60s".to_owned()];
        let all = ["run", &url, "--cluster", &redis, "--quiet", "--json", result, &load[0], &load[1], &load[2]];
        self.folder.start(&all)
    }

    fn ask(&self, commands: &[&str]) -> Option<String> {
        ask_redis(self.redis.port(), commands)
    }

    /// The phase in the run record; `None` if Redis does not reply.
    fn phase(&self) -> Option<String> {
        self.ask(&[STATE])
    }

    /// Blocks writes until [`Fleet::release`], so that the run stays in its phase; returns the
    /// phase.
    fn hold(&self) -> Option<String> {
        self.ask(&["CLIENT PAUSE 120000 WRITE", STATE])
    }

    fn release(&self) {
        // A restarted Redis has no block to release.
        let _ = self.ask(&["CLIENT UNPAUSE"]);
    }

    fn until_phase(&self, phase: &str) {
        let order = ["PREPARING", "RUNNING", "STOPPING"];
        let at = |name: &str| order.iter().position(|known| *known == name);
        wait_until(phase, || self.phase().is_some_and(|now| at(&now) >= at(phase)));
    }

    /// Delays the connection to Redis in each direction for a while.
    fn slow_down(&self, by: Duration) {
        self.proxy.delay(by);
        self.release();
        thread::sleep(FREEZE);
        self.proxy.heal();
    }

    fn inject(&mut self, Case { who, fault, .. }: Case) {
        let process = if who == FaultTarget::Worker { &self.victim } else { &self.leader };
        match (fault, who) {
            (Fault::Kill, FaultTarget::Redis) => self.redis.restart(),
            (Fault::Kill, _) => process.signal(Signal::KILL),
            (Fault::Freeze, FaultTarget::Redis) => {
                self.redis.pause();
                thread::sleep(FREEZE);
                self.redis.resume();
            }
            (Fault::Freeze, _) => {
                process.signal(Signal::STOP);
                self.release();
                thread::sleep(FREEZE);
                process.signal(Signal::CONT);
            }
            (Fault::Empty, _) => self.redis.restart_empty(),
            (Fault::Slow, _) => self.redis.restart_loading_slowly(),
            (Fault::Delay, _) => self.slow_down(Duration::from_millis(300)),
            (Fault::Crawl, _) => self.slow_down(Duration::from_millis(1000)),
            (Fault::Cut, _) => {
                for _ in 0..5 {
                    self.proxy.cut();
                    self.release();
                    thread::sleep(FREEZE / 10);
                }
            }
            (Fault::HalfOpen, _) => {
                self.proxy.half_open();
                self.release();
                thread::sleep(FREEZE);
                // As a router that has lost the connection: the next use gets an error.
                self.proxy.cut();
                self.proxy.heal();
            }
        }
    }
}

/// Starts runs until one got the fault in the phase of the case.
fn run_case(case: Case) {
    if case.phase == "IDLE" {
        return inject_between_runs(case);
    }
    for attempt in 0..ATTEMPTS {
        if inject_during_run(case, 1 << attempt) {
            return;
        }
    }
    panic!("{case:?}: every run had left the phase before the fault");
}

/// Injects the fault between two runs; both runs must be complete.
fn inject_between_runs(case: Case) {
    let mut fleet = Fleet::start(case.who);
    let mut received = 0;
    for name in ["before.json", "after.json"] {
        let ended = fleet.run(name, 0, 1).end();
        let more = fleet.target.requests() - received;
        check(case, &fleet.folder, name, &ended, more, RATE);
        assert_eq!((ended.code, more), (0, RATE), "{case:?}: {ended:?}");
        received += more;
        if name == "before.json" {
            assert_eq!(fleet.hold().as_deref(), Some("IDLE"), "{case:?}");
            fleet.inject(case);
            fleet.release();
        }
    }
}

/// Runs once with `factor` times the duration; `true` if the run got the fault in the phase of the
/// case.
fn inject_during_run(case: Case, factor: u64) -> bool {
    let mut fleet = Fleet::start(case.who);
    if case.phase == "PREPARING" {
        // The run does not start before the helper is ready.
        fleet.helper.signal(Signal::STOP);
    }
    let seconds = SECONDS * factor;
    let run = fleet.run("first.json", DELAY_MS * factor, seconds);
    fleet.until_phase(case.phase);
    if case.phase == "RUNNING" {
        wait_until("requests", || fleet.target.requests() >= RATE);
    }
    if fleet.hold().as_deref() != Some(case.phase) {
        fleet.release();
        return false;
    }
    fleet.inject(case);
    fleet.release();
    if case.phase == "PREPARING" {
        fleet.helper.signal(Signal::CONT);
    }
    let ended = run.end();
    let received = fleet.target.requests();
    if case.fault == Fault::Empty {
        assert!(ended.code != 0, "{case:?}: {ended:?}");
        let events = fleet.folder.json("first.json")["fleet"]["events"].to_string();
        assert!(events.contains("the store holds no result"), "{case:?}: {events}");
    } else {
        check(case, &fleet.folder, "first.json", &ended, received, RATE * seconds);
    }
    // The rest of the fleet runs the next test.
    let again = fleet.run("second.json", DELAY_MS, 1).end();
    let more = fleet.target.requests() - received;
    check(case, &fleet.folder, "second.json", &again, more, RATE);
    assert!(more > 0, "{case:?}: the next run makes load: {again:?}");
    true
}

/// Compares the counts of the target with those of the report.
#[track_caller]
fn check(case: Case, folder: &TestFolder, name: &str, ended: &FinishedProcess, received: u64, planned: u64) {
    assert!(folder.path(name).exists(), "{case:?}: no result: {ended:?}");
    let result = folder.json(name);
    let accounting = |field: &str| number(&result, &format!("/accounting/{field}"));
    let (sent, recorded, reported) = (accounting("sent"), accounting("recorded"), accounting("reported"));
    let (unsent, lost) = (accounting("unsent"), accounting("lost_at_most"));
    let known = reported - unsent;
    // Requests in flight of a killed worker are part of `lost_at_most`.
    assert_eq!((recorded, sent), (reported, known), "{case:?}: {result}");
    assert!(
        (known..=known + lost).contains(&received),
        "{case:?}: {received} received, {known} reported, {lost} lost at most"
    );
    assert!(received <= planned, "{case:?}: {received} of {planned}: a start was made twice");
}

fn number(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {result}"))
}
