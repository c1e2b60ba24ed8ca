//! `squall down`: stops the processes that `squall up` started, workers first, and prints each.
//! Signals no other process, even if one has the pid of a process that has ended.

use rustix::process::Signal;
use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    api_client::ApiClient,
    exit::{CliError, PASSED},
    local_fleet_state::{self, FleetProcess, LocalFleetState},
    terminal::{self, WAIT_NOTICE_DELAY, print},
};

/// How long a worker has to finish its requests and to ship its deltas.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the API has to say whether a test is running.
const API_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn down() -> Result<u8, CliError> {
    let Some(state) = local_fleet_state::read()? else {
        print::stdout(b"nothing to stop: `squall up` has not started a fleet here\n")?;
        return Ok(PASSED);
    };
    let ended = stop_processes(&state.processes, || running_test_notice(&state));
    clean_up();
    print::stdout(ended.as_bytes())?;
    Ok(PASSED)
}

/// A notice about a test that is still running in the Redis server of `--redis`, which `squall
/// down` does not stop.
fn running_test_notice(state: &LocalFleetState) -> String {
    let has = |role: &str| state.processes.iter().any(|process| process.role.starts_with(role));
    // The fleet's own Redis server, or the memory of its one process, ends with the fleet.
    if has("redis-server") || !has("worker") {
        return String::new();
    }
    let token = std::env::var("SQUALL_TOKEN").ok();
    let running =
        ApiClient::with_timeout(API_TIMEOUT, &state.api, token, None).and_then(|mut api| api.running_test_epoch());
    match running {
        Ok(None) => String::new(),
        Ok(Some(epoch)) => format!(
            "test {epoch} is still running in the Redis server of --redis, and continues as soon as workers join. Stop \
             a test with `squall test stop` before `squall down`; stop this one after the next `squall up`\n"
        ),
        Err(error) => format!(
            "cannot find out whether a test is still running in the Redis server of --redis ({error}): it would continue \
             as soon as workers join, until `squall test stop`\n"
        ),
    }
}

/// Stops these processes in the opposite order of their start and returns a line for each. Calls
/// `after_workers` when the workers have ended and the others still run; its text comes last.
pub(crate) fn stop_processes(processes: &[FleetProcess], after_workers: impl FnOnce() -> String) -> String {
    let (mut text, mut notice) = (String::new(), None);
    let mut after_workers = Some(after_workers);
    // Workers drain in parallel; the processes they depend on are stopped after them.
    let (workers, others): (Vec<&FleetProcess>, Vec<&FleetProcess>) =
        processes.iter().rev().partition(|process| process.role.starts_with("worker"));
    for group in std::iter::once(workers).chain(others.into_iter().map(|process| vec![process])) {
        let running: Vec<bool> = group.iter().map(|process| process.is_running()).collect();
        group.iter().for_each(|process| process.signal(Signal::TERM));
        if !wait_until_gone(&group, WAIT_NOTICE_DELAY) {
            let within = DRAIN_TIMEOUT.as_secs();
            terminal::print_stderr(format!(
                "waiting for {}: it will be killed in {within} s\n",
                running_process_names(&group).join(", ")
            ));
        }
        wait_until_gone(&group, DRAIN_TIMEOUT);
        let killed: Vec<bool> = group.iter().map(|process| process.is_running()).collect();
        if killed.contains(&true) {
            group.iter().for_each(|process| process.signal(Signal::KILL));
            wait_until_gone(&group, KILL_TIMEOUT);
        }
        for ((process, was_running), killed) in group.iter().zip(running).zip(killed) {
            let verb = match (was_running, killed) {
                (_, true) => "killed",
                (true, false) => "ended",
                (false, false) => "had already ended:",
            };
            text += &format!("{verb} {} (pid {})\n", process.role, process.pid);
        }
        if let Some(after_workers) = after_workers.take() {
            notice = Some(after_workers());
        }
    }
    text + &notice.unwrap_or_default()
}

/// Names and pids of the processes that still run.
fn running_process_names(group: &[&FleetProcess]) -> Vec<String> {
    let running = group.iter().filter(|process| process.is_running());
    running.map(|process| format!("{} (pid {})", process.role, process.pid)).collect()
}

/// Waits until none of the processes runs; `false` after the timeout.
fn wait_until_gone(group: &[&FleetProcess], timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while group.iter().any(|process| process.is_running()) {
        if Instant::now() > deadline {
            return false;
        }
        // Polls, because they are not children of this process.
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Removes the folder of `squall up`, if it belongs to this user.
pub(crate) fn clean_up() {
    if let Ok(folder) = local_fleet_state::create_folder() {
        // Files that cannot be removed do no harm.
        let _ = fs::remove_dir_all(folder);
    }
}
