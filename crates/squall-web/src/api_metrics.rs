//! The metrics of this orchestrator and its fleet as Prometheus text. squall-report renders the
//! metrics of the run.

use squall_model::RunPhase;
use squall_orchestrator::{FleetStatus, WorkerInfo};
use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::run_watcher::ApiCounters;

/// The metric families of the fleet and of the API.
pub(crate) fn render(status: Option<&FleetStatus>, subscribers: usize, counters: &ApiCounters) -> String {
    let mut text = String::new();
    let up = f64::from(u8::from(status.is_some()));
    write_metric(&mut text, "squall_store_up", "gauge", "1 if the coordination store responds.", up);
    if let Some(status) = status {
        write_fleet(&mut text, status);
    }
    write_api(&mut text, counters);
    let help = "Subscribers of /api/v1/live and of /ws/metrics.";
    write_metric(&mut text, "squall_live_subscribers", "gauge", help, subscribers as f64);
    write_watcher(&mut text, counters);
    text
}

fn write_fleet(text: &mut String, status: &FleetStatus) {
    let alive = status.workers.iter().filter(|worker| worker.is_healthy()).count() as f64;
    let sum = |of: fn(&WorkerInfo) -> u64| status.workers.iter().map(of).sum::<u64>() as f64;
    let (bad, stale) = (sum(|worker| worker.bad_commands), sum(|worker| worker.stale_commands));
    let waiting = sum(|worker| worker.waiting);
    write_metric(text, "squall_fleet_epoch", "counter", "Runs started so far.", status.epoch as f64);
    write_metric(text, "squall_fleet_workers", "gauge", "Workers alive.", alive);
    write_metric(text, "squall_fleet_bad_commands", "gauge", "Commands that workers could not read.", bad);
    write_metric(text, "squall_fleet_stale_commands", "gauge", "Commands of earlier runs that workers ignored.", stale);
    write_metric(text, "squall_fleet_deltas_waiting", "gauge", "Deltas not yet shipped.", waiting);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP squall_fleet_state 1 for the current state of the fleet.");
    let _ = writeln!(text, "# TYPE squall_fleet_state gauge");
    for phase in RunPhase::ALL {
        let current = u8::from(phase == status.phase);
        let _ = writeln!(text, "squall_fleet_state{{state=\"{phase}\"}} {current}");
    }
}

fn write_api(text: &mut String, counters: &ApiCounters) {
    write_counter(text, "squall_api_requests_total", "Requests to the API.", &counters.requests);
    let help = "Requests denied by token, Host or Origin.";
    write_counter(text, "squall_api_refused_total", help, &counters.denied_requests);
    let help = "Requests with an invalid body or query.";
    write_counter(text, "squall_api_bad_requests_total", help, &counters.bad_requests);
    let help = "Entries in delta streams that are not deltas.";
    write_counter(text, "squall_refused_deltas_total", help, &counters.invalid_deltas);
    let help = "Pools whose keys contain values of other programs.";
    write_counter(text, "squall_api_refused_pools_total", help, &counters.unusable_pools);
}

fn write_watcher(text: &mut String, counters: &ApiCounters) {
    let help = "Messages that slow subscribers missed.";
    write_counter(text, "squall_live_dropped_total", help, &counters.dropped_messages);
    write_counter(text, "squall_live_failed_looks_total", "Failed polls of the run.", &counters.failed_polls);
}

fn write_counter(text: &mut String, name: &str, help: &str, counter: &AtomicU64) {
    write_metric(text, name, "counter", help, counter.load(Relaxed) as f64);
}

fn write_metric(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}
