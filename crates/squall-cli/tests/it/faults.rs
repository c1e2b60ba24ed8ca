//! Every process of a fleet is killed and frozen in every phase of a run, and the way to Redis is delayed, cut and held half open.
//! Whatever happens: what the target received lies between what is reported and that plus what is stated as possibly lost, no start
//! is made twice, and the fleet carries out the next run without anybody's help.
//!
//! Fleets run side by side, because most of a fault is waiting. Nothing here depends on how long anything takes: for the moment of the
//! fault the store lets nobody write, so that the phase it is read to be in is the one that is struck; a run that was faster than us is
//! followed by a longer one.

use crate::support::{Desk, Ended, Running, ask_redis, target, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use squall_target::TargetServer;
use squall_testkit::{fault_proxy::FaultProxy, redis::RedisServer};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Fleets that run at the same time.
const SIDE_BY_SIDE: usize = 6;
/// Longer than a member lives without a beat (3.5 s).
const FREEZE: Duration = Duration::from_secs(5);
/// The load of every run: so many a second, for so long, each answered after a while so that there is something to drain.
const RATE: u64 = 20;
const SECONDS: u64 = 5;
const DELAY_MS: u64 = 1200;
/// A run that had left the phase before it could be struck is followed by one that is twice as long, so many times.
const ATTEMPTS: u32 = 5;

const STATE: &str = "GET squall:{main}:test:state";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Worker,
    Orchestrator,
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Freeze,
    /// Started again without what it knew; only Redis.
    Empty,
    /// Started again, and for seconds busy reading what it knew; only Redis.
    Slow,
    /// On the way to Redis; a crawl is one in which a beat takes longer than half of a member's life.
    Delay,
    Crawl,
    Cut,
    HalfOpen,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    who: Who,
    fault: Fault,
    phase: &'static str,
}

#[test]
fn whatever_fails_in_whatever_phase_the_books_are_right() {
    let mut cases = Vec::new();
    for phase in ["IDLE", "PREPARING", "RUNNING", "STOPPING"] {
        for who in [Who::Worker, Who::Orchestrator, Who::Redis] {
            cases.extend([Fault::Kill, Fault::Freeze].map(|fault| Case { who, fault, phase }));
        }
        cases.push(Case { who: Who::Redis, fault: Fault::Slow, phase });
    }
    for phase in ["IDLE", "RUNNING"] {
        cases.push(Case { who: Who::Redis, fault: Fault::Empty, phase });
        for who in [Who::Worker, Who::Orchestrator] {
            let faults = [Fault::Delay, Fault::Crawl, Fault::Cut, Fault::HalfOpen];
            cases.extend(faults.map(|fault| Case { who, fault, phase }));
        }
    }
    let next = AtomicUsize::new(0);
    let failed: Vec<String> = thread::scope(|scope| {
        let lane = || {
            let mut failed = Vec::new();
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                // A panic of one case must not hide the others.
                if std::panic::catch_unwind(|| suffer(*case)).is_err() {
                    failed.push(format!("{case:?}"));
                }
            }
            failed
        };
        let lanes: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("panics are caught")).collect()
    });
    assert!(failed.is_empty(), "these failed, as said above: {failed:#?}");
}

/// A fleet, all of whose processes can be reached.
struct Fleet {
    desk: Desk,
    redis: RedisServer,
    target: TargetServer,
    victim: Running,
    leader: Running,
    helper: Running,
    /// On the way of whoever is to suffer.
    proxy: FaultProxy,
}

impl Fleet {
    fn start(who: Who) -> Fleet {
        let (desk, redis) = (Desk::new(), RedisServer::start_persistent());
        redis.write_filler_keys();
        let proxy = FaultProxy::start(redis.port());
        let (direct, through) = (redis.url(), format!("redis://127.0.0.1:{}/", proxy.port()));
        let way = |one: Who| if who == one { through.as_str() } else { direct.as_str() };
        let worker = |id: &str, redis: &str, lives: &str| {
            let mut worker = desk.start(&["worker", "--redis", redis, "--id", id, "--expires-after", lives]);
            worker.wait_for_line("joined");
            worker
        };
        // The helper is believed to be there however long it is stopped.
        let (victim, helper) = (worker("victim", way(Who::Worker), "3500ms"), worker("helper", &direct, "120s"));
        let listen = "127.0.0.1:0";
        let mut leader = desk.start(&["orchestrator", "--redis", way(Who::Orchestrator), "--listen", listen]);
        leader.wait_for_line("leads");
        let fleet = Fleet { redis, target: target(), victim, leader, helper, proxy, desk };
        // Only of those who have reported does a run expect anything.
        wait_until("reports", || fleet.ask(&["SCARD squall:{main}:workers"]).as_deref() == Some(":2"));
        fleet
    }

    fn run(&self, result: &str, delay_ms: u64, seconds: u64) -> Running {
        let (url, redis) = (self.target.url(&format!("/delay/{delay_ms}")), self.redis.url());
        let load = [format!("--rate={RATE}"), format!("--for={seconds}s"), "--grace=60s".to_owned()];
        let all = ["run", &url, "--cluster", &redis, "--quiet", "--json", result, &load[0], &load[1], &load[2]];
        self.desk.start(&all)
    }

    fn ask(&self, commands: &[&str]) -> Option<String> {
        ask_redis(self.redis.port(), commands)
    }

    /// What the record says; nothing if nobody answers.
    fn phase(&self) -> Option<String> {
        self.ask(&[STATE])
    }

    /// The phase, in which the run stays until [`Fleet::release`]: nobody can change the record.
    fn hold(&self) -> Option<String> {
        self.ask(&["CLIENT PAUSE 120000 WRITE", STATE])
    }

    fn release(&self) {
        // One that was killed has forgotten it.
        let _ = self.ask(&["CLIENT UNPAUSE"]);
    }

    fn until_phase(&self, phase: &str) {
        let order = ["PREPARING", "RUNNING", "STOPPING"];
        let at = |name: &str| order.iter().position(|known| *known == name);
        wait_until(phase, || self.phase().is_some_and(|now| at(&now) >= at(phase)));
    }

    /// Everything on the way to Redis takes this much longer, in each direction.
    fn slow_down(&self, by: Duration) {
        self.proxy.delay(by);
        self.release();
        thread::sleep(FREEZE);
        self.proxy.heal();
    }

    fn inflict(&mut self, Case { who, fault, .. }: Case) {
        let process = if who == Who::Worker { &self.victim } else { &self.leader };
        match (fault, who) {
            (Fault::Kill, Who::Redis) => self.redis.restart(),
            (Fault::Kill, _) => process.signal(Signal::KILL),
            (Fault::Freeze, Who::Redis) => {
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
                // As a router does that has forgotten a connection: whoever uses it hears of it at last.
                self.proxy.cut();
                self.proxy.heal();
            }
        }
    }
}

/// Strikes a fleet in the phase of the case, however many runs that takes.
fn suffer(case: Case) {
    if case.phase == "IDLE" {
        return strike_between_runs(case);
    }
    for attempt in 0..ATTEMPTS {
        if strike(case, 1 << attempt) {
            return;
        }
    }
    panic!("{case:?}: every run had left the phase before it could be struck");
}

/// A fleet that has had a run and waits for the next: nothing of that one may be missing, whatever happened before it.
fn strike_between_runs(case: Case) {
    let mut fleet = Fleet::start(case.who);
    let mut received = 0;
    for name in ["before.json", "after.json"] {
        let ended = fleet.run(name, 0, 1).end();
        let more = fleet.target.requests() - received;
        check(case, &fleet.desk, name, &ended, more, RATE);
        assert_eq!((ended.code, more), (0, RATE), "{case:?}: {ended:?}");
        received += more;
        if name == "before.json" {
            assert_eq!(fleet.hold().as_deref(), Some("IDLE"), "{case:?}");
            fleet.inflict(case);
            fleet.release();
        }
    }
}

/// One run, `longer` times as long; says whether it was struck in the phase of the case.
fn strike(case: Case, longer: u64) -> bool {
    let mut fleet = Fleet::start(case.who);
    if case.phase == "PREPARING" {
        // As long as it has not built its users, nobody starts.
        fleet.helper.signal(Signal::STOP);
    }
    let seconds = SECONDS * longer;
    let run = fleet.run("first.json", DELAY_MS * longer, seconds);
    fleet.until_phase(case.phase);
    if case.phase == "RUNNING" {
        wait_until("requests", || fleet.target.requests() >= RATE);
    }
    if fleet.hold().as_deref() != Some(case.phase) {
        fleet.release();
        return false;
    }
    fleet.inflict(case);
    fleet.release();
    if case.phase == "PREPARING" {
        fleet.helper.signal(Signal::CONT);
    }
    let ended = run.end();
    let received = fleet.target.requests();
    if case.fault == Fault::Empty {
        assert!(ended.code != 0, "{case:?}: {ended:?}");
        let events = fleet.desk.json("first.json")["fleet"]["events"].to_string();
        assert!(events.contains("the store holds no result"), "{case:?}: {events}");
    } else {
        check(case, &fleet.desk, "first.json", &ended, received, RATE * seconds);
    }
    // Whatever is left of the fleet carries out the next run as if nothing had happened.
    let again = fleet.run("second.json", DELAY_MS, 1).end();
    let more = fleet.target.requests() - received;
    check(case, &fleet.desk, "second.json", &again, more, RATE);
    assert!(more > 0, "{case:?}: the next run makes load: {again:?}");
    true
}

/// Compares the books of the target with those of the report.
#[track_caller]
fn check(case: Case, desk: &Desk, name: &str, ended: &Ended, received: u64, planned: u64) {
    assert!(desk.path(name).exists(), "{case:?}: no result: {ended:?}");
    let result = desk.json(name);
    let accounting = |field: &str| number(&result, &format!("/accounting/{field}"));
    let (sent, recorded, reported) = (accounting("sent"), accounting("recorded"), accounting("reported"));
    let (unsent, lost) = (accounting("unsent"), accounting("lost_at_most"));
    let known = reported - unsent;
    // What was under way when a worker died is part of what is lost at most.
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
