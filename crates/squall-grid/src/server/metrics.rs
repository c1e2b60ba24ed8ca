//! Counters of one server for Prometheus, together with the grid's capacity.
//! It measures nothing itself. The routes and the relays add to it.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use squall_coord::SlotSnapshot;

use super::{
    capacity::{BrowserCapacity, capacity},
    queue_wait::QueueWait,
};
use crate::relay::{RelayEnd, RelayReport};

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics {
    sessions: AtomicU64,
    refused: AtomicU64,
    workers_lost: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    pub(crate) queue_wait: QueueWait,
}

impl ServerMetrics {
    pub(crate) fn count_relay(&self, report: &RelayReport) {
        self.sessions.fetch_add(1, Relaxed);
        self.bytes_up.fetch_add(report.bytes_up, Relaxed);
        self.bytes_down.fetch_add(report.bytes_down, Relaxed);
        self.workers_lost.fetch_add(u64::from(report.end == RelayEnd::WorkerLost), Relaxed);
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// The text of `/metrics`.
    pub(crate) fn render(&self, snapshot: &SlotSnapshot, relays: usize) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, rows: &[(String, u64)]| {
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in rows {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let own = |value: u64| vec![(String::new(), value)];
        metric("squall_grid_relays", "gauge", "Sessions that this server relays.", &own(relays as u64));
        let counters = [
            ("squall_grid_sessions_ended_total", "Sessions that ended on this server.", &self.sessions),
            ("squall_grid_refused_total", "Requests that this server refused.", &self.refused),
            (
                "squall_grid_workers_lost_total",
                "Sessions that ended because their worker was lost.",
                &self.workers_lost,
            ),
            ("squall_grid_bytes_up_total", "Bytes from clients.", &self.bytes_up),
            ("squall_grid_bytes_down_total", "Bytes to clients.", &self.bytes_down),
        ];
        for (name, help, counter) in counters {
            metric(name, "counter", help, &own(counter.load(Relaxed)));
        }
        let browsers = capacity(snapshot);
        let rows = |value: fn(&BrowserCapacity) -> u64| -> Vec<(String, u64)> {
            browsers.iter().map(|row| (format!("{{browser=\"{}\"}}", row.browser), value(row))).collect()
        };
        metric("squall_grid_workers", "gauge", "Workers of the grid.", &rows(|row| row.workers));
        metric("squall_grid_slots", "gauge", "Slots of workers that take sessions.", &rows(|row| row.max_slots));
        metric("squall_grid_active_sessions", "gauge", "Sessions of the grid.", &rows(|row| row.active_sessions));
        metric("squall_grid_queued", "gauge", "Clients that wait for a slot.", &rows(|row| row.queued));
        metric(
            "squall_grid_queue_oldest_ms",
            "gauge",
            "Milliseconds that the first waiting client has waited.",
            &rows(|row| row.queue_oldest_ms),
        );
        self.queue_wait.render(&mut text);
        text
    }
}
