//! Measures the time from a start until Redis shows all users of a large closed run at their
//! workers. The leader and Redis are real. The workers report but build no users, because 100,000
//! users need more file descriptors than a machine has.
//!
//! usage: cargo bench -p squall-orchestrator --bench users -- [USERS] [WORKERS]   (default: 100,000 and 4)

#[allow(dead_code, reason = "the benchmark uses a part of the fixture")]
#[path = "../tests/it/fleet_fixture.rs"]
mod fleet_fixture;

use fleet_fixture::{FleetFixture, bundle};
use squall_model::{RunPhase, ShareSet};
use std::{collections::BTreeMap, time::Instant};

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (users, workers) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(4));
    let mut fixture = FleetFixture::on_redis().await;
    for worker in 0..workers {
        fixture.join(&format!("w{worker}"), ShareSet::ALL.part(worker, workers));
    }
    fixture.lead();
    fixture.until_workers(workers).await;
    let began = Instant::now();
    fixture.fleet.start(&bundle(users as f64), BTreeMap::new()).await.expect("the run starts");
    fixture.until("SCARD", "users", users).await;
    let placed = began.elapsed();
    fixture.until_phase(RunPhase::Running).await;
    let mut active = 0;
    for worker in 0..workers {
        let expected = (0..users as u64).filter(|user| ShareSet::ALL.part(worker, workers).contains(*user)).count();
        fixture.until("SCARD", &format!("worker:w{worker}:active_users"), expected).await;
        active += expected;
    }
    assert_eq!(active, users);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{users} users placed over {workers} workers in {:.2} s", placed.as_secs_f64());
    println!("all of them shown as running after {:.2} s", began.elapsed().as_secs_f64());
    println!("machine load while measured: {}", load.split(' ').next().unwrap_or("unknown"));
    fixture.end().await;
    assert!(placed.as_secs_f64() < 5.0, "more than 5 s");
}
