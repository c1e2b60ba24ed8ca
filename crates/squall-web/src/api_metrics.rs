//! The metrics of this orchestrator and its fleet as Prometheus text. squall-report renders the
//! metrics of the run.

use squall_orchestrator::FleetStatus;
use std::{fmt::Write, sync::atomic::Ordering::Relaxed};

use crate::run_watcher::ApiCounters;

/// The metric families of the fleet and of the API.
pub(crate) fn render(status: Option<&FleetStatus>, subscribers: usize, counters: &ApiCounters) -> String {
    let mut text = String::new();
    let up = f64::from(u8::from(status.is_some()));
    write_metric(&mut text, "squall_store_up", "gauge", "1 if the coordination store responds.", up);
    if let Some(status) = status {
        let alive = status.workers.iter().filter(|worker| worker.is_healthy()).count();
        let bad: u64 = status.workers.iter().map(|worker| worker.bad_commands).sum();
        let stale: u64 = status.workers.iter().map(|worker| worker.stale_commands).sum();
        let waiting: u64 = status.workers.iter().map(|worker| worker.waiting).sum();
        write_metric(&mut text, "squall_fleet_epoch", "counter", "Runs started so far.", status.epoch as f64);
        write_metric(&mut text, "squall_fleet_workers", "gauge", "Workers alive.", alive as f64);
        write_metric(
            &mut text,
            "squall_fleet_bad_commands",
            "gauge",
            "Commands that workers could not read.",
            bad as f64,
        );
        write_metric(
            &mut text,
            "squall_fleet_stale_commands",
            "gauge",
            "Commands of earlier runs that workers ignored.",
            stale as f64,
        );
        write_metric(&mut text, "squall_fleet_deltas_waiting", "gauge", "Deltas not yet shipped.", waiting as f64);
        let _ = writeln!(
            text,
            "# HELP squall_fleet_state 1 for the current state of the fleet.\n# TYPE squall_fleet_state gauge"
        );
        for phase in squall_model::RunPhase::ALL {
            let current = u8::from(phase == status.state);
            let _ = writeln!(text, "squall_fleet_state{{state=\"{phase}\"}} {current}");
        }
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed) as f64;
    write_metric(&mut text, "squall_api_requests_total", "counter", "Requests to the API.", count(&counters.requests));
    let denied = count(&counters.denied_requests);
    write_metric(&mut text, "squall_api_refused_total", "counter", "Requests denied by token, Host or Origin.", denied);
    let bad = count(&counters.bad_requests);
    write_metric(&mut text, "squall_api_bad_requests_total", "counter", "Requests with an invalid body or query.", bad);
    let deltas = count(&counters.invalid_deltas);
    write_metric(
        &mut text,
        "squall_refused_deltas_total",
        "counter",
        "Entries in delta streams that are not deltas.",
        deltas,
    );
    let pools = count(&counters.unusable_pools);
    write_metric(
        &mut text,
        "squall_api_refused_pools_total",
        "counter",
        "Pools whose keys contain values of other programs.",
        pools,
    );
    write_metric(&mut text, "squall_live_subscribers", "gauge", "Subscribers of the live feed.", subscribers as f64);
    let dropped = count(&counters.dropped_messages);
    write_metric(&mut text, "squall_live_dropped_total", "counter", "Messages that slow subscribers missed.", dropped);
    let failed = count(&counters.failed_polls);
    write_metric(&mut text, "squall_live_failed_looks_total", "counter", "Failed polls of the run.", failed);
    text
}

fn write_metric(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}
