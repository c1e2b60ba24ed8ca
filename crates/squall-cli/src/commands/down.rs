//! `squall down`: ends exactly what `squall up` started, workers first, and says so. What has ended by itself is left alone, also if
//! its number belongs to another process by now.

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

/// A worker may need this long to finish what is under way and to ship it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// An API that does not answer by then is ended without an answer.
const API_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn down() -> Result<u8, CliError> {
    let Some(state) = local_fleet_state::read()? else {
        print::stdout(b"nothing to end: `squall up` has not started a fleet here\n")?;
        return Ok(PASSED);
    };
    let ended = stop_processes(&state.processes, || running_test_notice(&state));
    clean_up();
    print::stdout(ended.as_bytes())?;
    Ok(PASSED)
}

/// What goes on without this fleet, in words: a server that was given is not ended, and remembers the test.
fn running_test_notice(state: &LocalFleetState) -> String {
    let has = |role: &str| state.processes.iter().any(|process| process.role.starts_with(role));
    // A server of its own, or the memory of its one process, ends with the fleet.
    if has("redis-server") || !has("worker") {
        return String::new();
    }
    let token = std::env::var("SQUALL_TOKEN").ok();
    let asked =
        ApiClient::with_timeout(API_TIMEOUT, &state.api, token, None).and_then(|mut api| api.running_test_epoch());
    match asked {
        Ok(None) => String::new(),
        Ok(Some(epoch)) => format!(
            "test {epoch} is still under way in the Redis server that was given, and goes on as soon as workers come. To end a \
             test, `squall test stop` before `squall down`; this one after the next `squall up`\n"
        ),
        Err(error) => format!(
            "whether a test is still under way in the Redis server that was given is not known ({error}): it would go on as \
             soon as workers come, until `squall test stop`\n"
        ),
    }
}

/// Ends these processes in the opposite order of their start; says what became of each, and at the end what `before_last` found when
/// the workers were gone and the others not yet.
pub(crate) fn stop_processes(processes: &[FleetProcess], before_last: impl FnOnce() -> String) -> String {
    let (mut text, mut found) = (String::new(), None);
    let mut before_last = Some(before_last);
    // Workers drain side by side; what they need is ended after them.
    let (workers, others): (Vec<&FleetProcess>, Vec<&FleetProcess>) =
        processes.iter().rev().partition(|process| process.role.starts_with("worker"));
    for group in std::iter::once(workers).chain(others.into_iter().map(|process| vec![process])) {
        let running: Vec<bool> = group.iter().map(|process| process.is_running()).collect();
        group.iter().for_each(|process| process.signal(Signal::TERM));
        if !wait_until_gone(&group, WAIT_NOTICE_DELAY) {
            let within = DRAIN_TIMEOUT.as_secs();
            terminal::print_stderr(format!(
                "waiting for {}: killed if not gone in {within} s\n",
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
            let what = match (was_running, killed) {
                (_, true) => "killed",
                (true, false) => "ended",
                (false, false) => "was gone already:",
            };
            text += &format!("{what} {} (pid {})\n", process.role, process.pid);
        }
        if let Some(look) = before_last.take() {
            found = Some(look());
        }
    }
    text + &found.unwrap_or_default()
}

/// Those that still run, for people.
fn running_process_names(group: &[&FleetProcess]) -> Vec<String> {
    let running = group.iter().filter(|process| process.is_running());
    running.map(|process| format!("{} (pid {})", process.role, process.pid)).collect()
}

/// Waits until none of them runs; says whether it came to that.
fn wait_until_gone(group: &[&FleetProcess], within: Duration) -> bool {
    let give_up = Instant::now() + within;
    while group.iter().any(|process| process.is_running()) {
        if Instant::now() > give_up {
            return false;
        }
        // Not our children: nobody tells us.
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Removes what `squall up` wrote, if it is ours.
pub(crate) fn clean_up() {
    if let Ok(folder) = local_fleet_state::create_folder() {
        // What cannot be removed does no harm.
        let _ = fs::remove_dir_all(folder);
    }
}
