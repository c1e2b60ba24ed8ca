//! One worker serves clients of several Playwright versions.

use std::path::PathBuf;

use squall_coord::MemorySlotStore;
use squall_grid::GridWorkerConfig;
use tokio::process::Command;

use crate::support::{
    Grid, HoldingClient, get, node_client, playwright_folder, run, server_config, start_worker, worker_config,
};

fn packages() -> Vec<PathBuf> {
    ["playwright-core", "playwright-core-older"]
        .map(|name| playwright_folder().join("node_modules").join(name))
        .to_vec()
}

/// A client of the older version.
fn older_client(arguments: &[&str]) -> Command {
    let mut command = node_client(arguments);
    command.env("PLAYWRIGHT", "playwright-core-older");
    command
}

/// Node processes that run a script in this process's temporary folders.
fn hosts_of(package: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains("host.js") && line.contains(&format!("/{package}\0"))).count()
}

#[tokio::test]
async fn worker_serves_two_versions_and_starts_the_second_at_its_first_session() {
    let config = GridWorkerConfig { playwright: packages(), ..worker_config("w1", 1) };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let workers = get(grid.address, "/v1/workers").await.json();
    assert_eq!(workers["workers"][0]["playwright_version"], "1.65, 1.64");
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert_eq!(hosts_of("playwright-core-older"), 0, "no client of the older version has come");
    let held = HoldingClient::connect_with(older_client(&["hold", &grid.url()])).await;
    assert_eq!(hosts_of("playwright-core-older"), 1);
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    assert_eq!(grid.snapshot().await.sessions[0].version, "1.64");
    // The versions share the slot.
    let mut newer = HoldingClient::start(&grid.url(), "newer");
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    held.close().await;
    assert_eq!(newer.line().await, "connected");
    newer.close().await;
    grid.end().await;
    assert_eq!(hosts_of("playwright-core-older"), 0, "the host ends with its worker");
}

#[tokio::test]
async fn client_of_a_missing_version_is_told_all_versions() {
    let grid = Grid::start(1).await;
    let (ok, message) = run(older_client(&["job", &grid.url()])).await;
    assert!(!ok && message.contains("the client has Playwright 1.64") && message.contains("have 1.65"), "{message}");
    grid.end().await;
}

#[tokio::test]
async fn folders_of_one_version_are_refused() {
    let twice = vec![packages()[0].clone(), packages()[0].clone()];
    let config = GridWorkerConfig { playwright: twice, ..worker_config("w1", 1) };
    let error = start_worker(&MemorySlotStore::new(), config).task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("give each version once"), "{error}");
}
