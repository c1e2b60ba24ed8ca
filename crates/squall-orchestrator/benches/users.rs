//! How long it takes until all users of a large closed run are shown at their workers, from the order to start on. The leader and
//! Redis are real; the workers report but build no users, because a hundred thousand of them need more descriptors than a machine has.
//!
//! usage: cargo bench -p squall-orchestrator --bench users -- [USERS] [WORKERS]   (100,000 and 4 unless told)

#[path = "../tests/it/fleet_fixture.rs"]
mod fleet_fixture;

use fleet_fixture::{Stage, bundle};
use squall_model::ShareSet;
use squall_orchestrator::FleetClient;
use std::{collections::BTreeMap, time::Instant};

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (users, workers) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(4));
    let mut stage = Stage::new().await;
    for worker in 0..workers {
        stage.join(&format!("w{worker}"), ShareSet::ALL.part(worker, workers));
    }
    stage.lead();
    stage.until("SCARD", "workers", workers).await;
    let began = Instant::now();
    FleetClient::new(stage.cell.clone()).start(&bundle(users as f64), BTreeMap::new()).await.expect("it starts");
    stage.until("SCARD", "users", users).await;
    let placed = began.elapsed();
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    let mut active = 0;
    for worker in 0..workers {
        let wanted = (0..users as u64).filter(|user| ShareSet::ALL.part(worker, workers).contains(*user)).count();
        stage.until("SCARD", &format!("worker:w{worker}:active_users"), wanted).await;
        active += wanted;
    }
    assert_eq!(active, users);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{users} users placed over {workers} workers in {:.2} s", placed.as_secs_f64());
    println!("all of them shown as running after {:.2} s", began.elapsed().as_secs_f64());
    println!("machine load while measured: {}", load.split(' ').next().unwrap_or("unknown"));
    stage.end().await;
    assert!(placed.as_secs_f64() < 5.0, "more than 5 s");
}
